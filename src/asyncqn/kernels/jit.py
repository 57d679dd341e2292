"""How every kernel is compiled: without the GIL, cached on disk, typed for the callers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

# Where colorama is installed, numba colours its errors with it, and every process then ends by writing an
# escape code to its terminal.  Under mpiexec the output of a rank is one, and JSON with such an end is none.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

from numba import njit
from numba.core.registry import CPUDispatcher
from numba.extending import register_jitable

from asyncqn.kernels.compiling import compile_quickly

F = TypeVar("F", bound=Callable[..., Any])

REDUCTION_FLAGS = {"reassoc", "contract", "nsz", "arcp"}
"""Let sums be vectorised; never the flags that assume away NaN and infinity, for we look for both."""


_COMMON: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Nobody hands a kernel to C as a pointer: the wrapper for that would be a tenth of the time of compiling."""
_PIECE: dict[str, Any] = {**_COMMON, "no_cpython_wrapper": True, "forceinline": True}
"""Of what only kernels call: no way in from Python either, which would be compiled with each."""


class Piece(CPUDispatcher):  # type: ignore[misc]
    """What only kernels call.  It has no way in from Python: a call would end the process, and is refused."""

    def __call__(self, *given: object, **named: object) -> Any:
        raise TypeError(f"{self.py_func.__name__} is a piece of kernels and cannot be called from Python.")


def _piece(function: F, **options: Any) -> F:
    made = njit(**_PIECE, **options)(function)
    made.__class__ = Piece
    return cast(F, made)


def kernel(function: F) -> F:
    """Compile with strict IEEE arithmetic: the same bits on every machine."""
    return cast(F, njit(**_COMMON)(function))


def reducing_kernel(function: F) -> F:
    """Compile with reassociation: vectorised sums, the same bits on machines with the same vectors."""
    return cast(F, njit(**_COMMON, fastmath=REDUCTION_FLAGS)(function))


def strict_piece(function: F) -> F:
    """Compile with strict arithmetic, always into the kernels that call it, and only for them."""
    return _piece(function)


_UNCOUNTED: dict[str, Any] = {"_nrt": False}
"""No references are counted, so nothing may be allocated.  In a queue that looks into records of its arrays
all the time, counting took more than half of the time."""


def queue_kernel(function: F) -> F:
    """Compile with strict arithmetic and without reference counts, for what allocates nothing."""
    return cast(F, njit(**_COMMON, **_UNCOUNTED)(function))


def queue_piece(function: F) -> F:
    """A strict piece of such kernels."""
    return _piece(function, **_UNCOUNTED)


def reducing_piece(function: F) -> F:
    """Compile with reassociation, always into the kernels that call it, and only for them.

    A call that is left standing may end in any compiled copy of the piece, and copies may add in another
    order: which one is found differs between a process that compiles and one that reads the cache.
    """
    return _piece(function, fastmath=REDUCTION_FLAGS)


def reducing_entry(function: F) -> F:
    """A piece that Python calls too."""
    return cast(F, njit(**_COMMON, forceinline=True, fastmath=REDUCTION_FLAGS)(function))


def inlined(function: F) -> F:
    """A strict piece that is compiled into the kernels that call it, as if it stood there."""
    return cast(F, njit(**_COMMON, inline="always")(function))


def shared_rule(function: F) -> F:
    """A piece of queue kernels; called from Python it runs as it stands, uncompiled."""
    rule: F = register_jitable(nogil=True, error_model="numpy", forceinline=True, **_UNCOUNTED)(function)
    return rule


def drop_stale_cache(folder: Path, cache: Path) -> bool:
    """Delete the compiled kernels in `cache` if any source in `folder` changed since they were made.

    numba looks only at the file a kernel stands in, not at the files whose pieces are compiled into
    it: after an edit or an upgrade it could go on with an old piece, and with other numbers.
    """
    stamp = cache / "sources"
    try:
        sources = sorted(folder.glob("*.py"))
        state = "".join(f"{p.name} {p.stat().st_mtime_ns} {p.stat().st_size}\n" for p in sources)
        if stamp.exists() and stamp.read_text() == state:
            return False
        cache.mkdir(parents=True, exist_ok=True)
        for compiled in [*cache.glob("*.nbi"), *cache.glob("*.nbc")]:
            compiled.unlink(missing_ok=True)
        stamp.write_text(state)
    except OSError:
        return False  # a folder that cannot be written has no cache of ours either
    return True


@kernel
def _anything() -> None:
    """Never called: it tells where numba keeps what it compiles from this folder."""


def cache_folder() -> Path:
    """Beside the sources, or where NUMBA_CACHE_DIR says, or in the user's own cache."""
    return Path(_anything.stats.cache_path)  # type: ignore[attr-defined]


def nothing_compiled_yet() -> bool:
    """Whether the first kernels of a program on this machine are still to be compiled."""
    return next(cache_folder().glob("*.nbc"), None) is None


drop_stale_cache(Path(__file__).parent, cache_folder())
compile_quickly()
