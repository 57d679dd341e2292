"""A digest of the data of a problem, by which a replay or a resumed run detects that the data changed.

The arrays are found by walking through the attributes of the problem: NumPy arrays, SciPy's sparse matrices,
tensors of torch and jax, containers of those, and the closures of functions.  Values that are computed on
demand do not count: cached properties, and attributes that a class names in `computed_on_demand`.  Of an
array of more than 16 MB, 64 blocks at equal distances are read, so a digest takes some milliseconds; a
change between the blocks goes unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.problem import is_ours

_BLOCKS = 64
_BLOCK = 2**18
"""Number and size in bytes of the blocks that are read of a large array: 16 MB, some milliseconds."""
_DIRECT_BYTES = 2**17
"""Largest number of bytes that is hashed directly."""
_COLUMNS = 4093
"""Sums into which a larger array is folded: a prime, so that rows that swap places change some of them."""
_ROWS = 4096
"""Number of rows that are read of a large array with gaps between its numbers."""
_DEPTH = 4
"""Depth to which containers are entered."""
_ITEMS = 256
"""Number of items of each that are looked at."""


def data_digest(problem: Any) -> str:
    """Return a digest of all arrays of a problem, in hexadecimal; empty where none is known."""
    digest = hashlib.blake2b(digest_size=16)
    found = False
    # The path, type and shape are hashed too: the same bytes in another place are other data.
    for path, array in _arrays("", problem, _DEPTH, root=True):
        found = True
        digest.update(f"{path} {array.dtype.str} {array.shape}\n".encode())
        for block in _blocks(array):
            digest.update(block)
    return digest.hexdigest() if found else ""


def _arrays(
    path: str, value: Any, depth: int, *, root: bool = False
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the arrays in `value`, each with the path by which it was reached."""
    # Arrays of objects or texts have no stable bytes, so only numbers count.
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biufc" and value.size:
            yield path, value
        return
    if depth == 0 or isinstance(value, (str, type)) or np.isscalar(value):
        return
    parts: Mapping[str, Any]
    if isinstance(value, Mapping):
        parts = {str(key): item for key, item in islice(value.items(), _ITEMS)}
    elif isinstance(value, (tuple, list)):
        parts = {str(i): item for i, item in enumerate(value[:_ITEMS])}
    # A tensor of torch.
    elif hasattr(value, "detach") and hasattr(value, "cpu"):
        parts = {"tensor": value.detach().cpu().numpy()}
    # A sparse matrix of SciPy.
    elif hasattr(value, "indptr") and hasattr(value, "indices"):
        parts = {
            "data": value.data,
            "indices": value.indices,
            "indptr": value.indptr,
        }
    elif type(value).__module__.startswith("jax") and hasattr(value, "__array__"):
        parts = {"array": np.asarray(value)}
    elif isinstance(value, (FunctionType, MethodType)):
        parts = _closure(value)
    # Attributes are followed only for the problem itself and for our own classes: a foreign object may hold
    # caches or handles.
    elif root or is_ours(type(value)):
        parts = _attributes(value)
    else:
        return
    for name, part in parts.items():
        yield from _arrays(f"{path}.{name}", part, depth - 1)


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object by name, but for those that are computed on demand."""
    # An object may name some of its own.
    own = getattr(value, "__dict__", {})
    computed = set(own.get("computed_on_demand", ()))
    # A class with __slots__ has no __dict__.
    names = set(own)
    # The MRO, not the class alone: a subclass keeps the lazily computed values of its bases out as well.
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, cached_property):
                computed.add(name)
            elif name == "computed_on_demand":
                computed.update(member)
            elif name == "__slots__":
                names.update(member)
    names -= {"__dict__", "__weakref__"}
    return {
        name: getattr(value, name)
        for name in sorted(names - computed)
        if hasattr(value, name)
    }


def _closure(function: Any) -> dict[str, Any]:
    """Return what a function took from the function around it, and the attributes of a method's object."""
    bound = getattr(function, "__self__", None)
    function = getattr(function, "__func__", function)
    parts: dict[str, Any] = {}
    if bound is not None:
        parts["self"] = _attributes(bound)
    names = function.__code__.co_freevars
    cells = function.__closure__ or ()
    for name, cell in zip(names, cells):
        # The enclosing function may not have assigned the name yet.
        with suppress(ValueError):
            parts[name] = cell.cell_contents
    return parts


def _blocks(array: npt.NDArray[Any]) -> Iterator[memoryview]:
    """Yield the bytes of a small array, column sums of a larger one, or 64 blocks of a very large one."""
    if array.nbytes <= _BLOCKS * _BLOCK:
        content = _bytes(array)
        # Hashing all bytes would take ten times as long.
        folds = content.size // (8 * _COLUMNS)
        if content.size > _DIRECT_BYTES:
            end = folds * 8 * _COLUMNS
            words = content[:end].view(np.uint64)
            yield words.reshape(folds, _COLUMNS).sum(axis=0).data
            content = content[end:]
        yield content.data
    # Blocks are read from a view: copying a large memory-mapped array would read all of it.
    elif array.flags.c_contiguous or array.flags.f_contiguous:
        flat = array.ravel(order="K").view(np.uint8)
        for i in range(_BLOCKS):
            start = i * (flat.size - _BLOCK) // (_BLOCKS - 1)
            yield flat[start : start + _BLOCK].data
    # A strided array cannot be viewed as bytes, so single rows are copied.
    else:
        step = -(-len(array) // _ROWS)
        for row in array[::step]:
            yield _bytes(row)[:_BLOCK].data


def _bytes(array: npt.NDArray[Any]) -> Any:
    """Return the bytes of an array, which is copied if its numbers do not lie side by side."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
