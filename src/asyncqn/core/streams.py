"""Random streams as a function of (seed, worker, step), the same on every engine.

A counter-based generator (Philox) needs no state: the random numbers of any step can be computed at any time,
on any engine, in any order.  That is why a replay draws the same rows and the same noise as the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asyncqn.core.problem import Array, Rows
from asyncqn.kernels import random, shuffling

# All three share one signature: (seed, step, worker, n_data, out).
_FILL: dict[str, Callable[[int, int, int, int, Rows], None]] = {
    "replacement": random.fill_rows,
    "shuffled": shuffling.fill_shuffled,
    "blocks": shuffling.fill_block,
}
SAMPLING = tuple(_FILL)
"""How a subsample is drawn: `"replacement"`, independent rows, as in the paper; `"shuffled"`, passes over
the data, each in a random order of the worker's own; `"blocks"`, passes over blocks of consecutive
rows in random order, for data that are stored in random order (far kinder to the cache).  `"shards-K"` with
a number K is a fourth: independent rows of the worker's own shard, one of K pieces of consecutive rows, for
the study of data that differ from worker to worker; worker w has shard w mod K."""
_SHARDS = "shards-"


def shards_in(sampling: str) -> int | None:
    """Return the K of `"shards-K"`, or None for any other word."""
    number = sampling.removeprefix(_SHARDS) if sampling.startswith(_SHARDS) else ""
    return (
        int(number)
        if number.isascii() and number.isdigit() and int(number) >= 1
        else None
    )


class Stream(NamedTuple):
    """The random numbers of worker `worker`'s k-th step: Philox keyed by the seed, without state."""

    seed: int
    worker: int
    k: int

    def rows(self, n_data: int, out: Rows, sampling: str = "replacement") -> Rows:
        """Fill `out` with row numbers from 0..n_data-1; see `SAMPLING`."""
        if sampling in _FILL:
            _FILL[sampling](self.seed, self.k, self.worker, n_data, out)
            return out
        shards = shards_in(sampling)
        assert shards is not None
        # More shards than rows would leave shards empty, so there are at most n_data of them.
        shard = self.worker % min(shards, n_data)
        first, last = (
            each * n_data // min(shards, n_data) for each in (shard, shard + 1)
        )
        # Rows are drawn from 0 to the shard's length and then shifted to its first row.
        random.fill_rows(self.seed, self.k, self.worker, last - first, out)
        out += out.dtype.type(first)
        return out

    def normals(self, out: Array) -> Array:
        """Fill `out` with standard normals."""
        random.fill_normals(self.seed, self.k, self.worker, random.NOISE, out)
        return out

    def generator(self) -> np.random.Generator:
        """Return a NumPy generator for this stream, for anything else that an algorithm may draw."""
        # The key packs the worker's number and the step into one 64-bit word beside the seed.
        return np.random.Generator(
            np.random.Philox(key=[self.seed, (self.worker << 32) | self.k])
        )
