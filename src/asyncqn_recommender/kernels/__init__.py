"""Compiled code for ratings: gradients of factorizations, least squares for each row, lists of items."""

from pathlib import Path
from typing import Any

from asyncqn.kernels import drop_stale_cache, kernel


@kernel
def _anything() -> None:
    """Never called: it tells where numba keeps what it compiles from this folder."""


_compiled: Any = _anything
drop_stale_cache(Path(__file__).parent, Path(_compiled.stats.cache_path))
