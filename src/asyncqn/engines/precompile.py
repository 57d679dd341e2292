"""Run a few steps and discard them before the clock starts, so that compilation is not on the time axis.

numba compiles a kernel at its first call.  Within a run the first worker to make it would look slow, and a
round would wait for it.
"""

from __future__ import annotations

from typing import Any

from asyncqn.core.master import Master
from asyncqn.core.problem import OF_ROWS, read_only
from asyncqn.core.request import Request
from asyncqn.core.stages import AllParts, stage_at
from asyncqn.core.streams import Stream
from asyncqn.core.worker import WorkerSteps
from asyncqn.types import Algorithm, Array, Problem, Task, extra

_COMMITS = 3
"""Number of commits that reach every kernel: the second step sees a pair of points, the third uses the
curvature that was learned from it."""
_WARM_UP_ROWS = 4096
"""Rows of a computation that is thrown away; as many as the largest batch that JAX compiles for."""


class FewRows:
    """A problem that looks at the first few rows of those it is given."""

    def __init__(self, problem: Problem) -> None:
        self._called = read_only(extra(problem, "stand_in") or problem)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._called, name)
        if name not in OF_ROWS or not callable(found):
            return found
        return lambda theta, rows, *rest: found(theta, rows[:_WARM_UP_ROWS], *rest)


def precompile(
    problem: Problem, algorithm: Algorithm, theta0: Array, seed: int
) -> None:
    """Compute, learn and commit in states that are discarded; all functions are pure, so no trace is left.

    An error is left to the worker that will meet it again and can name its step.
    """
    stage = stage_at(algorithm.stages, 0)
    parts = (
        range(stage.parts or 1) if isinstance(stage, AllParts) else [stage.first_part]
    )
    few: Any = FewRows(problem)
    try:
        master = Master(
            Request(few, algorithm, theta0, commits=_COMMITS, evaluate=None), workers=1
        )
        steps = WorkerSteps(algorithm, few, master.limit)
        local = algorithm.init_worker(steps.problem, theta0)
        for k in range(_COMMITS):
            updates = []
            for i, part in enumerate(parts):
                # The run's own streams: random numbers have no state, so drawing them here changes nothing.
                task = Task(0, k, Stream(seed, 0, k * len(parts) + i), part)
                update = steps.compute(master.iterate, local, task)
                local = steps.learn(master.iterate, local, task, update)
                updates.append(update)
            master.commit(updates, 0.0, [0] * len(updates))
    # A worker will meet the same error and can name its step.
    except Exception:
        return
