"""The linear Gaussian suite: ten spectra and three spreads of worker times, with the paper's timing.

A cell is a spectrum and a standard deviation sigma_w of worker times.  What is measured is the simulated
time to error 0.05 from theta0 ~ N(0, I).  Block L-BFGS is not tuned at all; `experiments.rivals` tunes
the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms import MBLBFGS, BlockLBFGS, make_algorithm
from asyncqn.algorithms.defaults import default_algorithm
from asyncqn.algorithms.quasi_newton.mb_lbfgs import Iterate
from asyncqn.algorithms.stability import largest_curvature
from asyncqn.core.cluster import Cluster
from asyncqn.paper.measure import Outcome, time_to
from asyncqn.paper.records import Record
from asyncqn.paper.settings import MESSAGE
from asyncqn.potentials.linear_gaussian import LinearGaussian
from asyncqn.types import Array

DIM, N_Y = 100, 600
EPSILON, LIMIT = 0.05, 9000.0
TEST_SEEDS = tuple(range(5))
SPREADS = (1.0, math.sqrt(200.0), 30.0)

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
def curvature(spectrum: str) -> float:
    """The largest eigenvalue, as the algorithms would estimate it."""
    return largest_curvature(problem(spectrum), np.zeros(DIM))


@dataclass(frozen=True)
class ScaledMBLBFGS(MBLBFGS):
    """mb-L-BFGS that knows H0 = first_scale I before its first pair, so as not to lose rounds by H0 = I."""

    first_scale: float = 1.0

    def init(self, theta0: Array) -> Iterate:
        iterate = super().init(theta0)
        iterate.memory.scale[0] = self.first_scale
        return iterate


PRODUCTS = {"as-lbfgs": 60.0, "momentum-lbfgs": 30.0}


def master_waits(kind: str) -> bool:
    """Whether commits are whole rounds or versions."""
    return kind in ("mb-lbfgs", "block-lbfgs")


def cluster(kind: str, rows: float, workers: int, std: float) -> Cluster:
    """The paper's timing for computations on `rows` data points: mu_w = 1000 rows / N_Y.

    as-L-BFGS takes 60 more for its products, Momentum L-BFGS half of that for its one; mb-L-BFGS and
    Block L-BFGS take mu_m = 30.
    """
    mean = 1000.0 * rows / N_Y + PRODUCTS.get(kind, 0.0)
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


def test(kind: str, parameters: dict[str, Any], spectrum: str, spread: float, workers: int) -> Record:
    """Mean time and successes on the test seeds; a run that fails counts as `LIMIT`, in its favour."""
    outcomes = [time_of(kind, parameters, spectrum, spread, seed, workers=workers) for seed in TEST_SEEDS]
    times = [LIMIT if outcome.time is None else outcome.time for outcome in outcomes]
    return {
        "mean": float(np.mean(times)), "std": float(np.std(times, ddof=1)),
        "reached": sum(outcome.time is not None for outcome in outcomes), "runs": len(outcomes),
    }  # fmt: skip


def block_settings(spectrum: str, workers: int) -> dict[str, Any]:
    """Block L-BFGS's parameters by its one rule, `default_algorithm`: from the problem and W alone."""
    algorithm = default_algorithm(problem(spectrum), workers)
    assert isinstance(algorithm, BlockLBFGS)
    return {"blocks": algorithm.blocks, "pieces": algorithm.pieces}


def run_blocks(spectrum: str, workers: int = 40, parameters: dict[str, Any] | None = None) -> list[Record]:
    """Block L-BFGS in the cells of a spectrum, by its one rule."""
    settings = {**block_settings(spectrum, workers), **(parameters or {})}
    return [
        {"kind": "block-lbfgs", "spectrum": spectrum, "sigma_w": spread, "trials": 0, "tuning_mean": None,
         **test("block-lbfgs", settings, spectrum, spread, workers), "parameters": str(settings)}
        for spread in SPREADS
    ]  # fmt: skip
