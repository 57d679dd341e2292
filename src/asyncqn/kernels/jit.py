"""How every kernel is compiled: without the GIL, cached on disk, typed for the callers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.extending import register_jitable

from asyncqn.kernels.numba_internals import (
    PLAIN,
    UNCOUNTED,
    Piece,
    PieceCompiler,
    ReducingCompiler,
    load_without_blas,
)

F = TypeVar("F", bound=Callable[..., Any])

REDUCTION_FLAGS = {"reassoc", "contract", "nsz", "arcp"}
"""Let sums be vectorised; never the flags that assume away NaN and infinity, for we look for both."""


_COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_ALLOCATES = {"arange", "copy", "empty", "empty_like", "full", "ones", "zeros", "zeros_like"}
"""What a kernel calls to make an array: then references are counted."""
_PIECE: dict[str, Any] = {**_COMMON, "forceinline": True}


def _counting(function: Callable[..., Any]) -> dict[str, Any]:
    return UNCOUNTED if _ALLOCATES.isdisjoint(function.__code__.co_names) else {}


def _kernel(function: F, **options: Any) -> F:
    return cast(F, njit(cache=True, **_COMMON, **options)(function))


def _piece(function: F, **options: Any) -> F:
    options = {**_PIECE, **_counting(function), **options}
    made = njit(pipeline_class=PieceCompiler, **options)(function)
    if not PLAIN:
        made.__class__ = Piece
    return cast(F, made)


def kernel(function: F) -> F:
    """Compile with strict IEEE arithmetic: the same bits on every machine."""
    return _kernel(function, **_counting(function))


def reducing_kernel(function: F) -> F:
    """Compile with reassociation: vectorised sums, the same bits on machines with the same vectors.

    An array that is written must overlap no other, and none is allocated: see `ReducingCompiler`.
    """
    return _kernel(function, pipeline_class=ReducingCompiler, fastmath=REDUCTION_FLAGS, **UNCOUNTED)


def strict_piece(function: F) -> F:
    """Compile with strict arithmetic, always into the kernels that call it, and only for them."""
    return _piece(function)


def reducing_piece(function: F) -> F:
    """Compile with reassociation, always into the kernels that call it, and only for them.

    A call that is left standing may end in any compiled copy of the piece, and copies may add in another
    order: which one is found differs between a process that compiles and one that reads the cache.
    """
    return _piece(function, fastmath=REDUCTION_FLAGS)


def reducing_call(function: F) -> F:
    """A reducing piece that kernels call as it is: long, and called from more than one place.

    Only for sums in an order that is written down, in vectors of its own: see `reducing_piece`.
    """
    return _piece(function, fastmath=REDUCTION_FLAGS, forceinline=False)


def shared_rule(function: F) -> F:
    """A strict piece of kernels; called from Python it runs as it stands, uncompiled."""
    rule: F = register_jitable(nogil=True, error_model="numpy", forceinline=True, **UNCOUNTED)(function)
    return rule


def drop_stale_cache(folder: Path, cache: Path) -> bool:
    """Delete the compiled kernels in `cache` if a source in `folder`, or one of asyncqn's, has changed.

    numba compares only the file in which a kernel is defined, not the files whose pieces are compiled into
    it: after an edit or an upgrade it would continue with an old piece, and with other numbers.  A package
    with kernels of its own calls this once, from the `__init__` of the folder that holds them.

    Parameters
    ----------
    folder : Path
        The folder with the sources of the kernels.
    cache : Path
        Where numba keeps what it compiles from that folder: `Path(some_kernel.stats.cache_path)`.

    Returns
    -------
    bool
        Whether compiled kernels were deleted.
    """
    stamp = cache / "sources"
    try:
        sources = sorted({*folder.glob("*.py"), *Path(__file__).parent.glob("*.py")})
        state = (
            "".join(f"{p.name} {p.stat().st_mtime_ns} {p.stat().st_size}\n" for p in sources)
            + "plain" * PLAIN
        )
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
    """Return whether the first kernels of a program on this machine are still to be compiled."""
    return next(cache_folder().glob("*.nbc"), None) is None


drop_stale_cache(Path(__file__).parent, cache_folder())
load_without_blas()
