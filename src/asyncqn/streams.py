"""Random streams as a function of (seed, worker, step), the same on every engine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.errors import require
from asyncqn.kernels import random
from asyncqn.types import Array, Rows


class Stream(NamedTuple):
    """The random numbers of worker `worker`'s k-th step: Philox keyed by the seed, so free to make."""

    seed: int
    worker: int
    k: int

    def rows(self, n_data: int, out: Rows) -> Rows:
        """Fill `out` with row numbers drawn uniformly from 0..n_data-1, with replacement."""
        random.fill_rows(self.seed, self.k, self.worker, n_data, out)
        return out

    def normals(self, out: Array) -> Array:
        """Fill `out` with standard normals."""
        random.fill_normals(self.seed, self.k, self.worker, random.NOISE, out)
        return out

    def generator(self) -> np.random.Generator:
        """A NumPy generator of this stream's own, for anything else an algorithm may want."""
        return np.random.Generator(np.random.Philox(key=[self.seed, (self.worker << 32) | self.k]))


def check_seed(seed: int) -> int:
    """The seed as the Philox key: an integer from 0 to 2^63 - 1."""
    require(
        isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and 0 <= seed < 2**63,
        f"seed must be an integer from 0 to 2**63 - 1, not {seed!r}.",
    )
    return int(seed)
