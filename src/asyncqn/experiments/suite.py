"""The linear Gaussian suite: ten spectra, three spreads of worker times, every rival tuned alike.

A cell is a spectrum and a standard deviation sigma_w of worker times.  In each cell every rival gets
`BUDGET` trials: the paper's setting, the best of the cell before, a grid of good points, random draws,
then variations of the best so far.  A trial is judged by the mean time to epsilon on the tuning seeds and given up once
it takes half as long again as the best, its own or an earlier rival's.  Of its five best trials a
rival is then given the one that does best on the test seeds, a choice in its favour.  Block L-BFGS
is not tuned at all.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms import MBLBFGS, make_algorithm
from asyncqn.algorithms.mb_lbfgs import Iterate
from asyncqn.algorithms.stability import largest_curvature
from asyncqn.cluster import Cluster
from asyncqn.experiments.measure import Outcome, time_to
from asyncqn.experiments.records import Record
from asyncqn.experiments.settings import MESSAGE, PAPER
from asyncqn.potentials.linear_gaussian import LinearGaussian
from asyncqn.types import Array

DIM, N_Y = 100, 600
EPSILON, LIMIT = 0.05, 9000.0
BUDGET, RANDOM_SHARE = 40, 0.5
TUNING_SEEDS, SHORTLIST, PRUNE = (1001, 1002, 1003), 5, 1.5
TEST_SEEDS = tuple(range(5))
SPREADS = (1.0, math.sqrt(200.0), 30.0)
RIVALS = ("mb-lbfgs", "async-sgd", "as-lbfgs")

Eigenvalues = npt.NDArray[np.float64]


def _over(count: int, top: float, low: float, high: float) -> Eigenvalues:
    return np.concatenate([np.full(count, top), np.geomspace(low, high, DIM - count)])


def _ar(correlation: float) -> Eigenvalues:
    """I + A'A / sigma_x^2 in the mean, for rows with correlation r^|i-j| between coordinates."""
    lag = np.abs(np.subtract.outer(np.arange(DIM), np.arange(DIM)))
    return np.asarray(1.0 + N_Y / 10.0 * np.linalg.eigvalsh(correlation**lag))


SPECTRA: dict[str, Eigenvalues] = {
    "one 300 over 1-1.2": _over(1, 300.0, 1.0, 1.2),
    "one 300 over 2-6.5": _over(1, 300.0, 2.0, 6.5),
    "three 1000 over 2-5": _over(3, 1000.0, 2.0, 5.0),
    "five 1000 over 25-120": _over(5, 1000.0, 25.0, 120.0),
    "power law 1000/k": 1000.0 / np.arange(1.0, DIM + 1.0),
    "AR(0.9)": _ar(0.9),
    "flat 30-120": _over(0, 0.0, 30.0, 120.0),
    "ten 2000 over 20": _over(10, 2000.0, 20.0, 20.0),
    "log-uniform 2-1000": _over(0, 0.0, 2.0, 1000.0),
    "AR(0.99)": _ar(0.99),
}
"""The posterior precision's eigenvalues; the first six are those of the specification."""


@cache
def problem(spectrum: str) -> LinearGaussian:
    """The model with this spectrum in random directions."""
    return LinearGaussian.random(seed=7, spectrum=SPECTRA[spectrum])


@cache
def _curvature(spectrum: str) -> float:
    return largest_curvature(problem(spectrum), np.zeros(DIM))


@dataclass(frozen=True)
class ScaledMBLBFGS(MBLBFGS):
    """mb-L-BFGS that knows H0 = first_scale I before its first pair, so as not to lose rounds by H0 = I."""

    first_scale: float = 1.0

    def init(self, theta0: Array) -> Iterate:
        iterate = super().init(theta0)
        iterate.memory.scale[0] = self.first_scale
        return iterate


def master_waits(kind: str) -> bool:
    """Whether commits are whole rounds or versions."""
    return kind in ("mb-lbfgs", "block-lbfgs")


def cluster(kind: str, rows: float, workers: int, std: float) -> Cluster:
    """The paper's timing for computations on `rows` data points: mu_w = 1000 rows / N_Y.

    as-L-BFGS takes 60 more for its products, and no time at the master; mb-L-BFGS and Block L-BFGS
    take mu_m = 30.
    """
    mean = 1000.0 * rows / N_Y + (60.0 if kind == "as-lbfgs" else 0.0)
    master = 30.0 if master_waits(kind) else 0.0
    return Cluster(workers, worker_mean=mean, worker_std=std, message=MESSAGE, master=master)


def time_of(
    kind: str, parameters: dict[str, Any], spectrum: str, std: float, seed: int, *, workers: int = 40,
    limit: float = LIMIT,
) -> Outcome:  # fmt: skip
    """Simulated time to epsilon from theta0 ~ N(0, I), looked at every round or every ten commits."""
    algorithm = ScaledMBLBFGS(**parameters) if kind == "mb-lbfgs" else make_algorithm(kind, parameters)
    rows = N_Y / parameters["blocks"] if kind == "block-lbfgs" else parameters["batch"]
    return time_to(
        problem(spectrum), algorithm, cluster(kind, rows, workers, std),
        target=EPSILON, limit=limit, seed=seed, evaluate=1 if master_waits(kind) else 10,
    )  # fmt: skip


# What is searched: name -> (low, high) on a logarithmic axis, or a list of choices.
SPACES: dict[str, dict[str, tuple[float, float] | list[Any]]] = {
    "async-sgd": {"r": (0.1, 6.0), "batch": [1, 3, 6, 15, 30]},
    "mb-lbfgs": {
        "h": (0.1, 1.5), "first": (0.2, 2.0), "timeout": (1.0, 100.0), "quorum": (0.2, 1.0),
        "cosine_floor": [0.0, 0.3], "batch": [6, 15, 30, 60, 120],
        "kept": [1 / 3, 1 / 2, 5 / 6], "memory": [2, 3, 5, 10],
    },
    "as-lbfgs": {
        "share": (0.05, 2.0), "c": (0.1, 30.0), "r": (0.01, 5.0), "fixed": [True, False],
        "cosine_floor": [0.0, 0.3, 0.5], "batch": [6, 15, 30], "kept": [1 / 3, 1 / 2, 5 / 6],
        "memory": [1, 3, 5], "beta": [500.0, math.inf],
    },
}  # fmt: skip


# Points that did well on first acquaintance, as a grid: every cell begins with them.
GOOD: dict[str, list[dict[str, Any]]] = {
    "async-sgd": [{"r": r, "batch": batch} for r in (0.6, 1.0, 1.5) for batch in (1, 3, 6)],
    "mb-lbfgs": [
        {"h": h, "first": 1.0, "timeout": 20.0, "quorum": 0.6, "cosine_floor": 0.0, "batch": batch,
         "kept": 1 / 2, "memory": 3}
        for h in (0.3, 0.5, 1.0) for batch in (6, 15, 30)
    ],
    "as-lbfgs": [
        {"share": 0.3, "c": c, "r": r, "fixed": True, "cosine_floor": 0.3, "batch": 6, "kept": 1 / 3,
         "memory": memory, "beta": 500.0}
        for c, r in ((1.0, 0.3), (3.0, 0.3), (3.0, 1.0)) for memory in (1, 3)
    ],
}  # fmt: skip


def parameters_of(kind: str, point: dict[str, Any], spectrum: str, workers: int) -> dict[str, Any]:
    """The algorithm's parameters at a point of its search space.

    With c_1 the largest curvature: first_scale = first / c_1.  a-SGD: h = r / (c_1 W), for r near 1.6
    is the limit under equal delays.  as-L-BFGS: gamma = share / W; initial_scale c / c_1; h through
    r = 2 W h initial_scale^2 c_1 / gamma, of order one.
    """
    p, curvature = dict(point), _curvature(spectrum)
    if kind == "async-sgd":
        return {"h": p["r"] / (curvature * workers), "batch": p["batch"]}
    overlap = max(1, min(p["batch"] - 1, round(p.pop("kept") * p["batch"])))
    if kind == "mb-lbfgs":
        first_scale = p.pop("first") / curvature
        return {**p, "overlap": overlap, "first_scale": first_scale}
    gamma, c = p["share"] / workers, p["c"] / curvature
    return {
        "h": p["r"] * gamma / (2 * workers * c * c * curvature), "gamma": gamma, "beta": p["beta"],
        "initial_scale": c if p["fixed"] else "pair", "cosine_floor": p["cosine_floor"],
        "batch": p["batch"], "overlap": overlap, "memory": p["memory"],
    }  # fmt: skip


def _draw(kind: str, rng: np.random.Generator, best: dict[str, Any] | None) -> dict[str, Any]:
    """A random point, or a variation of `best`: a factor of about e^0.4, each choice anew by chance 1/4."""
    point = {}
    for name, axis in SPACES[kind].items():
        if isinstance(axis, list):
            new = axis[int(rng.integers(len(axis)))]
            point[name] = new if best is None or rng.random() < 0.25 else best[name]
        else:
            low, high = math.log(axis[0]), math.log(axis[1])
            drawn = rng.uniform(low, high) if best is None else math.log(best[name]) + 0.4 * rng.normal()
            point[name] = math.exp(min(max(drawn, low), high))
    return point


def run_rivals(spectrum: str, budget: int = BUDGET, workers: int = 40) -> list[Record]:
    """One record per cell and rival: of its best few trials the one that does best on the test seeds.

    A rival that cannot come within `PRUNE` times the best one so far gets no time: only the best
    rival of a cell matters.
    """
    records: list[Record] = []
    warm: dict[str, Point | None] = {}
    for spread in SPREADS:
        ceiling = LIMIT
        for kind in RIVALS:
            trials = tuned(kind, spectrum, spread, budget, workers, warm.get(kind), ceiling)
            warm[kind] = trials[0][2] if trials else warm.get(kind)
            record = {"kind": kind, "spectrum": spectrum, "sigma_w": spread, "trials": budget}
            tested = [
                (test(kind, parameters, spectrum, spread, workers), score, parameters)
                for score, parameters, _ in trials[:SHORTLIST]
            ]
            if tested:
                best, score, parameters = min(tested, key=lambda entry: entry[0]["mean"])
                ceiling = min(ceiling, PRUNE * score)
                record |= {"tuning_mean": score, **best, "parameters": str(parameters)}
            else:
                record |= {"tuning_mean": None, "mean": None, "std": None, "reached": 0, "runs": 0,
                           "parameters": f"none below {ceiling:.0f}"}  # fmt: skip
            records.append(record)
    return records


Point = dict[str, Any]
Trial = tuple[float, dict[str, Any], Point | None]


def tuned(
    kind: str, spectrum: str, spread: float, budget: int, workers: int, warm: Point | None, ceiling: float
) -> list[Trial]:
    """(time, parameters, point) of the trials that reached epsilon on every tuning seed, best first."""
    rng = np.random.Generator(np.random.Philox(key=[int(spread), zlib.crc32(f"{kind} {spectrum}".encode())]))
    known = [*([warm] if warm is not None else []), *GOOD[kind]]
    trials: list[Trial] = []
    for trial in range(budget):
        best, _, best_point = trials[0] if trials else (math.inf, None, None)
        point = _draw(kind, rng, best_point if trial >= RANDOM_SHARE * budget else None)
        point = known[trial - 1] if 1 <= trial <= len(known) else point
        parameters = PAPER[kind] if trial == 0 else parameters_of(kind, point, spectrum, workers)
        score = 0.0
        for seed in TUNING_SEEDS:
            outcome = time_of(kind, parameters, spectrum, spread, seed, workers=workers,
                              limit=min(ceiling, PRUNE * best))  # fmt: skip
            score += math.inf if outcome.time is None else outcome.time / len(TUNING_SEEDS)
            if score == math.inf:
                break
        if score < math.inf:
            trials = sorted([*trials, (score, parameters, point if trial else None)], key=lambda t: t[0])
    return trials


def test(kind: str, parameters: dict[str, Any], spectrum: str, spread: float, workers: int) -> Record:
    """Mean time and successes on the test seeds; a run that fails counts as `LIMIT`, in its favour."""
    outcomes = [time_of(kind, parameters, spectrum, spread, seed, workers=workers) for seed in TEST_SEEDS]
    times = [LIMIT if outcome.time is None else outcome.time for outcome in outcomes]
    return {
        "mean": float(np.mean(times)), "std": float(np.std(times, ddof=1)),
        "reached": sum(outcome.time is not None for outcome in outcomes), "runs": len(outcomes),
    }  # fmt: skip


def run_blocks(spectrum: str, workers: int = 40, parameters: dict[str, Any] | None = None) -> list[Record]:
    """Block L-BFGS in the cells of a spectrum, by its one rule: as many blocks as workers."""
    settings = {"blocks": workers, **(parameters or {})}
    return [
        {"kind": "block-lbfgs", "spectrum": spectrum, "sigma_w": spread, "trials": 0, "tuning_mean": None,
         **test("block-lbfgs", settings, spectrum, spread, workers), "parameters": str(settings)}
        for spread in SPREADS
    ]  # fmt: skip
