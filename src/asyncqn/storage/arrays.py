"""Read stored arrays, after comparing their headers with a schema and with the length of the file.

Memory is allocated only after that, so a damaged or malicious file can claim no more memory than it has
bytes.  Anything else raises `DamagedFile`, or an error that `read_folder` turns into a sentence.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import DamagedFile


class Spec(NamedTuple):
    """The dtypes (or kinds of dtype) and the shape that an array must have.

    A dimension that is a word must have the same size wherever the word occurs.  A shape of None accepts any
    shape; the caller then checks it.
    """

    dtypes: tuple[str, ...]
    shape: tuple[int | str, ...] | None
    optional: bool = False


Schema = Mapping[str, Spec]
"""Specifications by the names of arrays; a name that ends in * matches any number of arrays."""


def read_arrays(
    file: IO[bytes], path: Path, schema: Schema, sizes: dict[str, int]
) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an open archive, after all their headers fit the schema and each other.

    `sizes` holds the dimensions that are known already, by word; the others are added.  `path` names the
    archive in messages.
    """
    with zipfile.ZipFile(file) as archive, ExitStack() as opened:
        # What is left of the file's length: archives could otherwise list the same bytes many times.
        room = os.fstat(file.fileno()).st_size
        members: dict[str, IO[bytes]] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            # We store without compression; a repeated name would hide an array.
            plain = info.compress_type == zipfile.ZIP_STORED and name != info.filename
            if not plain or name in members:
                raise DamagedFile(
                    f"{path} is damaged: {info.filename[:80]!r} was not written by asyncqn."
                )
            room -= info.file_size
            if room < 0:
                raise DamagedFile(
                    f"{path} is damaged: its arrays claim to be larger than the file."
                )
            members[name] = opened.enter_context(archive.open(info))
            shape, _, dtype = read_header(members[name], info.file_size)
            _compare(path, name, dtype, shape, schema, sizes)
        for name, spec in schema.items():
            if not (spec.optional or name.endswith("*") or name in members):
                raise DamagedFile(f"{path} is damaged: the array {name!r} is missing.")
        for member in members.values():
            member.seek(0)
        return {
            name: np.lib.format.read_array(member, allow_pickle=False)
            for name, member in members.items()
        }


def map_array(
    file: IO[bytes], path: Path, name: str, schema: Schema, sizes: dict[str, int]
) -> npt.NDArray[Any]:
    """Return the array in an open file as a memory map, after its header fits."""
    shape, by_columns, dtype = read_header(file, os.fstat(file.fileno()).st_size)
    _compare(path, name, dtype, shape, schema, sizes)
    if 0 in shape:  # an empty file cannot be mapped
        return np.empty(shape, dtype)
    order: Any = "F" if by_columns else "C"
    # The map keeps the file's pages even if a writer replaces the file afterwards.
    mapped = np.memmap(file, dtype, "r", file.tell(), shape, order)
    return mapped.view(np.ndarray)


def read_header(
    stream: IO[bytes], length: int
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, Fortran order and dtype of an array that fills a stream of this length exactly."""
    old = np.lib.format.read_magic(stream) == (1, 0)
    read = (
        np.lib.format.read_array_header_1_0
        if old
        else np.lib.format.read_array_header_2_0
    )
    shape, by_columns, dtype = read(stream)
    # Objects would need pickle, and a foreign byte order would be converted silently.
    plain = dtype.kind in "biufU" and dtype.itemsize > 0 and dtype.isnative
    # Python's integers cannot overflow here, unlike a product in NumPy.
    size = math.prod(shape) * dtype.itemsize
    if not plain or min(shape, default=0) < 0 or size != length - stream.tell():
        raise ValueError("an array does not fill its file exactly")
    return shape, by_columns, dtype


def _compare(
    path: Path,
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    schema: Schema,
    sizes: dict[str, int],
) -> None:
    """Compare a header with the schema; the first array with a word fixes the size of all others."""
    # An exact name wins over a family.
    families = (n for n in schema if n.endswith("*") and name.startswith(n[:-1]))
    spec = schema.get(name if name in schema else next(families, ""))
    if spec is None:
        raise DamagedFile(
            f"{path} is damaged: it holds an unknown array {name[:80]!r}."
        )
    fits = dtype.str in spec.dtypes or dtype.kind in spec.dtypes
    if fits and spec.shape is not None:
        fits = len(shape) == len(spec.shape)
        for word, size in zip(spec.shape, shape):
            expected = sizes.setdefault(word, size) if isinstance(word, str) else word
            fits &= size == expected
    if not fits:
        raise DamagedFile(
            f"{path} is damaged: its arrays do not fit together ({name[:80]!r} is {dtype} of shape {shape})."
        )
