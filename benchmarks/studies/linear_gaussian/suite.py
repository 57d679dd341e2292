"""The linear Gaussian suite: ten spectra and three spreads of worker times, with the paper's timing.

A cell is a spectrum and a standard deviation sigma_w of worker times.  What is measured is the simulated
time to error 0.05 from theta0 ~ N(0, I).  Block L-BFGS is not tuned at all; the others are, all alike, by
the package's tuner: `BUDGET` trials per cell in the spaces of `asyncqn.lab.tuning.spaces`, where batch sizes,
memory and noise are searched too; the paper's setting, the best point of the cell before and the points
of `GOOD` come first.  Of its five best trials a rival is then given the one that does best on the test
seeds, a choice in its favour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from asyncqn import MBLBFGS, BlockLBFGS
from asyncqn.algorithms import make_algorithm
from asyncqn.algorithms.defaults import default_algorithm
from asyncqn.algorithms.paper.mb_lbfgs import Iterate
from asyncqn.cluster.cluster import Cluster
from asyncqn.lab.tuning.measure import TimeToTarget, time_to
from asyncqn.lab.tuning.problem import TuningProblem
from asyncqn.lab.tuning.tuner import PRUNE, Trial, tune
from asyncqn.models.linear_gaussian import LinearGaussian
from asyncqn.types import Algorithm, Array
from asyncqn_paper.problems import N_Y, Autoregressive, PowerLaw, Problem, Spectrum
from asyncqn_paper.records import Record
from asyncqn_paper.settings import MASTER, N_OMEGA, PAPER, cluster

# The error of the paper's Fig. 2, and the units of simulated time after which a run counts as failed.
EPSILON, LIMIT = 0.05, 9000.0
TEST_SEEDS = tuple(range(5))
# sigma_w^2: nearly equal workers, the paper's Fig. 3, and the largest of our Fig. 2.
VARIANCES = (1.0, 200.0, 900.0)
BUDGET, SHORTLIST = 40, 5
RIVALS = ("mb-lbfgs", "async-sgd", "as-lbfgs")


def _steps(strong: int, top: float, low: float, high: float) -> Spectrum:
    return Spectrum(weak=0, low=low, high=high, strong=strong, top=top, draw=7)


SPECTRA: dict[str, Problem] = {
    "one 300 over 1-1.2": _steps(1, 300.0, 1.0, 1.2),
    "one 300 over 2-6.5": _steps(1, 300.0, 2.0, 6.5),
    "three 1000 over 2-5": _steps(3, 1000.0, 2.0, 5.0),
    "five 1000 over 25-120": _steps(5, 1000.0, 25.0, 120.0),
    "power law 1000/k": PowerLaw(1000.0, draw=7),
    "AR(0.9)": Autoregressive(0.9, draw=7),
    "flat 30-120": _steps(0, 1.0, 30.0, 120.0),
    "ten 2000 over 20": _steps(10, 2000.0, 20.0, 20.0),
    "log-uniform 2-1000": _steps(0, 1.0, 2.0, 1000.0),
    "AR(0.99)": Autoregressive(0.99, draw=7),
}
"""The posterior precision's eigenvalues; the first six are those of the specification."""

# Points that did well on first acquaintance: every study tries them.
_PAIRS = {"cosine_floor": 0.3, "batch_share": 1 / 100, "overlap_share": 1 / 3, "epsilon_share": 1e-4}
GOOD: dict[str, list[dict[str, Any]]] = {
    "async-sgd": [{"r": r, "batch_share": share} for r in (0.4, 0.7, 1.2) for share in (1 / 100, 1 / 40)],
    "mb-lbfgs": [
        {
            **_PAIRS,
            "r": r,
            "first": 1.0,
            "timeout_share": 2.0,
            "quorum": 0.6,
            "cosine_floor": 0.0,
            "batch_share": share,
            "overlap_share": 1 / 2,
            "memory": 3,
        }
        for r in (0.3, 0.5, 1.0)
        for share in (1 / 100, 1 / 40, 1 / 20)
    ],
    "as-lbfgs": [
        {
            **_PAIRS,
            "gamma_share": 0.3,
            "H0": "fixed",
            "power": power,
            "r": r,
            "memory": memory,
            "temperature": 0.002,
        }
        for power, r in ((1.0, 0.3), (0.8, 0.1), (0.8, 0.33))
        for memory in (1, 3)
    ],
    "momentum-lbfgs": [
        {**_PAIRS, "gamma_share": 4.0, "H0": "fixed", "power": power, "r": r, "memory": memory}
        for power, r in ((1.0, 0.6), (0.8, 0.2), (0.8, 0.5))
        for memory in (1, 3)
    ],
}


def problem(spectrum: str) -> LinearGaussian:
    """Return the model with this spectrum in random directions."""
    return SPECTRA[spectrum].model()


@dataclass(frozen=True)
class ScaledMBLBFGS(MBLBFGS):
    """mb-L-BFGS that knows H0 = first_scale I before its first pair, so as not to lose rounds by H0 = I."""

    first_scale: float = 1.0

    def init(self, theta0: Array) -> Iterate:
        iterate = super().init(theta0)
        # The scale of H0, which the first pair replaces.
        iterate.memory.scale[0] = self.first_scale
        return iterate


def make(kind: str, parameters: Mapping[str, Any]) -> Algorithm:
    return ScaledMBLBFGS(**parameters) if kind == "mb-lbfgs" else make_algorithm(kind, dict(parameters))


def cluster_of(kind: str, parameters: Mapping[str, Any], workers: int, variance: float) -> Cluster:
    """Return the paper's timing, for the rows that a computation takes."""
    # The paper charges a gradient by its rows.
    rows = N_Y / parameters["blocks"] if kind == "block-lbfgs" else parameters.get("batch", N_OMEGA)
    return cluster(kind, workers, variance, rows)


def looks(kind: str) -> int:
    """Return the commits between two evaluations: every round or version, or every ten commits."""
    return 1 if kind in MASTER else 10


def time_of(
    kind: str,
    parameters: Mapping[str, Any],
    spectrum: str,
    variance: float,
    seed: int,
    *,
    workers: int = 40,
    limit: float = LIMIT,
) -> TimeToTarget:
    """Simulated time to epsilon from theta0 ~ N(0, I)."""
    return time_to(
        problem(spectrum),
        make(kind, parameters),
        cluster_of(kind, parameters, workers, variance),
        target=EPSILON,
        limit=limit,
        seed=seed,
        evaluate=looks(kind),
    )


@dataclass(frozen=True, kw_only=True)
class Cell(TuningProblem):
    """A rival in a cell of the suite."""

    workers: int = 40
    limit: float = LIMIT
    spectrum: str
    variance: float

    @property
    def goal(self) -> tuple[str, float]:
        return "error", EPSILON

    @property
    def evaluate(self) -> int:
        return looks(self.algorithm)

    @property
    def kept(self) -> Mapping[str, Any]:
        return {"rho": 0.0}

    def model(self) -> LinearGaussian:
        return problem(self.spectrum)

    def cluster(self, parameters: Mapping[str, Any]) -> Cluster:
        return cluster_of(self.algorithm, parameters, self.workers, self.variance)

    def first(self) -> dict[str, Any] | None:
        return dict(PAPER[self.algorithm]) if self.algorithm in PAPER else None

    def make(self, parameters: Mapping[str, Any]) -> Algorithm:
        return make(self.algorithm, parameters)

    def suggest(self, trial: Any, curvature: float, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
        given = super().suggest(trial, curvature, kept)
        if self.algorithm == "mb-lbfgs":
            # In units of the curvature, so that one range serves all spectra.
            given["first_scale"] = trial.suggest_float("first", 0.2, 2.0, log=True) / curvature
        return given


def tuned(cell: Cell, budget: int = BUDGET, warm: Mapping[str, Any] | None = None) -> list[Trial]:
    """The trials of a rival that arrived on every seed, fastest first; `warm` is a point to try early."""
    known = [*([warm] if warm else []), *GOOD[cell.algorithm]]
    return tune(cell, budget, known=known, processes=1).ranked


def test(kind: str, parameters: Mapping[str, Any], spectrum: str, variance: float, workers: int) -> Record:
    """Mean time and successes on the test seeds; a run that fails counts as `LIMIT`, in its favour."""
    outcomes = [time_of(kind, parameters, spectrum, variance, seed, workers=workers) for seed in TEST_SEEDS]
    times = [LIMIT if outcome.time is None else outcome.time for outcome in outcomes]
    return {
        "mean": float(np.mean(times)),
        "std": float(np.std(times, ddof=1)),
        "reached": sum(outcome.time is not None for outcome in outcomes),
        "runs": len(outcomes),
    }


def shortlisted(cell: Cell, trials: list[Trial]) -> Iterator[tuple[Record, Trial]]:
    """Yield the best few trials, each with its result on the test seeds."""
    for trial in trials[:SHORTLIST]:
        yield test(cell.algorithm, trial["parameters"], cell.spectrum, cell.variance, cell.workers), trial


def run_rivals(spectrum: str, budget: int = BUDGET, workers: int = 40) -> list[Record]:
    """Return one record per cell and rival: of its best few trials the one that does best on the test seeds.

    A rival that cannot come within `PRUNE` times the best one so far gets no time: only the best
    rival of a cell matters.
    """
    records: list[Record] = []
    warm: dict[str, Mapping[str, Any]] = {}
    for variance in VARIANCES:
        ceiling = LIMIT
        for kind in RIVALS:
            cell = Cell(algorithm=kind, workers=workers, limit=ceiling, spectrum=spectrum, variance=variance)
            trials = tuned(cell, budget, warm.get(kind))
            record: Record = {
                "kind": kind,
                "spectrum": spectrum,
                "sigma_w": math.sqrt(variance),
                "trials": budget,
                "tuning_mean": None,
                "mean": None,
                "std": None,
                "reached": 0,
                "runs": 0,
                "parameters": f"none below {ceiling:.0f}",
            }
            if trials:
                best, trial = min(shortlisted(cell, trials), key=lambda pair: float(pair[0]["mean"]))
                score = math.exp(trial["score"])
                # Later rivals stop where they can no longer be the best of the cell.
                ceiling = min(ceiling, PRUNE * score)
                # The best point at one spread is a good first guess at the next.
                warm[kind] = trials[0].get("point", warm.get(kind, {}))
                record |= {"tuning_mean": score, **best, "parameters": str(trial["parameters"])}
            records.append(record)
    return records


@cache
def block_settings(spectrum: str, workers: int) -> dict[str, Any]:
    """Block L-BFGS's parameters by its one rule, `default_algorithm`: from the problem and W alone."""
    algorithm = default_algorithm(problem(spectrum), workers)
    assert isinstance(algorithm, BlockLBFGS)
    return {"blocks": algorithm.blocks, "memory": algorithm.memory, "pieces": algorithm.pieces}


def run_blocks(spectrum: str, workers: int = 40) -> list[Record]:
    """Block L-BFGS in the cells of a spectrum, by its one rule."""
    settings = block_settings(spectrum, workers)
    return [
        {
            "kind": "block-lbfgs",
            "spectrum": spectrum,
            "sigma_w": math.sqrt(variance),
            "trials": 0,
            "tuning_mean": None,
            **test("block-lbfgs", settings, spectrum, variance, workers),
            "parameters": str(settings),
        }
        for variance in VARIANCES
    ]
