"""WorkerSetup: what a worker in another process receives once, at its start."""

from __future__ import annotations

from typing import Any, NamedTuple

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.problem import read_only
from asyncqn.core.request import Request
from asyncqn.core.worker import sample_update
from asyncqn.engines.failures import failure
from asyncqn.engines.precompile import precompile
from asyncqn.engines.real import RealEngine
from asyncqn.engines.thread_pools import one_thread_pools
from asyncqn.engines.worker_loop import Step, WorkerLoop
from asyncqn.runs.checkpoint import Arrays
from asyncqn.types import Algorithm, Array, Problem


class WorkerSetup(NamedTuple):
    """The run as a worker sees it."""

    problem: Problem
    algorithm: Algorithm
    theta0: Array
    seed: int
    timing_model: Cluster | None
    unit: float
    sample: Any
    """An update, which shows what all of them look like."""
    states: Arrays
    """Of the workers of the checkpoint this run continues from."""

    @classmethod
    def of(cls, request: Request, engine: RealEngine) -> WorkerSetup:
        """Return the setup of a run; computing its sample compiles the kernels in this process."""
        checkpoints = request.checkpoints
        start = None if checkpoints is None else checkpoints.start
        arrays = {} if start is None else start.arrays
        return cls(
            request.problem,
            request.algorithm,
            request.theta0,
            request.seed,
            engine.stretched_model(request),
            engine.time_unit,
            _sample(request),
            {name: a for name, a in arrays.items() if name.startswith("worker.")},
        )

    def loop(self, returning: int | None, *, warm: bool) -> WorkerLoop:
        """Return the loop of a new worker, or of one of the checkpoint, by its number.

        A worker is `warm` if it has carried out a step that is thrown away: a new interpreter loads the
        kernels by it, a copy of the master has them.
        """
        # A copy: what has travelled may lie in read-only memory.
        theta0 = self.theta0.copy()
        loop = WorkerLoop(
            self.algorithm,
            self.problem,
            theta0,
            self.seed,
            timing_model=self.timing_model,
        )
        if returning is not None:
            loop.restore(returning, self.states)
        if warm:
            sample_update(self.algorithm, loop.steps.problem, theta0, self.seed)
        return loop


def _sample(request: Request) -> Any:
    """Return an update from states that are discarded."""
    problem = request.problem
    algorithm = request.algorithm
    theta0 = request.theta0
    # The context imports what workers need for it, before they are forked.
    with one_thread_pools():
        precompile(problem, algorithm, theta0, request.seed)
    try:
        return sample_update(algorithm, read_only(problem), theta0, request.seed)
    except Exception as error:
        first = Step(0, 0, 0, algorithm.stages[0].first_part)
        raise failure(first, error).raised() from error
