"""Ratings for Figs. 4 and 5: MovieLens 1M, a time axis from measured steps, and runs on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn import Cluster, Simulator, starting_point
from asyncqn.types import Array, Request
from asyncqn_paper.records import Record
from asyncqn_paper.rules import Estimate, estimate
from asyncqn_paper.settings import EVERYONE, PAYERS, printed
from asyncqn_recommender.data import load
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization

RATINGS = "ml-1m"
TABLE = printed(RATINGS)
RANK = 5
SPREAD = 0.3
"""Standard deviation of a worker's time over its mean, our own choice."""
STARTS = {"prior": "from the prior N(0, 1)", "mean": "near the mean rating"}


class Timing(NamedTuple):
    """Seconds of a worker's step, of a commit, and of the messages of one step, both ways."""

    worker: float
    master: float
    message: float


TIMINGS = {
    "async-sgd": Timing(2.13e-4, 1.9e-5, 6.351e-4),
    "mb-lbfgs": Timing(3.91e-4, 4.52e-4, 9.526e-4),
    "as-lbfgs": Timing(7.83e-4, 3.6e-5, 1.2701e-3),
}
"""Processor times of a step and of a commit on the 1M set, the medians of twelve on the machine of the
published results, and messages at 10 Gbit/s: four vectors of theta's size for as-L-BFGS, three for
mb-L-BFGS, two for a-SGD.  The numbers of a run depend on them only through the schedule."""
PRINTED_TIMEOUT = 0.4
"""T_mb of the paper on the 1M set, in seconds."""


def timing_of(kind: str, slow: bool) -> Timing:
    """Return the times of a method as measured, or with gradients as slow as the printed timeout suggests.

    A slow batch takes 1/1.2 of the timeout.  What as-L-BFGS and mb-L-BFGS compute on the overlap is added in
    proportion to its rows, and products cost nothing.
    """
    if not slow:
        return TIMINGS[kind]
    # The timeout is 1.2 mean times of a worker.
    batch = PRINTED_TIMEOUT / 1.2
    # 4/3: the overlap is a third of the batch, and its gradient is computed twice.
    worker = batch if kind == "async-sgd" else batch * 4.0 / 3.0
    return TIMINGS[kind]._replace(worker=worker)


@cache
def model() -> MatrixFactorization:
    """Return the paper's MAP objective."""
    return MatrixFactorization.from_ratings(load(RATINGS), RANK)


def start(which: str, seed: int) -> Array:
    """Return where a run begins: a draw of the model's prior N(0, 1), or rows near the mean rating."""
    problem = model()
    if which == "mean":
        return starting_point(problem, None, seed)
    # A stream of its own, so that the start does not depend on what else a seed is used for.
    rng = np.random.Generator(np.random.Philox(key=[seed, 0x9F10]))
    return np.asarray(rng.standard_normal(problem.dim).astype(problem.dtype))


def measured_cluster(timing: Timing, workers: int, payer: str = EVERYONE) -> Cluster:
    """Return a cluster with these times, for all methods alike.

    A message takes half of `timing.message`; if it is paid for, it occupies the master's link for that time.
    """
    link, sending = PAYERS[payer]
    # The time of a message is the same whether it is paid or not: what the link keeps is taken from the
    # latency.
    kept = timing.message / 2.0 if link else 0.0
    return Cluster(
        workers,
        timing.worker,
        SPREAD * timing.worker,
        message=timing.message - kept * (1.0 if sending == "free" else 2.0),
        master=timing.master,
        link=kept,
        sending=sending,
    )


def run_on(machines: Cluster, request: Request) -> list[Record]:
    """Return RMSE and gradient norm along a simulated run; None where they are not finite."""
    run = Simulator(machines).minimize(request)
    records = []
    for k in range(run.metrics.rows):
        row = run.metrics.row(k)
        record: Record = {"seed": request.seed, "commit": int(row["commit"])}
        record["time"] = float(row["time"])
        for name in ("rmse", "grad_norm"):
            record[name] = float(row[name]) if math.isfinite(row[name]) else None
        records.append(record)
    return records


Column = npt.NDArray[np.float64]


class Path(NamedTuple):
    """The rows of one run as columns; what is not finite is NaN."""

    time: Column
    commit: Column
    rmse: Column
    grad_norm: Column

    @classmethod
    def of(cls, records: Sequence[Record], axis: str, end: float) -> Path:
        """Return the path; if it ended before `end` of an axis, it diverged, and a row of NaN is added."""
        rows = list(records)
        if rows[-1][axis] < end:
            rows.append({**rows[-1], "rmse": None, "grad_norm": None})
        columns = []
        for name in cls._fields:
            values = [row[name] for row in rows]
            columns.append(np.array([np.nan if v is None else v for v in values]))
        return cls(*columns)

    @property
    def last(self) -> float:
        """The last RMSE; infinite where the run diverged."""
        value = float(self.rmse[-1])
        # A run that ends at more than twice the RMSE of its start has diverged, even if its numbers are finite.
        return value if value <= 2.0 * self.rmse[0] else math.inf

    @property
    def stable(self) -> float:
        """1 if the last RMSE is below the first and near the least, else 0."""
        least = np.nanmin(self.rmse)
        return float(self.rmse[-1] < self.rmse[0] and self.rmse[-1] <= least + 0.1)

    def first_below(self, target: float, axis: str = "time") -> float | None:
        """Return when the RMSE first was at most `target`, interpolated between rows; None: never."""
        below = np.flatnonzero(self.rmse <= target)
        if not below.size:
            return None
        along = getattr(self, axis)
        k = int(below[0])
        if k == 0 or np.isnan(self.rmse[k - 1]):
            return float(along[k])
        # Between two rows the RMSE falls along a line.
        fall = max(self.rmse[k - 1] - self.rmse[k], 1e-12)
        share = (self.rmse[k - 1] - target) / fall
        return float(along[k - 1] + share * (along[k] - along[k - 1]))


def race(
    slow: Sequence[Path], quick: Sequence[Path], axis: str = "time"
) -> Estimate | str:
    """Estimate log(time of `slow` / time of `quick`) to the RMSE at which the slower ends, run by run.

    A run that diverged is stopped early, so its own last time is no limit: it counts as the longest run of
    both sets, as the rules ask of runs that do not arrive.
    """
    limit = max(float(getattr(path, axis)[-1]) for path in (*slow, *quick))
    logs = []
    tied = 0
    for pair in zip(slow, quick, strict=True):
        ends = [path.last for path in pair if math.isfinite(path.last)]
        if not ends:
            return "a pair of runs diverged"
        times = []
        for path in pair:
            reached = None
            if math.isfinite(path.last):
                reached = path.first_below(max(ends), axis)
            times.append(limit if reached is None else reached)
        tied += times == [0.0, 0.0]
        # A run that starts at the target has the time 0.
        logs.append(math.log(max(times[0], 1e-9) / max(times[1], 1e-9)))
    return "both start there" if 2 * tied >= len(logs) else estimate(logs)
