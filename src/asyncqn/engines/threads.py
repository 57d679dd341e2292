"""Threads: workers in shared memory; a commit and a read are atomic, everything else runs side by side.

Kernels, and NumPy on large arrays, release the interpreter lock, so that workers use all cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.request import Request
from asyncqn.engines.clock import Clock
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.engines.precompile import precompile
from asyncqn.engines.real import RealEngine
from asyncqn.engines.thread_pools import one_thread_pools
from asyncqn.engines.thread_workers import ThreadWorkers
from asyncqn.errors import require
from asyncqn.parameters import parameter
from asyncqn.runs.run import Run


@dataclass(frozen=True)
class Threads(RealEngine):
    """Run an algorithm on threads of this process.

    Parameters
    ----------
    workers : int, default 0
        Number of workers, W; 0 takes the number, and the deaths and joins, of the timing model.
    timing_model, time_unit, max_staleness, give_up_after
        Options of every real engine; see `asyncqn.engines.real.RealEngine`.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=aq.Threads(workers=2))
    >>> run.status
    'converged'
    """

    workers: Annotated[int, parameter(ge=0, le=1_000_000)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers == 0 and isinstance(self.timing_model, Cluster):
            object.__setattr__(self, "workers", self.timing_model.workers)
        W = self.workers
        require(W > 0, "threads need at least one worker: workers = 0.")
        self.check_options(W, mortal=True)

    def minimize(self, request: Request) -> Run:
        # Before the clock starts: a thread that compiles would look slow.
        precompile(request.problem, request.algorithm, request.theta0, request.seed)
        clock = Clock(self.time_unit)
        state = self.coordinator(request, "threads", self.workers, clock)
        clock.restart(state.time)
        with one_thread_pools(), listening_for_interrupts(request.checkpoints):
            return ThreadWorkers(state, clock).run()
