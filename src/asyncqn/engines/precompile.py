"""Compute a few steps and discard them before the clock starts, so that compilation is not on the time axis.

numba compiles a kernel at its first call.  Within a run the first worker to make it would look slow, and a
round would wait for it.
"""

from __future__ import annotations

from contextlib import suppress

from asyncqn.core.master import Master
from asyncqn.core.request import Request
from asyncqn.core.streams import Stream
from asyncqn.core.worker import WorkerSteps
from asyncqn.types import Algorithm, Array, Problem, Task, extra

_COMMITS = 3
"""Number of commits that reach every kernel: the second step sees a pair of points, the third uses the
curvature that was learned from it."""


def precompile(
    problem: Problem, algorithm: Algorithm, theta0: Array, seed: int
) -> None:
    """Compute, learn and commit in states that are discarded; all functions are pure, so no trace is left."""
    problem = extra(problem, "stand_in") or problem
    # A worker will meet the same error and can name its step.
    with suppress(Exception):
        stage = algorithm.stages[0]
        request = Request(problem, algorithm, theta0, commits=_COMMITS, evaluate=None)
        master = Master(request, workers=1)
        steps = WorkerSteps(algorithm, problem, master.limit)
        local = algorithm.init_worker(steps.problem, theta0)
        for k in range(_COMMITS):
            task = Task(0, k, Stream(seed, 0, k), stage.first_part)
            update = steps.compute(master.iterate, local, task)
            local = steps.learn(master.iterate, local, task, update)
            # One part stands for all that make a version.
            updates = [update] * (stage.parts if stage.waits and stage.parts else 1)
            master.commit(updates, 0.0, [0] * len(updates))
