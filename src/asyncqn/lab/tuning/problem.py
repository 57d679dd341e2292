"""TuningProblem: one algorithm, one problem, one simulated cluster, and a goal to reach quickly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asyncqn.algorithms import make_algorithm
from asyncqn.algorithms.stability import largest_curvature
from asyncqn.cluster.cluster import Cluster
from asyncqn.errors import require
from asyncqn.lab.tuning.measure import HOPELESS, TimeToTarget, time_to
from asyncqn.lab.tuning.spaces import SPACES, CountingTrial, Search, Setting
from asyncqn.minimize import starting_point
from asyncqn.types import Algorithm, Problem

TUNING_SEED = 1_000_000
"""Seeds of tuning runs start here, far from those of figures and tests."""
TRIALS_PER_NUMBER = 20
"""Default trials per parameter that is searched."""


def known_algorithm(name: str) -> str:
    """Return the name if the tuner has a search space for it; raise `BadInput` otherwise."""
    require(name in SPACES, f"the tuner has no search space for {name!r}: choose one of {', '.join(SPACES)}.")
    return name


@dataclass(frozen=True, kw_only=True)
class TuningProblem(ABC):
    """All that determines a study except its length; a subclass defines problem, cluster and goal.

    `limit` is the simulated time after which a run is too slow; `seeds` is the number of runs per trial.
    """

    algorithm: str
    workers: int
    limit: float
    seeds: int = 3
    seed: int = 0

    @abstractmethod
    def model(self) -> Problem: ...

    @abstractmethod
    def cluster(self, parameters: Mapping[str, Any]) -> Cluster: ...

    @property
    @abstractmethod
    def goal(self) -> tuple[str, float]:
        """A metric of the problem, and the value that it must fall to."""

    @property
    def kept(self) -> Mapping[str, Any]:
        """Parameters that are not searched."""
        return {}

    @property
    def evaluate(self) -> int | None:
        """Commits between two evaluations of the metric; None: `time_to` chooses."""
        return None

    @property
    def hopeless(self) -> float:
        """Factor on the metric's start beyond which a run counts as diverged."""
        return HOPELESS

    def first(self) -> dict[str, Any] | None:
        """Return the parameters that the study begins with, or None."""
        return None

    def make(self, parameters: Mapping[str, Any]) -> Algorithm:
        return make_algorithm(self.algorithm, dict(parameters))

    def curvature(self) -> float:
        """Return the largest curvature at a starting point, the unit of step sizes."""
        model = self.model()
        # At a starting point, because the tuner must not know where the minimum is.
        return largest_curvature(model, starting_point(model, None, TUNING_SEED))

    def suggest(self, trial: Any, curvature: float, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the parameters of a trial; `kept` extends the parameters that are not searched."""
        known_algorithm(self.algorithm)
        kept = {**self.kept, **(kept or {})}
        # Some clusters depend on the parameters, such as on the batch; the first ones stand for all.
        step = float(self.cluster(self.first() or kept).means().mean())
        setting = Setting(curvature, self.workers, self.model().n_data, step, kept)
        return SPACES[self.algorithm](Search(trial, setting))

    def searched(self) -> list[str]:
        """Return the names of the numbers that are searched."""
        # A dry run of the space tells what it searches, so no second list must be kept.
        counting = CountingTrial()
        self.suggest(counting, 1.0)
        return sorted(counting.names)

    @property
    def budget(self) -> int:
        """Number of trials, proportional to the numbers searched, so that no algorithm is favoured."""
        return TRIALS_PER_NUMBER * len(self.searched())

    def outcome(self, parameters: Mapping[str, Any], limit: float, k: int) -> TimeToTarget:
        """Do the k-th run with these parameters, to the goal or to simulated time `limit`."""
        metric, target = self.goal
        return time_to(
            self.model(),
            self.make(parameters),
            self.cluster(parameters),
            target=target,
            limit=limit,
            # All trials of a study share these seeds, so that their times are comparable.
            seed=TUNING_SEED + 1000 * self.seed + k,
            metric=metric,
            evaluate=self.evaluate,
            hopeless=self.hopeless,
        )
