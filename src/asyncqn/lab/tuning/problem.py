"""What the tuner is asked: one algorithm, one problem, one simulated cluster, and a goal to reach soon."""

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


def known_algorithm(name: str) -> str:
    """The name, if the tuner has a space for it."""
    require(name in SPACES, f"the tuner knows {', '.join(SPACES)}, not {name!r}.")
    return name


@dataclass(frozen=True, kw_only=True)
class TuningProblem(ABC):
    """All that determines a study but its length; a subclass says what is minimised, where, and to what.

    limit: the simulated time after which a run is too slow; seeds: runs per trial.
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
        """A metric of the problem, and the value it must fall to."""

    @property
    def kept(self) -> Mapping[str, Any]:
        """Parameters that are not searched."""
        return {}

    @property
    def evaluate(self) -> int | None:
        """Commits between two looks at the metric; None: as `time_to` chooses."""
        return None

    @property
    def hopeless(self) -> float:
        """A run whose metric exceeds this times its start has diverged."""
        return HOPELESS

    def first(self) -> dict[str, Any] | None:
        """Parameters that the study begins with."""
        return None

    def make(self, parameters: Mapping[str, Any]) -> Algorithm:
        return make_algorithm(self.algorithm, dict(parameters))

    def curvature(self) -> float:
        """The largest curvature at a starting point, the unit of the steps."""
        model = self.model()
        return largest_curvature(model, starting_point(model, None, TUNING_SEED))

    def suggest(self, trial: Any, curvature: float, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The parameters of a trial; `kept` adds to what is not searched."""
        known_algorithm(self.algorithm)
        kept = {**self.kept, **(kept or {})}
        step = float(self.cluster(self.first() or kept).means().mean())
        setting = Setting(curvature, self.workers, self.model().n_data, step, kept)
        return SPACES[self.algorithm](Search(trial, setting))

    def searched(self) -> list[str]:
        """The names of the numbers that are searched."""
        counting = CountingTrial()
        self.suggest(counting, 1.0)
        return sorted(counting.names)

    @property
    def budget(self) -> int:
        """Trials that grow with the numbers searched, so that no algorithm is favoured for having few."""
        return TRIALS_PER_NUMBER * len(self.searched())

    def outcome(self, parameters: Mapping[str, Any], limit: float, k: int) -> TimeToTarget:
        """The k-th run with these parameters, to the goal or to simulated time `limit`."""
        metric, target = self.goal
        return time_to(
            self.model(),
            self.make(parameters),
            self.cluster(parameters),
            target=target,
            limit=limit,
            seed=TUNING_SEED + 1000 * self.seed + k,
            metric=metric,
            evaluate=self.evaluate,
            hopeless=self.hopeless,
        )
