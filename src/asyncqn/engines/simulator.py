"""The simulator: real numbers on the time axis of a simulated cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.fit import stretched_to
from asyncqn.cluster.simulate import simulate
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request
from asyncqn.core.stages import Stages
from asyncqn.core.stopping import TO_THE_END
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.errors import require
from asyncqn.runs.execution import run_schedule
from asyncqn.runs.run import Run
from asyncqn.storage.serialise import to_json
from asyncqn.types import Callback, Progress

_MANY_ROWS, _FEW_COMMITS = 1_000_000, 64
"""Computations that take longer to schedule than a user wants to wait; commits that any run may need."""


@dataclass(frozen=True)
class Simulator:
    """Run an algorithm on a simulated cluster: the time axis is the cluster's, the numbers are real.

    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=10, worker_mean=70.0, worker_std=14.0))
    >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=engine, commits=200)
    >>> run.time > 200 / 10 * 50
    True
    """

    cluster: Cluster

    def __post_init__(self) -> None:
        require(
            isinstance(self.cluster, Cluster),
            f"the simulator needs a cluster, as in Simulator(Cluster(workers=4)), not {self.cluster!r}.",
        )

    @property
    def workers(self) -> int:
        return self.cluster.workers

    def minimize(self, request: Request) -> Run:
        engine = {"kind": "simulator", "workers": self.workers, "cluster": to_json(self.cluster)}
        stages, told = request.algorithm.stages, request
        cluster = stretched_to(
            self.cluster, request.algorithm, request.commits, int(request.potential.n_data)
        )
        if request.callback is not None:
            told = replace(request, callback=Told(request.callback))
        with listening_for_interrupts(request.checkpoints):
            for length in [request.commits] if request.checkpoints else lengths(request, stages):
                schedule = simulate(cluster, stages, length, request.seed)
                last = length == request.commits
                run = run_schedule(replace(told, commits=length), schedule, engine=engine, judged=last)
                if run.status is not Outcome.COMPLETED:
                    break
        return replace(run, manifest={**run.manifest, "commits": request.commits})


def lengths(request: Request, stages: Stages) -> list[int]:
    """How many commits to simulate: all, or few first where the run may end long before.

    A schedule does not depend on the numbers, so nobody knows beforehand how much of it will be needed; a
    run that outlives a schedule is computed again on one four times as long.
    """
    rows = stages[-1].rows
    shorter = [request.commits]
    while request.stopping != TO_THE_END and shorter[0] * rows > _MANY_ROWS and shorter[0] > _FEW_COMMITS:
        shorter.insert(0, shorter[0] // 4)
    return shorter


class Told:
    """A callback that hears of no commit twice."""

    def __init__(self, callback: Callback) -> None:
        self.callback, self.last = callback, -1

    def __call__(self, progress: Progress) -> None:
        if progress.commit > self.last:
            self.last = progress.commit
            self.callback(progress)
