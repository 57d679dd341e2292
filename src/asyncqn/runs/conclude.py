"""The end of a run: the point that it reports, its outcome, and the `Run` that holds both.

`conclude` is called once for every run, on every engine and in a replay.  `best_candidate` chooses the point
and `judge` decides the outcome of a run that made all its commits.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from asyncqn.algorithms.stability import advise
from asyncqn.columns import Table
from asyncqn.core.execute import Finished
from asyncqn.core.master import Master
from asyncqn.core.outcome import Outcome, risen, thermal_rise
from asyncqn.core.stopping import Ended, converged, slope_of
from asyncqn.runs.draws import Draws
from asyncqn.runs.run import Run
from asyncqn.storage.growing import GrowingRows
from asyncqn.types import Array, extra


def conclude(finished: Finished, manifest: dict[str, Any]) -> Run:
    """Return the `Run` of a master that has made its last commit, on any engine."""
    master, schedule, locals_, outcome, message = finished
    # A run that ended for another reason may still have an objective that is not finite at its last point.
    if outcome is not Outcome.DIVERGED:
        diverged = _evaluate_the_end(master)
        if diverged is not None:
            outcome, message = Outcome.DIVERGED, str(diverged)
    theta, fun = best_candidate(master, outcome)
    if outcome is Outcome.COMPLETED:
        outcome, message = judge(finished, fun, manifest)
    if outcome is Outcome.STOPPED and finished.outcome is Outcome.STOPPED:
        message += _about_budget(master, fun)
    if outcome is Outcome.DIVERGED:
        # The workers' states tell the algorithm what went wrong, such as misleading pairs.
        advice = advise(
            master.algorithm, master.problem, master.theta0, master.workers, locals_
        )
        message = f"{message}: {advice}"
    best = master.best
    if best is not None and best.theta is not None and best.commit < master.version:
        message += f" theta is that of commit {best.commit}, with the best {best.rule.metric}: {best.value:.6g}."
    counters = extra(master.algorithm, "counters")
    totals = {} if counters is None else counters(master.iterate, locals_)
    return Run(
        theta=theta,
        fun=fun,
        status=outcome,
        message=message,
        schedule=schedule,
        metrics=Table.from_records(master.records),
        counters={
            # Every run has these two counters, so that tables of runs can be compared.
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
        problem=master.problem,
        keep=_draws(master),
        results=_results(master),
    )


def _about_budget(master: Master, fun: float) -> str:
    """Return what a budget of passes was good for and how to add to it; empty if no budget ended the run."""
    budget, records = master.stopping.max_passes, master.records
    if budget is None or master.passes < budget or not records:
        return ""
    return (
        f" U fell from {records[0]['fun']:.6g} to {fun:.6g}; from a checkpoint, "
        f"resume(folder, max_passes={3 * budget:g}) continues."
    )


def _draws(master: Master) -> Draws | None:
    if master.kept is None:
        return None
    kept = cast(GrowingRows, master.kept)
    return Draws(master.keep, kept.table())


def _results(master: Master) -> dict[str, Array]:
    """Return copies of the arrays that the algorithm reports."""
    report = extra(master.algorithm, "results")
    if report is None:
        return {}
    return {name: np.array(a) for name, a in report(master.iterate).items()}


def _evaluate_the_end(master: Master) -> Ended | None:
    """Add the last row of the metric table if it is missing; return a divergence if U is not finite there."""
    # The run has ended: a callback could no longer stop it.
    master.callback = None
    try:
        if master.evaluates:
            master.evaluate(master.time)
    except Ended as ended:
        return ended if ended.outcome is Outcome.DIVERGED else None
    return None


def judge(
    finished: Finished, fun: float, manifest: dict[str, Any]
) -> tuple[Outcome, str]:
    """Return the outcome and the message of a run that made all its commits and reports a U of `fun`.

    A stochastic run has diverged where U is above its start by more than its noise explains
    (`core.outcome.risen`).  A run that missed its target or did not converge counts as stopped by its last
    commit.
    """
    master, message = finished.master, finished.message
    standing, rule = master.standing(), master.stopping
    if standing is not None:
        message = f"{message[:-1]}; {slope_of(standing)}."
    if not manifest.get("exact"):
        known = bool(master.records) and master.records[0]["commit"] == 0
        start = master.records[0]["fun"] if known else master.value(master.theta0)
        eps = float(np.finfo(master.theta0.dtype).eps)
        if risen(start, fun, _noise(master), eps):
            return (
                Outcome.DIVERGED,
                f"U rose from {start:.6g} to {fun:.6g} in {master.version} commits",
            )
    if rule.target is not None:
        return (
            Outcome.STOPPED,
            f"{rule.metric} did not reach the target {rule.target:g}: {message}",
        )
    if manifest.get("open_ended") and manifest.get("exact"):
        return Outcome.STOPPED, f"the run has not converged: {message}"
    return Outcome.COMPLETED, message


def _noise(master: Master) -> float:
    """Return how far the algorithm's own noise may lift U, at the highest temperature of the run."""
    temperature = extra(master.algorithm, "temperature")
    if temperature is None:
        return 0.0
    # An annealed temperature is monotonic, so the first and the last step bound it.
    last = master.version // max(master.workers, 1)
    highest = float(max(temperature(0), temperature(last)))
    return thermal_rise(master.theta0.size, highest)


def best_candidate(
    master: Master, outcome: Outcome | None = None
) -> tuple[Array, float]:
    """Return the point that a run reports, and U there.

    If the run's patience keeps the best row, the point is that of this row, however the run ended.  Otherwise
    it is the point that reached the target, the point at which the method converged or stalled, or the lowest
    candidate that the method offers.  A run without evaluations reports the method's last point and its own
    U.
    """
    # A `Patience` that keeps the best row decides, however the run ended.
    if master.best is not None and master.best.theta is not None:
        return master.best.theta.copy(), master.best.fun
    standing, tol = master.standing(), master.stopping.tol
    if not master.evaluates and standing is not None:
        return np.array(standing.point, copy=True), standing.value
    theta, records = master.iterate.theta, master.records
    known = bool(records) and records[-1]["commit"] == master.version
    # The row of an exact method describes the last accepted point and not the trial in `iterate.theta`.
    if known and standing is not None and records[-1]["fun"] == standing.value:
        theta = standing.point
    # The run ended because this row reached the target, so its point is the one to report.
    if known and master.at_target(records[-1]):
        return np.array(theta, copy=True), records[-1]["fun"]
    reached = tol is not None and standing is not None and converged(standing, tol)
    if standing is not None and (reached or outcome is Outcome.STALLED):
        return np.array(standing.point, copy=True), master.value(standing.point)
    lowest = records[-1]["fun"] if known else master.value(theta)
    offer = extra(master.algorithm, "candidates")
    others = (master.iterate.theta, *(() if offer is None else offer(master.iterate)))
    # The last trial was never judged, and a method may offer more; the lowest of all is reported.
    for other in others:
        if other is theta:
            continue
        fun = master.value(other)
        if fun < lowest or (np.isfinite(fun) and not np.isfinite(lowest)):
            theta, lowest = other, fun
    return np.array(theta, copy=True), lowest
