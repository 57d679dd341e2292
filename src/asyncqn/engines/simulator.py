"""The simulator: real numbers on the time axis of a simulated cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.fit import stretched_to
from asyncqn.cluster.virtual_time import VirtualTime
from asyncqn.core.request import Request
from asyncqn.core.stages import check_stages
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.parameters import Checked, parameter
from asyncqn.runs.execution import run_schedule
from asyncqn.runs.manifest import EngineManifest
from asyncqn.runs.run import Run
from asyncqn.storage.serialise import to_json


@dataclass(frozen=True)
class Simulator(Checked):
    """Run an algorithm on a simulated cluster: the clock is the cluster's, the numbers are real.

    Parameters
    ----------
    cluster : Cluster
        The timing model whose times are drawn.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=10, worker_mean=70.0, worker_std=14.0))
    >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=engine, commits=200)
    >>> run.time > 200 / 10 * 50
    True
    """

    cluster: Annotated[
        Cluster, parameter(words="a Cluster, as in Simulator(Cluster(workers=4))")
    ]

    @property
    def workers(self) -> int:
        return self.cluster.workers

    def minimize(self, request: Request) -> Run:
        engine: EngineManifest = {
            "kind": "simulator",
            "workers": self.workers,
            "cluster": to_json(self.cluster),
        }
        algorithm, n_data = request.algorithm, int(request.problem.n_data)
        check_stages(algorithm.stages, type(algorithm).__name__)
        cluster = stretched_to(self.cluster, algorithm, request.commits, n_data)
        # A run that continues from a checkpoint draws the same times again, from the seed.
        simulated = VirtualTime(cluster, algorithm.stages, request.seed)
        with listening_for_interrupts(request.checkpoints):
            return run_schedule(request, simulated, engine=engine)
