"""What numba need not do for our kernels: collect garbage while it compiles one, and load a BLAS.

A compiler makes many objects that live until it is done, so looking for garbage among them finds little.
numba loads scipy.linalg in every process to learn whether there is a BLAS, which takes longer than any kernel
takes to compile; no kernel of ours calls one, so here it only looks for it.  Functions of the user's own that
numba compiles load it when they call it, as before.
"""

from __future__ import annotations

import gc
import sys
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from numba.core import event
from numba.core.compiler_lock import global_compiler_lock


class _WithoutCollecting(event.Listener):
    """From the beginning of the outermost of our compilations to its end; numba's lock lets one thread in."""

    def __init__(self) -> None:
        self.depth, self.collects = 0, False

    def on_start(self, event: Any) -> None:
        if self.depth or event.data["dispatcher"].py_func.__module__.startswith(("asyncqn.", "asyncqn_")):
            self.depth += 1
            if self.depth == 1:
                self.collects = gc.isenabled()
                gc.disable()

    def on_end(self, event: Any) -> None:
        if self.depth:
            self.depth -= 1
            if self.depth == 0 and self.collects:
                gc.enable()


def no_compilation() -> AbstractContextManager[object]:
    """Return a context in which no other thread compiles a kernel.

    A process forked inside it can compile; one forked beside a compilation inherits numba's lock as taken,
    and waits for it forever.
    """
    context: AbstractContextManager[object] = global_compiler_lock
    return context


def compile_without_collecting() -> None:
    """From now on, in this process."""
    event.register("numba:compile", _WithoutCollecting())


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
