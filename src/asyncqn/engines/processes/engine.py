"""Processes: workers as processes of this machine, for problems that hold the interpreter lock.

No launcher and no other package: the standard library forks, and shared memory carries the numbers.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Literal

from asyncqn.core.request import Request
from asyncqn.engines.clock import Clock
from asyncqn.engines.elastic import ElasticEngine, StartTimeout
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.engines.processes.fork_server import ForkServer, forked, spawned
from asyncqn.engines.processes.master import ProcessMaster
from asyncqn.engines.processes.packing import pack
from asyncqn.engines.processes.worker import life
from asyncqn.engines.worker_setup import WorkerSetup
from asyncqn.errors import require
from asyncqn.parameters import Workers
from asyncqn.runs.run import Run


@dataclass(frozen=True)
class Processes(ElasticEngine):
    """Run an algorithm on processes of this machine; `add` starts more of them during a run.

    A worker that dies is not replaced: the run counts it and continues with the others.

    Parameters
    ----------
    workers : int
        Number of workers, W.
    start_method : "fork" or "spawn", optional
        How workers start. "fork" copies this process within milliseconds and shares its data; "spawn"
        starts a new interpreter within about a second and sends the problem to it. By default workers are
        forked, unless a loaded library does not survive a fork.
    start_timeout : float, default 120.0
        Seconds within which the workers must be ready.
    timing_model, time_unit, max_staleness, give_up_after
        Options of every real engine; see `asyncqn.engines.real.RealEngine`.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=aq.Processes(workers=2))
    >>> run.status
    'converged'
    """

    workers: Workers
    start_method: Literal["fork", "spawn"] | None = None
    start_timeout: StartTimeout = 120.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            hasattr(os, "fork"),
            "this system cannot fork processes: use the engine threads.",
        )
        self.check_options(self.workers)

    def minimize(self, request: Request) -> Run:
        clock = Clock(self.time_unit)
        setup = WorkerSetup.of(request, self)
        # Before the checkpoint folder is locked: a lock would be held by the copies, too.
        server = self._server(setup)
        try:
            state = self.coordinator(request, "processes", self.workers, clock)
            master = ProcessMaster(
                state, clock, self.start_timeout, server, setup.sample
            )
            with listening_for_interrupts(request.checkpoints):
                return self.conduct(master)
        finally:
            server.close()

    def _server(self, setup: WorkerSetup) -> ForkServer:
        """Return the server that forks the workers."""
        # A user's choice wins, even where we would not fork.
        if self.start_method == "fork" or (
            self.start_method is None and why_not_fork() is None
        ):
            return forked(life(lambda: setup, warm=False))
        fd = pack(setup, type(setup.problem).__name__)
        try:
            return spawned(fd)
        finally:
            os.close(fd)


def why_not_fork() -> str | None:
    """Return the name of a loaded library that does not survive a fork, or None.

    These keep threads of their own that a copy lacks and waits for.  BLAS libraries and numba's kernels
    without parallel loops are not among them; OpenMP is not where it uses one thread, as it does in a worker.
    """
    if sys.platform != "linux":
        return "system libraries of this operating system"
    if "jax" in sys.modules:
        return "JAX"
    if "pyarrow.flight" in sys.modules:
        return "Arrow Flight"
    if "mpi4py.MPI" in sys.modules:
        return "MPI"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA"
    parallel = sys.modules.get("numba.np.ufunc.parallel")
    if parallel is not None and getattr(parallel, "_is_initialized", False):
        return "numba's parallel loops"
    return None
