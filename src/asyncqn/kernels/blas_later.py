"""numba loads scipy.linalg in every process to learn whether there is a BLAS; here it only looks for it.

No kernel of ours calls a BLAS, and loading one took longer than any kernel takes to compile.  Functions of
the user's own that numba compiles load it when they call it, as before.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def _is_there() -> None:
    if find_spec("scipy") is None:
        raise ImportError("scipy is not installed")


def load_without_blas() -> bool:
    """Let numba load its own modules, with a look for scipy in place of loading it; whether that was done."""
    if "numba.np.arraymath" in sys.modules:
        return False
    linalg: Any = import_module("numba.np.linalg")
    theirs = getattr(linalg, "ensure_blas", None)
    if theirs is None:
        return False  # another numba: it will do as it does
    linalg.ensure_blas = _is_there
    try:
        arrays: Any = import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = theirs
    if getattr(arrays, "ensure_blas", None) is _is_there:
        arrays.ensure_blas = theirs
    return True
