"""Threads: workers in shared memory; a commit and a read are atomic, everything else runs side by side.

Kernels, and NumPy on large arrays, let go of the interpreter lock, so that workers use all cores.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from asyncqn.core.checkpoint import Checkpoints
from asyncqn.core.cluster import Cluster
from asyncqn.core.run import Run
from asyncqn.core.serialise import to_json
from asyncqn.core.stopping import TO_THE_END, Stopping
from asyncqn.engines.clock import Clock
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.engines.master_state import Core
from asyncqn.engines.precompile import warm_up
from asyncqn.engines.thread_workers import Crew
from asyncqn.errors import require
from asyncqn.types import Algorithm, Array, Callback, Potential


@dataclass(frozen=True)
class Threads:
    """Run an algorithm on threads of this process.

    workers: W; slow: a timing model whose drawn delays every computation is stretched to, with its
    messages, service times, deaths and joins (`workers` may then be left out); time_unit: seconds
    of one unit of time, in which `slow`, an algorithm's timeout and the schedule are told;
    max_staleness: an asynchronous update older than this many commits is dropped and its worker
    reads anew; silence: units of time after which a worker that does not answer is given up.
    """

    workers: int = 0
    slow: Cluster | None = None
    time_unit: float = 1.0
    max_staleness: int | None = None
    silence: float = math.inf

    def __post_init__(self) -> None:
        require(self.slow is None or isinstance(self.slow, Cluster), "slow must be a Cluster, or None.")
        if self.workers == 0 and self.slow is not None:
            object.__setattr__(self, "workers", self.slow.workers)
        W = self.workers
        require(
            isinstance(W, int) and not isinstance(W, bool) and W >= 1,
            f"threads need at least one worker: workers = {W!r}.",
        )
        require(
            self.slow is None or self.slow.workers == W,
            "workers and the workers of slow differ: leave one of them out.",
        )
        require(0.0 < self.time_unit < math.inf, f"time_unit must be positive, not {self.time_unit!r}.")
        require(
            self.max_staleness is None or self.max_staleness >= 0,
            f"max_staleness must not be negative, not {self.max_staleness!r}.",
        )
        require(self.silence > 0.0, f"silence must be positive, not {self.silence!r}.")

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
        stopping: Stopping = TO_THE_END,
        checkpoints: Checkpoints | None = None,
    ) -> Run:
        warm_up(potential, algorithm, theta0, seed)
        start = checkpoints.start if checkpoints is not None else None
        clock = Clock(self.time_unit, float(start.document["time"]) if start is not None else 0.0)
        core = Core(
            potential, algorithm, theta0=theta0, commits=commits, seed=seed, evaluate=evaluate,
            stopping=stopping,
            workers=self.workers, callback=callback, pause=clock.paused, max_staleness=self.max_staleness,
            silence=self.silence, reach=self.slow.message / 2 if self.slow is not None else 0.0,
            service=self.slow.master if self.slow is not None else 0.0,
            due=checkpoints.due if checkpoints is not None else None, start=start,
            engine={"kind": "threads", **to_json(self)},
        )  # fmt: skip
        if checkpoints is not None:
            checkpoints.prepare()
        with _one_thread_pools(), listening_for_interrupts(checkpoints):
            return Crew(core, clock, self.slow, checkpoints).run()


@contextmanager
def _one_thread_pools() -> Iterator[None]:
    """BLAS and OpenMP use one thread inside the block, where threadpoolctl is there to say so."""
    try:
        pools = _pools(len(sys.modules))
    except ImportError:
        yield
        return
    with pools.limit(limits=1):
        yield


@lru_cache(1)
def _pools(modules: int) -> Any:
    """The thread pools of this process; to look for them takes a millisecond, so only after an import."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
