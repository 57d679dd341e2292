"""A digest of the data of a problem, by which a replay or a resumed run detects that the data changed.

The arrays of the problem's attributes count: of NumPy, SciPy's sparse matrices, tensors of torch and jax, also in
containers and in objects of asyncqn's own classes.  Cached properties do not count, nor attributes that a class
names in `computed_on_demand`.  Of an array of more than 16 MB, 64 blocks at equal distances are read, so a digest
takes some milliseconds; a change between the blocks, or in what a function has captured, goes unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.problem import is_ours

_BLOCKS = 64
"""Number of blocks that are read of a large array."""
_BYTES = 2**24
"""Bytes of an array that are hashed at most: some milliseconds."""
_COLUMNS = 8191
"""Sums into which a larger block is folded, because sums are ten times as fast as the hash.  The number is a
prime, so that rows that change places change some of the sums."""
_DEPTH, _ITEMS = 4, 256
"""Depth to which containers and objects are entered, and number of items that are looked at in each."""


def data_digest(problem: Any) -> str:
    """Return a digest of all arrays of a problem, in hexadecimal; empty where none is known."""
    digest, empty = hashlib.blake2b(digest_size=16), True
    arrays = (
        each
        for name, value in _attributes(problem).items()
        for each in _arrays(name, value, _DEPTH)
    )
    # The path, type and shape are hashed too: the same bytes in another place are other data.
    for path, array in arrays:
        empty = False
        digest.update(f"{path} {array.dtype.str} {array.shape}\n".encode())
        for block in _blocks(array):
            for part in _folded(block):
                digest.update(part)
    return "" if empty else digest.hexdigest()


def _arrays(
    path: str, value: Any, depth: int
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the arrays in `value`, each with the path by which it was reached."""
    # Arrays of objects or texts have no stable bytes, so only numbers count.
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biufc" and value.size:
            yield path, value
    elif depth > 0 and not isinstance(value, (str, type)):
        for name, part in _parts(value).items():
            yield from _arrays(f"{path}.{name}", part, depth - 1)


def _parts(value: Any) -> Mapping[str, Any]:
    """Return what a container, a tensor, a sparse matrix or an object of our own consists of."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in islice(value.items(), _ITEMS)}
    if isinstance(value, (tuple, list)):
        return {str(i): item for i, item in enumerate(value[:_ITEMS])}
    if hasattr(value, "indptr") and hasattr(value, "indices"):
        return {name: getattr(value, name) for name in ("data", "indices", "indptr")}
    if hasattr(value, "detach"):
        return {"tensor": value.detach().cpu().numpy()}
    if type(value).__module__.startswith("jax") and hasattr(value, "__array__"):
        return {"array": np.asarray(value)}
    # A foreign object may hold caches or handles.
    return _attributes(value) if is_ours(type(value)) else {}


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object by name, but for those that are computed on demand."""
    own = getattr(value, "__dict__", {})
    names, computed = set(own), set(own.get("computed_on_demand", ()))
    # The MRO, not the class alone: a subclass keeps the lazily computed values of its bases out as well.
    for kind in type(value).__mro__:
        members = vars(kind)
        names.update(members.get("__slots__", ()))
        computed.update(members.get("computed_on_demand", ()))
        computed.update(n for n, m in members.items() if isinstance(m, cached_property))
    names -= computed | {"__dict__", "__weakref__"}
    return {
        name: getattr(value, name) for name in sorted(names) if hasattr(value, name)
    }


def _blocks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield a small array, or blocks of a larger one: of one in a file, only these are read."""
    if array.nbytes <= _BYTES:
        yield array
        return
    rows = max(1, len(array) * _BYTES // array.nbytes // _BLOCKS)
    for start in np.linspace(0, len(array) - rows, _BLOCKS).astype(int):
        yield array[start : start + rows]


def _folded(block: npt.NDArray[Any]) -> Iterator[memoryview]:
    """Yield the bytes of a block, those of a large one as sums of 64-bit words."""
    content = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
    folds = content.size // (8 * _COLUMNS)
    if folds > 1:
        whole = folds * 8 * _COLUMNS
        words = content[:whole].view(np.uint64).reshape(folds, _COLUMNS)
        yield words.sum(axis=0).data
        content = content[whole:]
    yield content.data
