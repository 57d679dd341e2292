"""A digest of the data of a problem, by which a replay or a resumed run detects that the data changed.

The arrays are found by walking through the attributes of the problem: NumPy arrays, SciPy's sparse matrices,
tensors of torch and jax, containers of those, and what functions refer to.  Values that are computed on
demand do not count: cached properties, and attributes that a class names in `computed_on_demand`.  Of an
array of more than 16 MB, 64 blocks at equal distances are read, so a digest takes some milliseconds; a
change between the blocks goes unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.problem import is_ours

_BLOCKS, _BLOCK = 64, 2**18
"""Number and size in bytes of the blocks that are read of a large array: 16 MB, a few milliseconds."""
_DIRECT_BYTES, _COLUMNS = 2**17, 4093
"""Largest number of bytes that is hashed directly, and the number of sums into which a larger array is
folded. The latter is prime, so that rows that swap places contribute to other sums."""
_DEPTH, _ITEMS = 4, 256
"""Depth to which containers are entered, and number of items of each."""


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


def is_reliable(problem: Any) -> bool:
    """Return whether equal data have equal digests; a user's class may hold scratch arrays."""
    return is_ours(type(problem))


def _arrays(
    path: str, value: Any, depth: int, *, root: bool = False
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the arrays in `value`, each with the path by which it was reached."""
    # Arrays of objects or texts have no stable bytes, so only numbers count.
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biufc" and value.size:
            yield path, value
        return
    if (
        depth == 0
        or value is None
        or isinstance(value, (str, bytes, int, float, complex, type))
    ):
        return
    parts: Mapping[str, Any]
    if isinstance(value, Mapping):
        parts = {str(key): item for key, item in list(value.items())[:_ITEMS]}
    elif isinstance(value, (tuple, list)):
        parts = {str(i): item for i, item in enumerate(value[:_ITEMS])}
    elif hasattr(value, "detach") and hasattr(
        value, "cpu"
    ):  # a tensor of torch, or a module of it
        parts = {"tensor": value.detach().cpu().numpy()}
    elif hasattr(value, "indptr") and hasattr(value, "indices"):
        parts = {name: getattr(value, name) for name in ("data", "indices", "indptr")}
    elif (
        hasattr(value, "__array__")
        and hasattr(value, "shape")
        and type(value).__module__.startswith("jax")
    ):
        parts = {"array": np.asarray(value)}
    elif isinstance(value, (FunctionType, MethodType)):
        parts = _referred_to(value)
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
    # The MRO, not the class alone: a subclass keeps the lazily computed values of its bases out as well.
    kinds = type(value).__mro__
    computed = {
        name
        for kind in kinds
        for name, x in vars(kind).items()
        if isinstance(x, cached_property)
    }
    computed |= {
        name for kind in kinds for name in vars(kind).get("computed_on_demand", ())
    }
    computed |= set(
        vars(value).get("computed_on_demand", ()) if hasattr(value, "__dict__") else ()
    )
    # A class with __slots__ has no __dict__, and its arrays would be overlooked.
    slots = [
        name
        for kind in kinds
        for name in getattr(kind, "__slots__", ())
        if hasattr(value, name)
    ]
    names = sorted(
        {*getattr(value, "__dict__", {}), *slots}
        - computed
        - {"__dict__", "__weakref__"}
    )
    return {name: getattr(value, name) for name in names}


def _referred_to(function: Any) -> dict[str, Any]:
    """Return the objects that a function refers to: closure, defaults, and global data that it names."""
    bound = getattr(function, "__self__", None)
    function = getattr(function, "__func__", function)
    parts: dict[str, Any] = {} if bound is None else {"self": _attributes(bound)}
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            parts[name] = cell.cell_contents
        except (
            ValueError
        ):  # the cell is empty: the enclosing function has not assigned the name yet
            continue
    parts["defaults"] = function.__defaults__ or ()
    # Functions and modules are code, which `code_digest` covers.
    named = {name: function.__globals__.get(name) for name in code.co_names}
    parts["globals"] = {
        name: x
        for name, x in named.items()
        if not callable(x) and not hasattr(x, "__path__")
    }
    return parts


def _blocks(array: npt.NDArray[Any]) -> Iterator[memoryview]:
    """Yield the bytes of a small array, column sums of a larger one, or 64 blocks of a very large one."""
    if array.nbytes <= _BLOCKS * _BLOCK:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        summed = (
            flat.size // (8 * _COLUMNS) * 8 * _COLUMNS
            if flat.size > _DIRECT_BYTES
            else 0
        )
        if summed:  # hashing all bytes would take ten times as long
            yield np.add.reduce(
                flat[:summed].view(np.uint64).reshape(-1, _COLUMNS), axis=0
            ).data
        yield flat[summed:].data
        return
    # Blocks are read from a view: copying a large memory-mapped array would read all of it.
    if array.flags.c_contiguous or array.flags.f_contiguous:
        flat = array.ravel(order="K").view(np.uint8)  # a view
        for start in np.linspace(0, flat.size - _BLOCK, _BLOCKS).astype(np.int64):
            yield flat[start : start + _BLOCK].data
        return
    # A strided array cannot be viewed as bytes, so single rows are copied.
    for row in np.linspace(0, len(array) - 1, min(len(array), 4096)).astype(np.int64):
        yield np.ascontiguousarray(array[row]).reshape(-1).view(np.uint8)[:_BLOCK].data
