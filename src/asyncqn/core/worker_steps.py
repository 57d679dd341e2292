"""The worker's side of an algorithm: what it computes and sends, and what it learns after sending."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from asyncqn.core.read_only import read_only
from asyncqn.kernels.vectors import sum_of_squares, sum_of_two_squares
from asyncqn.types import Algorithm, Array, Potential, Task, extra

EXPLOSION = 1e12
"""An iterate whose largest entry exceeds this times (1 + the largest of theta0) has exploded."""


def explosion_limit(theta0: Array) -> float:
    """The largest entry an iterate that started at theta0 may have."""
    return EXPLOSION * (1.0 + float(np.abs(theta0).max(initial=0.0)))


class WorkerSteps:
    """The steps of any worker; its state is handed in and out.

    limit: the largest entry an iterate may have (`explosion_limit`).  Steps may last microseconds, so what
    does not change from one to the next is looked up here.
    """

    def __init__(self, algorithm: Algorithm, potential: Potential, limit: float) -> None:
        self.potential = read_only(potential)
        self._step, self._learn, self._forget = algorithm.step, algorithm.learn, algorithm.forget
        # It says itself what is not finite, and its safeguard takes a wild trial back.
        self._safeguarded = extra(algorithm, "standing") is not None
        self._bound = min(limit * limit, 1e300)  # finite even where theta0 is huge: infinity must not pass

    def compute(self, view: Any, local: Any, task: Task) -> Any | None:
        """A worker's update from `view`; None if it is not finite (or beyond the limit), and is rejected.

        The caller sends it and then lets the worker `learn`.
        """
        update = self._step(view, local, self.potential, task)
        if self._safeguarded:
            return update
        # One call for the vector of a-SGD, and for the two of as-L-BFGS.
        if len(update) == 1:
            a = update[0]
            if isinstance(a, np.ndarray) and a.dtype.kind == "f":
                return update if sum_of_squares(a) <= self._bound * a.size else None
        elif len(update) == 2:
            a, b = update
            if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape:
                return update if sum_of_two_squares(a, b) <= self._bound * a.size else None
        return update if _sound(update, self._bound) else None

    def learn(self, view: Any, local: Any, task: Task, update: Any | None) -> Any:
        """The worker's state after sending `update` (None: rejected)."""
        if update is None:
            return self._forget(local)
        return self._learn(view, local, self.potential, task)


def _sound(part: Any, bound: float) -> bool:
    """Whether all numbers of an update are finite, and its arrays within the bound on a mean square.

    A lone number has no size to keep: it may be a value of U.
    """
    if isinstance(part, np.ndarray):
        return part.dtype.kind != "f" or bool(sum_of_squares(part) <= bound * part.size)
    if isinstance(part, (float, np.floating)):
        return math.isfinite(part)
    return not isinstance(part, (tuple, list)) or all(_sound(inner, bound) for inner in part)
