"""Checks of parameters that several algorithms share."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np

from asyncqn.core.streams import SAMPLING, shards_in
from asyncqn.errors import require
from asyncqn.types import Counters, Potential, Rows


def check_positive(**numbers: float) -> None:
    """Every number must be positive (infinity allowed; NaN is not positive)."""
    for name, value in numbers.items():
        require(isinstance(value, Real) and value > 0.0, f"{name} must be a positive number, not {value!r}.")


def check_counts(parameters: object, **least: int) -> None:
    """Each parameter that is named must be an integer of at least so much."""
    for name, bound in least.items():
        value = getattr(parameters, name)
        require(
            isinstance(value, int) and not isinstance(value, bool) and value >= bound,
            f"{name} must be an integer of at least {bound}, not {value!r}.",
        )


def check_sampling(sampling: str) -> None:
    """One of the ways of `streams.SAMPLING`."""
    require(
        sampling in SAMPLING or (isinstance(sampling, str) and shards_in(sampling) is not None),
        f"sampling must be one of {', '.join(map(repr, SAMPLING))}, or 'shards-8' for one of 8 shards per "
        f"worker, not {sampling!r}.",
    )


def check_batch(batch: int, overlap: int | None = None, n_data: int | None = None) -> None:
    """0 < overlap < batch, in counts of data points; batches are drawn with replacement, so any size goes."""
    require(
        isinstance(batch, Integral) and batch >= 1, f"batch must be an integer of at least 1, not {batch!r}."
    )
    if overlap is not None:
        require(
            isinstance(overlap, Integral) and 1 <= overlap < batch,
            f"overlap must be an integer from 1 to batch - 1 = {batch - 1}, not {overlap!r}.",
        )
    if n_data is not None:
        require(n_data >= 1, "the potential has no data points: n_data must be at least 1.")


class OverlappingBatches:
    """Base of those whose workers keep `overlap` of the `batch` rows of a step for the pair of the next."""

    memory: int
    batch: int
    overlap: int

    def check(self, potential: Potential) -> None:
        check_batch(self.batch, self.overlap, potential.n_data)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return np.full(read.size, self.batch + (self.overlap if self.memory else 0), np.int64)


def check_step(h: float) -> None:
    """h must be positive and finite."""
    check_positive(h=h)
    require(h < float("inf"), f"h must be finite, not {h!r}.")
