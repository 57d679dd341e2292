"""Compiled code for ratings: gradients of factorizations, least squares for each row, lists of items.

Reading order: `factorization` (row arithmetic), `tiles` (small matrices in registers), `profiled` (users
eliminated), `whitened` (clicks), `als`, `ranking`.
"""

from pathlib import Path
from typing import Any

from asyncqn.kernels import drop_stale_cache, kernel


@kernel
def _anything() -> None:
    """Do nothing: this kernel only tells where numba stores the code of this folder."""


# Numba's cache does not notice that a kernel calls a function of another file, which has changed since.
_compiled: Any = _anything
drop_stale_cache(Path(__file__).parent, Path(_compiled.stats.cache_path))
