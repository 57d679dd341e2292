"""The paper's problems as the tuner sees them: linear Gaussian ones, and sets of ratings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncqn import Cluster
from asyncqn.errors import BadInput, require
from asyncqn.lab import FixedTrial, TuningProblem, read_study
from asyncqn.types import Problem
from asyncqn_paper import movielens
from asyncqn_paper.movielens import Timing
from asyncqn_paper.problems import STANDARD, AlikeRows, Spectrum
from asyncqn_paper.settings import N_OMEGA, N_Y, NOBODY, PAPER, algorithm, cluster
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization

EVALUATIONS, FEWER, LARGE = 200, 50, 5_000_000
"""Evaluations of a run of ratings until the limit, and of one on a `LARGE` set: an exact RMSE costs as much
as dozens of steps."""


TUNED = Path(__file__).resolve().parent / "tuned"
"""The results of tuning that come with the package."""


def tuned(name: str) -> dict[str, Any]:
    """Return a study of the tuner, by the name of its file: {"best": {"parameters": ...}, "command": ...}."""
    path = TUNED / f"{name}.json"
    if not path.is_file():
        raise BadInput(
            f"there is no study {path}: make it with python -m asyncqn_paper tune --output {path}."
        )
    return read_study(path)


def _kept(first: Mapping[str, Any]) -> dict[str, Any]:
    """Of the paper's parameters all but those that are tuned."""
    return {name: value for name, value in first.items() if name not in ("h", "gamma", "timeout", "rho")}


@dataclass(frozen=True, kw_only=True)
class GaussianProblem(TuningProblem):
    """A linear Gaussian problem on the paper's simulated cluster: time to the relative error epsilon."""

    workers: int = 40
    variance: float = 200.0
    problem: Spectrum | AlikeRows = STANDARD
    epsilon: float = 0.05
    limit: float = 9000.0
    payer: str = NOBODY
    """Who pays for messages: `settings.PAYERS`."""

    @property
    def goal(self) -> tuple[str, float]:
        return "error", self.epsilon

    @property
    def kept(self) -> Mapping[str, Any]:
        return {**_kept(self.first() or {}), "rho": 0.0}

    def model(self) -> Problem:
        return self.problem.model()

    def cluster(self, parameters: Mapping[str, Any]) -> Cluster:
        # A block method reads a part of the data per step, a stochastic one its batch.
        rows = N_Y / parameters["parts"] if "parts" in parameters else parameters.get("batch", N_OMEGA)
        return cluster(self.algorithm, self.workers, self.variance, rows, self.payer)

    def first(self) -> dict[str, Any] | None:
        return dict(PAPER[self.algorithm]) if self.algorithm in PAPER else None


@dataclass(frozen=True, kw_only=True)
class RatingsProblem(TuningProblem):
    """Factorization of a named set, on a cluster with these times in seconds: time to the RMSE `rmse`.

    `rho`: keep rho at this value; None searches it.  The limit in simulated seconds bounds the
    commits of a trial.
    """

    ratings: str
    worker: float
    master: float
    message: float
    workers: int = 10
    rmse: float = 0.91
    limit: float = 0.5
    rho: float | None = None

    def __post_init__(self) -> None:
        require(self.rmse > 0.0, f"rmse must be positive, not {self.rmse!r}.")
        require(self.limit > 0.0, f"limit must be a positive time in seconds, not {self.limit!r}.")
        require(
            min(self.worker, self.master, self.message) >= 0.0 and self.worker > 0.0,
            "timing must be three times in seconds, none negative: a worker's step, a commit, the messages.",
        )
        require(self.rho is None or self.rho >= 0.0, f"rho must be zero or positive, not {self.rho!r}.")

    @property
    def timing(self) -> Timing:
        return Timing(self.worker, self.master, self.message)

    @property
    def goal(self) -> tuple[str, float]:
        return "rmse", self.rmse

    @property
    def kept(self) -> Mapping[str, Any]:
        rho = {} if self.rho is None else {"rho": self.rho}
        return {**_kept(self.first()), "initial_scale": "pair", **rho}

    @property
    def evaluate(self) -> int:
        # A round of mb-L-BFGS commits once for all workers; the others commit once for each.
        at_once = 1 if self.algorithm == "mb-lbfgs" else self.workers
        looks = FEWER if self.model().n_data >= LARGE else EVALUATIONS
        # Messages both ways and the commit keep the master, whom many workers wait for.
        interval = max(sum(self.timing) / at_once, self.message + self.master)
        return max(1, int(self.limit / (looks * interval)))

    @property
    def hopeless(self) -> float:
        return 3.0  # no run here came back from three times the RMSE of its start

    def model(self) -> MatrixFactorization:
        return movielens.model(self.ratings)

    def cluster(self, parameters: Mapping[str, Any]) -> Cluster:
        return movielens.measured_cluster(self.timing, self.workers)

    def first(self) -> dict[str, Any]:
        size = movielens.size_of(self.ratings)
        known = movielens.parameters(size, self.model().n_data)
        require(
            self.algorithm in known,
            f"studies of ratings begin with the paper's parameters, which it has for {', '.join(known)}, not "
            f"for {self.algorithm!r}: tune it on linear-gaussian.",
        )
        given = known[self.algorithm]
        if self.rho is not None and "rho" in given:
            given["rho"] = self.rho
        return movielens.with_timeout(given, algorithm(self.algorithm, given), self.timing)


def carried(document: Mapping[str, Any], ratings: str, timing: Timing) -> dict[str, Any]:
    """Return the best parameters of a saved study of ratings, converted to another set and to other times."""
    best = document["best"]
    if "point" not in best:
        return dict(best["parameters"])
    problem = RatingsProblem(**{**document["problem"], "ratings": ratings, **timing._asdict()})
    # Studies of before epsilon was searched have it among their parameters only.
    kept = {} if "epsilon_share" in best["point"] else {"epsilon": best["parameters"].get("epsilon")}
    return problem.suggest(FixedTrial(best["point"]), problem.curvature(), kept)
