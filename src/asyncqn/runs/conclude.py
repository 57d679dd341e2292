"""The end of a run: the point it reports, how it ended, and the `Run` that says so."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from asyncqn.algorithms.stability import advise
from asyncqn.core.execute import Finished
from asyncqn.core.master import Master
from asyncqn.core.stopping import Ended, converged, slope_of
from asyncqn.runs.draws import Draws
from asyncqn.runs.run import Run
from asyncqn.runs.table import Table
from asyncqn.storage import GrowingRows
from asyncqn.types import Array, extra


def conclude(finished: Finished, manifest: dict[str, Any]) -> Run:
    """Return the `Run` of a master that has made its last commit, on whatever engine."""
    master, schedule, locals_, status, message = finished
    if status != "diverged" and (diverged := _evaluate_the_end(master)) is not None:
        status, message = "diverged", str(diverged)
    if status == "diverged":
        advice = advise(master.algorithm, master.potential, master.theta0, master.workers, locals_)
        message = f"{message}: {advice}"
    totals = master.algorithm.counters(master.iterate, locals_)
    standing = master.standing()
    if standing is not None and status == "completed":
        message = f"{message[:-1]}; {slope_of(standing)}."
    theta, fun = answer(master, status)
    return Run(
        theta=theta,
        fun=fun,
        status=status,
        message=message,
        schedule=schedule,
        metrics=Table.from_records(master.records),
        counters={
            "pairs_accepted": 0,
            "pairs_rejected": 0,
            **{name: int(total) for name, total in totals.items()},
            "updates_rejected": master.rejected,
            "staleness_max": int(schedule.staleness.max(initial=0)),
        },
        manifest=manifest,
        theta0=master.theta0.copy(),
        fingerprints=np.array(master.fingerprints, np.uint32),
        algorithm=master.algorithm,
        potential=master.potential,
        keep=_draws(master),
    )


def _draws(master: Master) -> Draws | None:
    return None if master.kept is None else Draws(master.keep, cast(GrowingRows, master.kept).table())


def _evaluate_the_end(master: Master) -> Ended | None:
    """Add the last row of the metric table where it is missing; the end by divergence, if U is not finite."""
    master.callback = None
    try:
        if master.evaluates:
            master.evaluate(master.time)
    except Ended as ended:
        return ended if ended.status == "diverged" else None
    return None


def answer(master: Master, status: str = "") -> tuple[Array, float]:
    """The point that a run reports, and U there: at its target, where it converged, or the lowest offered.

    Where the end is not to be evaluated it is the point that the method judged last, and what it says of U.
    """
    standing, tol = master.standing(), master.stopping.tol
    if not master.evaluates:
        theta, fun = (master.iterate.theta, math.nan) if standing is None else standing[:2]
        return np.array(theta, copy=True), fun
    theta, records = master.iterate.theta, master.records
    known = bool(records) and records[-1]["commit"] == master.version
    if known and master.at_target(records[-1]):
        return np.array(theta, copy=True), records[-1]["fun"]
    settled = status == "stalled" or (tol is not None and standing is not None and converged(standing, tol))
    if standing is not None and settled:
        return np.array(standing.point, copy=True), master.value(standing.point)
    lowest = records[-1]["fun"] if known else master.value(theta)
    offer = extra(master.algorithm, "answers")
    for other in () if offer is None else offer(master.iterate):
        fun = master.value(other)
        if fun < lowest or (np.isfinite(fun) and not np.isfinite(lowest)):
            theta, lowest = other, fun
    return np.array(theta, copy=True), lowest
