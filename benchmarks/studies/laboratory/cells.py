"""The cells of the laboratory: problems, clusters, and the time to a target in one of them.

Time is in passes: what W workers need for the gradients of all rows, n c / W with c = 1 the time of a row.  A
message takes 10 (half each way), a commit 0.1 of the master; the gradient of m rows takes m on average.  The
four laws have the same mean rate:

    lognormal   standard deviation 0.3 of the mean
    speeds      the same, and workers whose speeds lie between 1 and 100
    die         the same, and every second worker is gone after 0.3 passes
    pareto      shape 1.5: no variance

The gap is (U - U*) / (U(theta0) - U*).

    python -m benchmarks.studies.laboratory.cells       not convex: plateaus, and where other starts end
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.core.stages import Closes, Stage
from asyncqn.types import Algorithm, Array, Progress
from asyncqn_recommender import MatrixFactorization, ProfiledFactorization
from benchmarks.studies.large_data.models import TanhNetwork

GAPS = (0.05, 0.01, 0.001)
MESSAGE, MASTER, SPREAD = 10.0, 0.1, 0.3
LAWS = ("lognormal", "speeds", "die", "pareto")
LOOKS, FINE, FINER = 60, 240, 960
"""Evaluations of U in a trial and in a run that is kept (`FINER`: where U is not convex, and runs are long):
times are known to one in so many of the longest."""
ROWS, DIM = 60_000, 50


def _logistic(draw: int, condition: float, correlation: float) -> aq.LogisticRegression:
    return aq.LogisticRegression.random(ROWS, DIM, condition, correlation, seed=draw)


def _linear(draw: int) -> aq.LinearGaussian:
    """Rows of N(0, C), where n C has eigenvalues from 600 to 60,000 in random directions; noise 1."""
    rng = np.random.default_rng(draw)
    turn, _ = np.linalg.qr(rng.standard_normal((DIM, DIM)))
    A = rng.standard_normal((ROWS, DIM)) * np.sqrt(np.geomspace(600.0, 60_000.0, DIM) / ROWS) @ turn
    return aq.LinearGaussian(A, A @ rng.standard_normal(DIM) + rng.standard_normal(ROWS), 1.0)


def _rotated(draw: int) -> aq.LogisticRegression:
    """The features of the ill-conditioned problem, turned by a random orthogonal matrix."""
    plain = _logistic(draw, 100.0, 0.9)
    turn, _ = np.linalg.qr(np.random.default_rng(1 + draw).standard_normal((DIM, DIM)))
    return aq.LogisticRegression(plain.X @ turn, plain.y, plain.prior)


def _ratings(draw: int) -> dict[str, Any]:
    """300 users, 200 items, 20,000 ratings of a pattern of rank 2 with noise."""
    rng = np.random.default_rng(2 + draw)
    pairs = rng.choice(300 * 200, 20_000, replace=False)
    users, items = pairs // 200, pairs % 200
    rows = rng.standard_normal((300, 2)), rng.standard_normal((200, 2))
    values = 3.5 + (rows[0][users] * rows[1][items]).sum(axis=1) + 0.5 * rng.standard_normal(len(users))
    sizes = {"n_users": 300, "n_items": 200, "rank": 3, "dtype": "float64"}
    return {"users": users, "items": items, "values": values, **sizes}


PROBLEMS: dict[str, Callable[[int], Any]] = {
    "linear": _linear,
    "logistic": lambda draw: _logistic(draw, 10.0, 0.5),
    "ill": lambda draw: _logistic(draw, 100.0, 0.9),
    "rotated": _rotated,
    "network": lambda draw: TanhNetwork.random(20_000, inputs=10, hidden=5, seed=draw),
    "factorization": lambda draw: MatrixFactorization(**_ratings(draw)),
    "profiled": lambda draw: ProfiledFactorization(**_ratings(draw)),
}
"""By name, of the number of a draw: 0 is the one that rivals are tuned on and constants were chosen on."""
CONVEX = ("linear", "logistic", "ill", "rotated")


@dataclass(frozen=True)
class Problem:
    """A problem with its start and the two values between which a gap is measured."""

    name: str
    model: Any
    theta0: Array
    start: float
    lowest: float
    row: float = 1.0
    """The time of a row on average."""

    def level(self, gap: float) -> float:
        return self.lowest + gap * (self.start - self.lowest)

    def gap(self, value: float) -> float:
        return (value - self.lowest) / (self.start - self.lowest)


@lru_cache(maxsize=4)
def problem(name: str, draw: int = 0) -> Problem:
    """U* is that of a converged run of the default, on one simulated worker; not convex: the best of five.

    With users eliminated, the start (of the items), the levels and the time of a rating are those of
    "factorization"; a row is a user.
    """
    model = PROBLEMS[name](draw)
    if name == "profiled":
        joint = problem("factorization", draw)
        row = joint.model.n_data / model.n_data
        return Problem(name, model, joint.theta0[: model.dim].copy(), joint.start, joint.lowest, row)
    zero = name in ("logistic", "ill", "rotated")
    theta0 = np.zeros(model.dim) if zero else model.initial(np.random.default_rng(5))
    engine = aq.Simulator(aq.Cluster(1))
    ends = [aq.minimize(model, engine=engine, theta0=theta0, check=False).fun]
    if name not in CONVEX:
        for memory in (3, 10, 30, 100):
            algorithm = aq.BlockLBFGS(1, memory)
            ends.append(aq.minimize(model, algorithm, engine=engine, theta0=theta0, check=False).fun)
    return Problem(name, model, theta0, float(model.value(theta0)), min(ends))


def cluster(law: str, workers: int, n_data: int, row: float = 1.0) -> aq.Cluster:
    """The gradient of a row takes `row` on average; times are stretched to a step's rows."""
    if law == "pareto":
        pareto = aq.Pareto(mean=row, shape=1.5)
        return aq.Cluster(workers, times=pareto, message=MESSAGE, master=MASTER, rows=1)
    slowness = np.geomspace(0.1, 10.0, workers) if law == "speeds" else np.ones(workers)
    mean = row * slowness * np.mean(1.0 / slowness)
    deaths = dict.fromkeys(range(1, workers, 2), 0.3 * n_data * row / workers) if law == "die" else {}
    return aq.Cluster(workers, mean.tolist(), (SPREAD * mean).tolist(), MESSAGE, MASTER, deaths, rows=1)


def first_stage(algorithm: Algorithm) -> Stage:
    """The first that has commits: a warm-up may have none."""
    return next(stage for stage in algorithm.stages if stage.commits != 0)


def rows_of_a_step(algorithm: Algorithm, n_data: int) -> float:
    """Of the first stage."""
    stage = first_stage(algorithm)
    return float(algorithm.batch) if stage.blocks is None else n_data / stage.blocks  # type: ignore[attr-defined]


def times_to(
    name: str, law: str, workers: int, algorithm: Algorithm, seed: int, most: float, looks: int = LOOKS,
    draw: int = 0,
) -> tuple[list[float], aq.Run]:  # fmt: skip
    """Passes to each gap (infinite: not within `most` passes), and the run.

    It ends at the last gap, or where more than half is left after a quarter of `most`, or a tenth after half.
    Where U is not convex a plateau may come first: it ends where nothing is below the start after a quarter.
    """
    told = problem(name, draw)
    model, n = told.model, told.model.n_data
    rows = rows_of_a_step(algorithm, n)
    unit = n * told.row / workers
    stage, before = first_stage(algorithm), 0
    if stage.closes is Closes.ALL_PARTS:
        commits, evaluate = 2000, 1
    else:
        a_pass = min(workers / (rows * told.row + MESSAGE), 1.0 / MASTER) * unit / (stage.answers or 1)
        commits = math.ceil(1.5 * most * a_pass) + 50
        before = sum(each.commits or 0 for each in algorithm.stages)
        commits = min(commits, before + 100) if before else commits
        evaluate = max(1, int(most * a_pass / looks))

    least = math.inf

    def look(progress: Progress) -> None:
        nonlocal least
        passes, gap = progress.time / unit, told.gap(progress.metrics["fun"])
        if name in CONVEX:
            hopeless = (passes > most / 4 and gap > 0.5) or (passes > most / 2 and gap > 0.1)
        else:  # tried points count, and one may lie above the start
            least = min(least, gap)
            hopeless = passes > most / 4 and least >= 1.0
        if hopeless:
            raise StopIteration

    run = aq.minimize(
        model, algorithm, engine=aq.Simulator(cluster(law, workers, n, told.row)), theta0=told.theta0,
        seed=seed, commits=commits, evaluate=evaluate, max_time=most * unit, target=told.level(GAPS[-1]),
        tol=None, check=False, callback=look, keep=1 if before else None,
    )  # fmt: skip
    fun, time = run.metrics["fun"], run.metrics["time"] / unit
    if run.keep is not None:  # exact passes are few, and each is looked at
        exact = slice(before, len(run.keep))
        fun = np.concatenate([fun, [model.value(theta) for theta in run.keep.theta[exact]]])
        time = np.concatenate([time, run.schedule.commit_times()[exact] / unit])
        order = np.argsort(time, kind="stable")
        fun, time = fun[order], time[order]
    found = [np.flatnonzero(fun <= told.level(gap)) for gap in GAPS]
    return [float(time[k[0]]) if k.size else math.inf for k in found], run


def main() -> None:
    """Exact L-BFGS on one worker: gaps after so many passes, and those at the ends of eight starts."""
    engine = aq.Simulator(aq.Cluster(1))
    for name in ("network", "factorization"):
        for draw in (0, 1):
            here = problem(name, draw)
            run = aq.minimize(
                here.model, aq.BlockLBFGS(1, 10), engine=engine, theta0=here.theta0, check=False
            )
            gaps = [here.gap(value) for value in run.metrics["fun"]]
            print(
                name,
                draw,
                {k: round(float(gaps[k]), 4) for k in (2, 5, 10, 15, 20, 25, 30, 40, 60) if k < len(gaps)},
            )
            starts = [here.model.initial(np.random.default_rng(seed)) for seed in range(8)]
            runs = [
                aq.minimize(here.model, aq.BlockLBFGS(1, 30), engine=engine, theta0=start, check=False)
                for start in starts
            ]
            print("  ends of eight starts:", [round(here.gap(run.fun), 5) for run in runs])


if __name__ == "__main__":
    main()
