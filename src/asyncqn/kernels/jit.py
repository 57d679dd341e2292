"""The decorators that compile every kernel: without the GIL, cached on disk.

`kernel` and `reducing_kernel` make entry points for Python; `strict_piece`, `reducing_piece` and
`reducing_call` make parts of kernels.
"Strict" keeps IEEE arithmetic; "reducing" allows sums to be reordered, so that they are vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

from asyncqn.kernels.numba_internals import (
    PLAIN,
    UNCOUNTED,
    ReducingCompiler,
    load_without_blas,
)

F = TypeVar("F", bound=Callable[..., Any])

REDUCTION_FLAGS = {"reassoc", "contract", "nsz", "arcp"}
"""These flags let sums be vectorised.  Flags that assume away NaN and infinity are excluded: we test for
both."""

# Threads compute side by side without the GIL; a division by zero gives an infinity or NaN, as in NumPy,
# which the engines test for, and not an exception in the midst of a kernel.
_COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_ALLOCATES = {
    "arange",
    "copy",
    "empty",
    "empty_like",
    "full",
    "ones",
    "zeros",
    "zeros_like",
}
"""Functions that allocate an array; a kernel that calls one needs reference counting."""


def _counting(function: Callable[..., Any]) -> dict[str, Any]:
    # A function that allocates names its allocator in its byte code; a false alarm only costs time.
    return UNCOUNTED if _ALLOCATES.isdisjoint(function.__code__.co_names) else {}


def _piece(function: F, **options: Any) -> F:
    options = {**_COMMON, "forceinline": True, **_counting(function), **options}
    return cast(F, njit(**options)(function))


def kernel(function: F) -> F:
    """Compile with strict IEEE arithmetic: the same bits on every machine."""
    return cast(F, njit(cache=True, **_COMMON, **_counting(function))(function))


def reducing_kernel(function: F) -> F:
    """Compile with reassociation: vectorised sums, the same bits on machines with the same vectors.

    An array that is written must not overlap another, and none may be allocated: see `ReducingCompiler`.
    It calls no strict kernel: numba would reorder the sums of that one, too, and store it so for all callers.
    """
    options: dict[str, Any] = {**_COMMON, **UNCOUNTED, "fastmath": REDUCTION_FLAGS}
    compiler = njit(cache=True, pipeline_class=ReducingCompiler, **options)
    return cast(F, compiler(function))


def strict_piece(function: F) -> F:
    """Compile with strict arithmetic, always inlined into the kernels that call it, and only for them."""
    return _piece(function)


def reducing_piece(function: F) -> F:
    """Compile with reassociation, always inlined into the kernels that call it, and only for them.

    A call that is not inlined may end in any compiled copy of the piece, and copies may add in another order;
    a process that compiles and one that reads the cache may find different copies.
    """
    return _piece(function, fastmath=REDUCTION_FLAGS)


def reducing_call(function: F) -> F:
    """Compile a reducing piece that is called, not inlined: for a long one with several callers.

    Use it only for sums whose order is written out, in vectors of its own: see `reducing_piece`.
    """
    return _piece(function, fastmath=REDUCTION_FLAGS, forceinline=False)


def drop_stale_cache(folder: Path, cache: Path) -> bool:
    """Delete the compiled kernels in `cache` if a source in `folder`, or one of asyncqn's, has changed.

    numba compares only the file in which a kernel is defined, not the files whose pieces are inlined into it.
    After an edit or an upgrade it would use an old piece, and give other numbers.  A package with its own
    kernels calls this function once, from the `__init__` of the folder that holds them.

    Parameters
    ----------
    folder : Path
        The folder with the sources of the kernels.
    cache : Path
        Folder in which numba stores the code of these sources: `Path(some_kernel.stats.cache_path)`.

    Returns
    -------
    bool
        Whether compiled kernels were deleted.
    """
    stamp = cache / "sources"
    try:
        sources = sorted({*folder.glob("*.py"), *Path(__file__).parent.glob("*.py")})
        # Time and size suffice: a checkout or an installation writes new files.
        stats = [(path.name, path.stat()) for path in sources]
        lines = [f"{name} {stat.st_mtime_ns} {stat.st_size}\n" for name, stat in stats]
        state = "".join(lines) + "plain" * PLAIN
        if stamp.exists() and stamp.read_text() == state:
            return False
        cache.mkdir(parents=True, exist_ok=True)
        for compiled in [*cache.glob("*.nbi"), *cache.glob("*.nbc")]:
            compiled.unlink(missing_ok=True)
        stamp.write_text(state)
    except OSError:
        return False  # a folder that cannot be written holds no cache of ours
    return True


@kernel
def _anything() -> None:
    """Do nothing: this kernel only tells where numba stores the code of this folder."""


def cache_folder() -> Path:
    """Return the folder of compiled code: beside the sources, in NUMBA_CACHE_DIR, or in the user's cache."""
    return Path(_anything.stats.cache_path)  # type: ignore[attr-defined]


def nothing_compiled_yet() -> bool:
    """Return whether no kernel has been compiled on this machine yet."""
    return next(cache_folder().glob("*.nbc"), None) is None


# At import, before numba looks up any kernel in its cache.
drop_stale_cache(Path(__file__).parent, cache_folder())
load_without_blas()
