"""What the tuner can be asked: parameters for a linear Gaussian problem, or for a set of ratings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from asyncqn.algorithms.stability import largest_curvature
from asyncqn.core.cluster import Cluster
from asyncqn.errors import require
from asyncqn.minimize import starting_point
from asyncqn.paper.measure import Outcome, time_to
from asyncqn.paper.movielens import (
    Timing,
    measured_cluster,
    parameters,
    potential,
    size_of,
    with_timeout,
)
from asyncqn.paper.problems import STANDARD, Spectrum
from asyncqn.paper.settings import NAMES, PAPER, algorithm, cluster
from asyncqn.tuning.spaces import FACTORIZATION, GAUSSIAN, Kept, Setting
from asyncqn.types import Potential

TUNING_SEED = 1_000_000
"""Seeds of tuning runs start here, far from those of the figures."""
LOOKS = 200
"""How often a run of ratings is looked at until the limit: an exact RMSE costs as much as dozens of steps."""
LOST = 3.0
"""An RMSE of so many times the start's counts as diverged: no run here came back from there."""


class Asked(Protocol):
    """Everything that determines a study but its length."""

    @property
    def algorithm(self) -> str: ...
    @property
    def limit(self) -> float: ...
    @property
    def seeds(self) -> int: ...
    @property
    def seed(self) -> int: ...

    def potential(self) -> Potential: ...

    def first(self) -> dict[str, Any]:
        """The paper's setting, with which every study begins."""
        ...

    def suggest(self, trial: Any, curvature: float) -> dict[str, Any]: ...

    def outcome(self, given: Mapping[str, Any], limit: float, k: int) -> Outcome:
        """The k-th run with these parameters, to the goal or to simulated time `limit`."""
        ...


@dataclass(frozen=True)
class Question:
    """A linear Gaussian problem on the paper's simulated cluster: time to the relative error epsilon."""

    algorithm: str
    workers: int = 40
    variance: float = 200.0
    problem: Spectrum = STANDARD
    epsilon: float = 0.05
    limit: float = 9000.0
    seeds: int = 3
    seed: int = 0

    def cluster(self) -> Cluster:
        return cluster(self.algorithm, self.workers, self.variance)

    def potential(self) -> Potential:
        return self.problem.potential()

    def first(self) -> dict[str, Any]:
        return dict(PAPER[self.algorithm])

    def suggest(self, trial: Any, curvature: float) -> dict[str, Any]:
        return GAUSSIAN[self.algorithm](trial, curvature, self.workers)

    def outcome(self, given: Mapping[str, Any], limit: float, k: int) -> Outcome:
        return time_to(
            self.potential(), algorithm(self.algorithm, given), self.cluster(), target=self.epsilon,
            limit=limit, seed=TUNING_SEED + 1000 * self.seed + k,
        )  # fmt: skip


@dataclass(frozen=True)
class RatingsQuestion:
    """Factorization of a named set, on a cluster with these times in seconds: time to the RMSE `rmse`.

    `rho`: keep rho at this value; None searches it.  The limit in simulated seconds bounds the
    commits of a trial.
    """

    algorithm: str
    ratings: str
    worker: float
    master: float
    message: float
    workers: int = 10
    rmse: float = 0.91
    limit: float = 0.5
    rho: float | None = None
    seeds: int = 3
    seed: int = 0

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

    def cluster(self) -> Cluster:
        return measured_cluster(self.timing, self.workers)

    def potential(self) -> Potential:
        return potential(self.ratings)

    def first(self) -> dict[str, Any]:
        given = parameters(size_of(self.ratings), self.potential().n_data)[self.algorithm]
        if self.rho is not None and "rho" in given:
            given["rho"] = self.rho
        return with_timeout(given, algorithm(self.algorithm, given), self.timing)

    def suggest(self, trial: Any, curvature: float) -> dict[str, Any]:
        first = self.first()
        searched = ("h", "gamma", "beta", "timeout")
        shared = {name: value for name, value in first.items() if name not in searched}
        beta = first.get("beta", 0.0)
        setting = Setting(curvature, self.workers, self.worker, shared, beta, self.rho is not None)
        return FACTORIZATION[self.algorithm](trial, setting)

    def outcome(self, given: Mapping[str, Any], limit: float, k: int) -> Outcome:
        seed = TUNING_SEED + 1000 * self.seed + k
        model = self.potential()
        theta0 = starting_point(model, None, seed)
        at_once = 1 if self.algorithm == "mb-lbfgs" else self.workers
        every = max(1, int(at_once * self.limit / (LOOKS * sum(self.timing))))
        found = time_to(
            model, algorithm(self.algorithm, given), self.cluster(), target=self.rmse, limit=limit,
            seed=seed, metric="rmse", theta0=theta0, evaluate=every,
        )  # fmt: skip
        start = model.metrics(theta0)["rmse"]  # type: ignore[attr-defined]
        lost = found.status == "too slow" and not found.last <= LOST * start
        return found._replace(status="diverged") if lost else found


def question_from(plain: Mapping[str, Any]) -> Question | RatingsQuestion:
    """The question of a saved study."""
    if "ratings" in plain:
        return RatingsQuestion(**plain)
    return Question(**{**plain, "problem": Spectrum(**plain["problem"])})


def curvature_of(question: Asked) -> float:
    """The largest curvature at a starting point of the study, the unit of its steps."""
    model = question.potential()
    return largest_curvature(model, starting_point(model, None, TUNING_SEED))


def carried(document: Mapping[str, Any], ratings: str, timing: Timing) -> dict[str, Any]:
    """The best parameters of a saved study of ratings, in the units of another set and of other times."""
    best, asked = document["best"], document["question"]
    if "point" not in best:
        return dict(best["parameters"])
    question = RatingsQuestion(**{**asked, "ratings": ratings, **timing._asdict()})
    return question.suggest(Kept(best["point"]), curvature_of(question))


def known_algorithm(name: str) -> str:
    """The name, if the tuner has a space for it."""
    require(name in NAMES, f"the tuner knows {', '.join(NAMES)}, not {name!r}.")
    return name
