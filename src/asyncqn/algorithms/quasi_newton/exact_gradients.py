"""What methods with exact gradients share: parts of a pass, their sum, and the point that is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.memory import pair_totals
from asyncqn.algorithms.safeguard import standing
from asyncqn.kernels.vectors import add_one, sum_of_squares
from asyncqn.parameters import Checked
from asyncqn.types import Array, Counters, Potential, Rows, Standing, Task, extra


class Worker(NamedTuple):
    """A worker remembers nothing."""


class ExactGradients(Checked):
    """Base of the methods whose workers only compute: the master tries points, and keeps some of them."""

    sent: tuple[str, ...] = ("theta",)

    def init_worker(self, potential: Potential, theta0: Array) -> Worker:
        return Worker()

    def learn(self, view: Any, local: Worker, potential: Potential, task: Task) -> Worker:
        return local

    def forget(self, local: Worker) -> Worker:
        return local

    def standing(self, iterate: Any) -> Standing | None:
        return standing(iterate)

    def answers(self, iterate: Any) -> tuple[Array, ...]:
        """The last point kept: theta itself is a trial that nobody has judged."""
        return (iterate.base,)

    def counters(self, iterate: Any, locals_: Sequence[Worker]) -> dict[str, int]:
        return pair_totals([iterate.memory])


def rows_of_parts(n_data: Any, parts: Any, part: Counters) -> Rows:
    """How many of n_data rows lie in each of the given parts."""
    first = part.astype(np.int64)
    rows: Rows = (first + 1) * n_data // parts - first * n_data // parts
    return rows


def whole_sum(updates: Sequence[Any], parts: int) -> tuple[Array | None, float]:
    """The gradient and U of all parts, in the parts' own order; None where one is missing or not finite."""
    if len({update.part for update in updates if update.finite}) < parts:
        return None, math.nan
    g, value = np.zeros_like(updates[0].g), 0.0
    for update in sorted(updates, key=lambda update: update.part):
        add_one(g, update.g)
        value += update.value
    return g[None], value


def share_of(potential: Any, theta: Array, rows: Rows, share: float) -> tuple[Array, float, bool]:
    """`share` of the estimates of the gradient and of U from `rows`, and whether they are finite.

    U is NaN where the potential does not say.
    """
    g, value = np.empty_like(theta), math.nan
    both, value_rows = (extra(potential, name) for name in ("grad_with_value", "value_rows"))
    if both is not None:
        value = share * float(both(theta, rows, g))
    else:
        potential.grad(theta, rows, g)
        if value_rows is not None:
            value = share * float(value_rows(theta, rows))
    g *= share
    silent = both is None and value_rows is None
    finite = math.isfinite(sum_of_squares(g)) and (silent or math.isfinite(value))
    if not finite:  # the master must hear of it, to turn back
        g[...] = 0.0
    return g, value, finite
