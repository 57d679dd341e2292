"""Float32Wire: an algorithm whose messages travel in single precision.

Rounding is part of the numbers, so it has one place: what a worker reads and what it sends pass
through float32 around `step` and `learn`, on the wire as in a replay.  The master's iterate and a
worker's memory keep the precision of theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.types import Algorithm, Potential, Task, extra


def rounded(message: Any, fields: tuple[str, ...] | None = None) -> Any:
    """A (named) tuple with its float64 arrays rounded to float32 and back; single numbers stay as they are.

    Beyond float32's range lie infinities: such an update is rejected like any that is not finite.
    """
    with np.errstate(over="ignore"):
        if fields is None:
            return _rounded(message)
        return message._replace(**{name: _rounded(getattr(message, name)) for name in fields})


def _rounded(tree: Any) -> Any:
    if isinstance(tree, np.ndarray) and tree.ndim and tree.dtype == np.float64:
        return tree.astype(np.float32).astype(np.float64)
    if isinstance(tree, tuple):
        children = [_rounded(child) for child in tree]
        return tree._make(children) if hasattr(tree, "_make") else tuple(children)
    return tree


@dataclass(frozen=True)
class Float32Wire:
    """`algorithm` as a worker runs it behind a float32 wire.

    arrived: the views come from such a wire, so that they are rounded already.
    """

    algorithm: Algorithm
    arrived: bool = False

    def step(self, view: Any, local: Any, potential: Potential, task: Task) -> Any:
        return rounded(self.algorithm.step(self._view(view), local, potential, task))

    def learn(self, view: Any, local: Any, potential: Potential, task: Task) -> Any:
        return self.algorithm.learn(self._view(view), local, potential, task)

    def forget(self, local: Any) -> Any:
        return self.algorithm.forget(local)

    def _view(self, view: Any) -> Any:
        return view if self.arrived else rounded(view, extra(self.algorithm, "sent"))
