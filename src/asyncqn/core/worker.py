"""The worker's side of an algorithm: what it computes and sends, and what it learns after sending.

`WorkerSteps` runs `step` and `learn` and rejects updates that are not finite; every engine and the replay use
it.  `Float32Wire` wraps an algorithm whose messages travel in float32.  Rounding changes the numbers of a
run, so it happens in one place: what a worker reads and what it sends pass through float32 around `step` and
`learn`, on the wire as in a replay.  The master's iterate and a worker's memory keep the precision of theta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.core.algorithm import Algorithm, Task, extra
from asyncqn.core.problem import Array, Problem, read_only
from asyncqn.core.streams import Stream
from asyncqn.kernels.vectors import sum_of_squares

EXPLOSION = 1e12
"""An iterate whose largest entry exceeds this times (1 + the largest of theta0) has diverged.  Our own
choice: far above any sensible scale of parameters, and its square is far from overflow in float64."""


def explosion_limit(theta0: Array) -> float:
    """Return the largest entry that an iterate which started at theta0 may have."""
    return EXPLOSION * (1.0 + float(np.abs(theta0).max(initial=0.0)))


def sample_update(
    algorithm: Algorithm, problem: Problem, theta0: Array, seed: int
) -> Any:
    """Compute one step with throw-away states; it shows the shape of updates, and compiles the kernels."""
    problem = extra(problem, "stand_in") or problem
    task = Task(0, 0, Stream(seed, 0, 0), algorithm.stages[0].first_part)
    return algorithm.step(
        algorithm.init(theta0), algorithm.init_worker(problem, theta0), problem, task
    )


class WorkerSteps:
    """Runs the steps of any worker; the caller passes the worker's state in and stores the new one.

    Steps may last microseconds, so values that do not change from one to the next are looked up once, here.
    `limit` is the largest entry that an iterate may have (`explosion_limit`).
    """

    def __init__(self, algorithm: Algorithm, problem: Problem, limit: float) -> None:
        self.problem = read_only(problem)
        self._step = algorithm.step
        self._learn = extra(algorithm, "learn")
        self._forget = extra(algorithm, "forget")
        # A method with exact gradients detects numbers that are not finite, and its safeguard takes back a
        # bad trial.
        self._safeguarded = extra(algorithm, "standing") is not None
        # The bound stays finite even where theta0 is huge: an infinite bound would let infinities pass.
        self._bound = min(limit * limit, 1e300)

    def compute(self, view: Any, local: Any, task: Task) -> Any | None:
        """Return a worker's update from `view`, or None where it is not finite or beyond the limit.

        The caller sends it and then lets the worker `learn`.
        """
        update = self._step(view, local, self.problem, task)
        if self._safeguarded or _sound(update, self._bound):
            return update
        return None

    def learn(self, view: Any, local: Any, task: Task, update: Any | None) -> Any:
        """Return the worker's state after sending `update`, which is None if it was rejected."""
        if update is None:
            return local if self._forget is None else self._forget(local)
        if self._learn is None:
            return local
        return self._learn(view, local, self.problem, task)


def _sound(part: Any, bound: float) -> bool:
    """Return whether all numbers of an update are finite, and its arrays within the bound on a mean square.

    A number outside an array has no bound: it may be a value of U.
    """
    if isinstance(part, np.ndarray):
        # Integers are always finite.  A NaN makes the comparison false.
        return part.dtype.kind != "f" or bool(sum_of_squares(part) <= bound * part.size)
    if isinstance(part, (float, np.floating)):
        return math.isfinite(part)
    if isinstance(part, (tuple, list)):
        # A loop, because it costs half of what `all` of a generator does, and runs at every step.
        for inner in part:
            if not _sound(inner, bound):
                return False
    return True


def rounded(message: Any, fields: tuple[str, ...] | None = None) -> Any:
    """Round the float64 arrays of a (named) tuple to float32 and back; single numbers stay unchanged.

    Numbers beyond float32's range become infinite, so that such an update is rejected.
    """
    # Overflow becomes infinity, which `compute` rejects; NumPy's warning would only repeat that.
    with np.errstate(over="ignore"):
        if fields is None:
            return _rounded(message)
        return message._replace(
            **{name: _rounded(getattr(message, name)) for name in fields}
        )


def _rounded(tree: Any) -> Any:
    if isinstance(tree, np.ndarray) and tree.ndim and tree.dtype == np.float64:
        return tree.astype(np.float32).astype(np.float64)
    if isinstance(tree, tuple):
        children = [_rounded(child) for child in tree]
        return tree._make(children) if hasattr(tree, "_make") else tuple(children)
    return tree


@dataclass(frozen=True)
class Float32Wire:
    """An algorithm as a worker runs it behind a float32 wire.

    `arrived` is True where the views come from such a wire and are therefore rounded already.
    """

    algorithm: Algorithm
    arrived: bool = False

    def step(self, view: Any, local: Any, problem: Problem, task: Task) -> Any:
        return rounded(self.algorithm.step(self._view(view), local, problem, task))

    def learn(self, view: Any, local: Any, problem: Problem, task: Task) -> Any:
        learn = extra(self.algorithm, "learn")
        return local if learn is None else learn(self._view(view), local, problem, task)

    def forget(self, local: Any) -> Any:
        forget = extra(self.algorithm, "forget")
        return local if forget is None else forget(local)

    def _view(self, view: Any) -> Any:
        return view if self.arrived else rounded(view, extra(self.algorithm, "sent"))
