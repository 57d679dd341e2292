"""Rounded: an algorithm whose messages travel in single precision.

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
    """A (named) tuple with its float64 arrays rounded to float32 and back; others stay as they are.

    Beyond float32's range lie infinities: such an update is rejected like any that is not finite.
    """
    names = message._fields if fields is None else fields
    with np.errstate(over="ignore"):
        return message._replace(
            **{
                name: value.astype(np.float32).astype(np.float64)
                for name in names
                if isinstance(value := getattr(message, name), np.ndarray) and value.dtype == np.float64
            }
        )


@dataclass(frozen=True)
class Rounded:
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
