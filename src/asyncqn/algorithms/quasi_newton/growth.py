"""What methods on growing samples do when the sample grows: judge the last point kept on the larger one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from asyncqn.algorithms.safeguard import Metric, Trial, rebase
from asyncqn.types import Array

State = TypeVar("State", bound=Any)
"""An iterate with the fields of `growing_lbfgs.Iterate`."""


def grown(
    iterate: State, pairs: Metric, at: Array | None, value: float, ask: Callable[[Array], float] | None,
    stage: int, empty: Trial,
) -> State:  # fmt: skip
    """The iterate on the larger sample of `stage`, at whose base the gradient is `at` and U is `value`.

    ask: U over all rows, where the sample is that.  Where the larger sample is not finite at the base, this
    moves halfway back to the start.  Where U there is above what it was at the start, the smaller sample was
    fitted too closely, or its slopes led uphill, and the start is taken up again, with the trial `empty`.
    """
    if at is None:
        iterate.base[...] = 0.5 * (iterate.base + iterate.start)
        return iterate
    if math.isnan(value):
        worse = ask is not None and not ask(iterate.base) <= ask(iterate.start)
    else:
        worse = value > iterate.first_value  # never where that is not known: NaN
    if not worse:
        fresh: State = iterate._replace(trial=rebase(iterate, pairs, at, value, ask), stage=stage)
        return fresh
    iterate.theta[...] = iterate.base[...] = iterate.start
    pairs.forget()
    again: State = iterate._replace(trial=empty._replace(first_norm=iterate.trial.first_norm), stage=stage)
    return again
