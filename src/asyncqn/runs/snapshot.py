"""Convert a master, and the numerical loop around it, to a checkpoint and back.

The real engines save a master here and collect the workers' states themselves.  The loop of `core.execute`
holds master and workers, so it is saved as a whole.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from asyncqn.columns import Table
from asyncqn.core.execute import Loop
from asyncqn.core.master import Master
from asyncqn.core.schedule import ROW, Recorder
from asyncqn.core.stopping import Best
from asyncqn.core.worker import sample_update
from asyncqn.errors import DamagedFile
from asyncqn.runs.checkpoint import FINGERPRINT, Arrays, Saved, flatten, with_prefix
from asyncqn.storage.growing import GrowingRows
from asyncqn.storage.logs import Log


def state_arrays(worker: int, state: Any) -> Arrays:
    """Return copies of a worker's state, by the names under which checkpoints store it."""
    return flatten(f"worker.{worker}", state)


def save_recorder(
    saved: Saved,
    recorder: Recorder,
    under_way: Iterable[tuple[int, int, int | None]],
    time: float,
) -> None:
    """Add a recorded schedule, and (worker, version, part) of the computations under way."""
    saved.logs["schedule"] = Log(ROW, len(recorder), recorder.rows)
    begun = Recorder()
    for worker, read, part in under_way:
        begun.dropped(worker, read, time, part)
    rows = begun.rows(0, len(begun))
    saved.arrays.update(
        {f"under_way.{name}": rows[name].copy() for name in rows.dtype.names or ()}
    )


def save_master(master: Master) -> Saved:
    """Return the checkpoint of a master: numbers, copies of its arrays, and logs of what only grows."""
    document = {
        "commit": master.version,
        "last_time": master.time,
        "rejected": master.rejected,
        "rejected_in_a_row": master.rejected_in_a_row,
        "rows": master.rows,
    }
    # Copies, because the checkpoint may be written by a thread while the next commits change these arrays.
    arrays = {**flatten("iterate", master.iterate), "theta0": master.theta0.copy()}
    if master.best is not None:
        best = master.best
        arrays["best"] = np.array(
            [best.value, best.fun, best.commit, best.rows_since], np.float64
        )
        if best.theta is not None:
            arrays["best_theta"] = best.theta.copy()
    # Every record of a log has the same fields; a metric that appears later starts a new log.
    names = list(master.columns)
    columns = np.dtype([(name, "<f8") for name in names])
    # Both lists only grow, so a thread may read their beginnings while the run continues.
    records, fingerprints = master.records, master.fingerprints

    def metrics_between(start: int, stop: int) -> npt.NDArray[Any]:
        rows = [tuple(r.get(n, math.nan) for n in names) for r in records[start:stop]]
        return np.array(rows, columns)

    def fingerprints_between(start: int, stop: int) -> npt.NDArray[Any]:
        return np.array(fingerprints[start:stop], np.uint32).view(FINGERPRINT)

    logs = {
        "fingerprints": Log(FINGERPRINT, len(fingerprints), fingerprints_between),
        "metrics": Log(columns, len(records), metrics_between),
    }
    if master.kept is not None:
        kept = cast(GrowingRows, master.kept)
        number = np.dtype([("theta", master.theta0.dtype.str)])

        def draws_between(start: int, stop: int) -> npt.NDArray[Any]:
            return kept.between(start, stop).view(number)

        logs["draws"] = Log(number, len(kept) * master.theta0.size, draws_between)
    return Saved(document, arrays, logs)


def restore_master(master: Master, saved: Saved) -> None:
    """Set a fresh master to the state of a checkpoint; its iterate is filled in place."""
    document, table = saved.document, Table(with_prefix("metrics.", saved.arrays))
    master.restore(
        saved.tree("iterate", master.iterate),
        version=saved.commit,
        time=float(document["last_time"]),
        fingerprints=saved.arrays["fingerprints"].tolist(),
        records=[table.row(i) for i in range(table.rows)],
        best=_best(master, saved),
    )
    master.rows = document["rows"]
    master.rejected = document["rejected"]
    master.rejected_in_a_row = document["rejected_in_a_row"]
    if master.kept is not None:
        draws = saved.arrays.get("draws", master.theta0[:0])
        rows = draws.reshape(-1, master.theta0.size)
        if len(rows) != master.version // master.keep:
            raise DamagedFile(
                "the checkpoint is damaged: it lacks iterates that its run stores."
            )
        for row in rows:
            master.kept.append(row)


def _best(master: Master, saved: Saved) -> Best | None:
    """Return the best row of a run with patience, or None without patience."""
    rule = master.stopping.patience
    if rule is None:
        return None
    row = saved.arrays.get("best", np.empty(0))
    theta = saved.arrays.get("best_theta")
    sound = row.shape == (4,) and bool(np.isfinite(row[2:]).all())
    if theta is not None:
        same_type = theta.dtype == master.theta0.dtype
        sound = sound and same_type and theta.shape == master.theta0.shape
    # row[2] is the commit of the best row; -1 means that no row was finite yet.
    elif sound and rule.keep_best:
        sound = bool(row[2] < 0)
    if not sound:
        raise DamagedFile(
            "the checkpoint is damaged: it lacks the best row that Patience compares with."
        )
    value, fun, commit, rows_since = row.tolist()
    return Best(rule, value, fun, int(commit), int(rows_since), theta)


def save_loop(loop: Loop, manifest: dict[str, Any]) -> Saved:
    """Return the checkpoint of a loop: master, workers, and the updates that wait for their commit."""
    saved = save_master(loop.master)
    for worker, local in loop.locals.items():
        saved.arrays.update(state_arrays(worker, local))
    pending = [(w, update) for w, updates in loop.pending.items() for update in updates]
    for i, (_, update) in enumerate(pending):
        saved.arrays.update(flatten(f"pending.{i}", update))
    saved.document.update(
        manifest=manifest,
        workers={str(w): k for w, k in loop.steps.items()},
        pending=[worker for worker, _ in pending],
        # A rejected update is None and has no arrays, so it is listed here.
        rejected_pending=[i for i, (_, update) in enumerate(pending) if update is None],
    )
    return saved


def restore_loop(loop: Loop, saved: Saved) -> None:
    """Set a fresh loop, and its master, to the state of a checkpoint."""
    master, document = loop.master, saved.document
    algorithm, problem = master.algorithm, loop.worker.problem
    theta0 = master.theta0
    # A throw-away update gives the shape into which the stored ones are filled.
    sample = sample_update(algorithm, problem, theta0, loop.seed)
    restore_master(master, saved)
    for worker, steps in document["workers"].items():
        w, local = int(worker), algorithm.init_worker(problem, theta0)
        loop.locals[w] = saved.tree(f"worker.{w}", local)
        loop.steps[w], loop.pending[w] = int(steps), deque()
    for i, w in enumerate(document["pending"]):
        rejected = i in document["rejected_pending"]
        update = (
            None if rejected else saved.tree(f"pending.{i}", sample, in_place=False)
        )
        if w not in loop.pending:
            raise DamagedFile("the checkpoint is damaged: it lacks a worker's state.")
        loop.pending[w].append(update)
