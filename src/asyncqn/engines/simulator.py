"""The simulator: real numbers on the time axis of a simulated cluster."""

from __future__ import annotations

from dataclasses import dataclass

from asyncqn.core.checkpoint import Checkpoints
from asyncqn.core.cluster import Cluster
from asyncqn.core.execute import execute
from asyncqn.core.plain import to_plain
from asyncqn.core.run import Run
from asyncqn.core.simulation import simulate
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.errors import require
from asyncqn.types import Algorithm, Array, Callback, Potential


@dataclass(frozen=True)
class Simulator:
    """Run an algorithm on a simulated cluster: the time axis is the cluster's, the numbers are real."""

    cluster: Cluster

    def __post_init__(self) -> None:
        require(
            isinstance(self.cluster, Cluster),
            f"the simulator needs a cluster, as in Simulator(Cluster(workers=4)), not {self.cluster!r}.",
        )

    @property
    def workers(self) -> int:
        return self.cluster.workers

    def minimize(
        self,
        potential: Potential,
        algorithm: Algorithm,
        *,
        theta0: Array,
        commits: int,
        seed: int,
        evaluate: int,
        callback: Callback | None,
        checkpoints: Checkpoints | None = None,
    ) -> Run:
        schedule = simulate(self.cluster, algorithm.pattern, commits, seed)
        with listening_for_interrupts(checkpoints):
            return execute(
                potential, algorithm, schedule, theta0=theta0, seed=seed, evaluate=evaluate,
                callback=callback, checkpoints=checkpoints, commits=commits,
                engine={"kind": "simulator", "workers": self.workers, "cluster": to_plain(self.cluster)},
            )  # fmt: skip
