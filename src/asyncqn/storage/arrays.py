"""Read stored arrays, after comparing their headers with a schema and with the length of the file.

Memory is allocated only after that, so a damaged or malicious file can claim no more memory than it has
bytes.  Anything else raises `DamagedFile`, or an error that `telling_damage` turns into a sentence.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import DamagedFile

FLOATS, INT32, INT64, TEXT = ("<f8", "<f4"), ("<i4",), ("<i8",), ("U",)
_MAX_DIMENSION = 1 << 48
"""Largest dimension of an array; larger ones could overflow the product of sizes."""
_MAX_HEADER_BYTES = 1 << 16
"""Largest header of an array, in bytes."""
_BLOCK = 1 << 20
"""Bytes that are read at a time."""
_USUAL_HEADER = re.compile(
    rb"\{'descr': '([<|][a-zA-Z][0-9]+)', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n"
)
"""The header as NumPy writes it.  Others are left to NumPy's own parser, which would take most of the time
for a small file."""


class Spec(NamedTuple):
    """The dtypes (or kinds of dtype) and the shape that an array must have.

    A dimension that is a word must have the same size wherever the word occurs.  A shape of None accepts any
    shape; the caller then checks it.
    """

    dtypes: tuple[str, ...]
    shape: tuple[int | str, ...] | None
    optional: bool = False


class Header(NamedTuple):
    """The header of a stored array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    by_columns: bool = False
    """Whether the first index runs fastest."""


def read_arrays(
    file: IO[bytes],
    path: Path,
    schema: Mapping[str, Spec],
    sizes: dict[str, int] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an open archive, after all their headers fit the schema and each other.

    A name in the schema that ends in * matches any number of arrays.  `sizes` holds the dimensions that are
    known already, by word; those that are found are added.  `path` names the archive in messages.
    """
    sizes = {} if sizes is None else sizes
    with zipfile.ZipFile(file) as archive, ExitStack() as members:
        # `room` is what is left of the file's length: archives could otherwise list the same bytes many
        # times.
        room = os.fstat(file.fileno()).st_size
        found: dict[str, tuple[IO[bytes], Header]] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            # We store without compression and under names that end in .npy; a repeated name would hide an
            # array.
            if (
                info.compress_type != zipfile.ZIP_STORED
                or name in found
                or name == info.filename
            ):
                raise DamagedFile(
                    f"{path} is damaged: {info.filename[:80]!r} was not written by asyncqn."
                )
            room -= info.file_size
            if room < 0:
                raise DamagedFile(
                    f"{path} is damaged: its arrays claim to be larger than the file."
                )
            member = members.enter_context(archive.open(info))
            header = read_header(member, info.file_size)
            _compare(path, name, header, schema, sizes)
            found[name] = member, header
        for name, spec in schema.items():
            if not (spec.optional or name.endswith("*") or name in found):
                raise DamagedFile(f"{path} is damaged: the array {name!r} is missing.")
        return {
            name: _read_numbers(member, header)
            for name, (member, header) in found.items()
        }


def map_array(
    file: IO[bytes],
    path: Path,
    name: str,
    schema: Mapping[str, Spec],
    sizes: dict[str, int],
) -> npt.NDArray[Any]:
    """Return the array in an open file as a memory map, after its header fits."""
    header = read_header(file, os.fstat(file.fileno()).st_size)
    _compare(path, name, header, schema, sizes)
    if 0 in header.shape:  # an empty file cannot be mapped
        return np.empty(header.shape, header.dtype)
    order: Any = "F" if header.by_columns else "C"
    # The map keeps the file's pages even if a writer replaces the file afterwards.
    mapped = np.memmap(file, header.dtype, "r", file.tell(), header.shape, order)
    return mapped.view(np.ndarray)


def read_header(stream: IO[bytes], length: int) -> Header:
    """Return the header of an array that fills the rest of a stream of this length exactly."""
    start = stream.read(10)
    words = (
        stream.read(int.from_bytes(start[8:], "little"))
        if start[:8] == b"\x93NUMPY\x01\x00"
        else b""
    )
    usual = _USUAL_HEADER.fullmatch(words)
    if usual is not None:
        numbers = usual[2].decode().split(",")
        dtype, shape = (
            np.dtype(usual[1].decode()),
            tuple(int(size) for size in numbers if size.strip()),
        )
        header = Header(dtype, shape)
    else:
        header = _unusual_header(stream, start + words)
    # Python's integers cannot overflow here, unlike a product in NumPy.
    elements = 1
    for size in header.shape:
        if not 0 <= size <= _MAX_DIMENSION:
            raise ValueError("an array has an impossible size")
        elements *= size
    # Objects would need pickle, and a foreign byte order would be converted silently.
    dtype = header.dtype
    plain = dtype.kind in "biufU" and dtype.itemsize > 0 and dtype.isnative
    if not plain or elements * dtype.itemsize != length - stream.tell():
        raise ValueError("an array does not fill its file exactly")
    return header


def _unusual_header(stream: IO[bytes], begun: bytes) -> Header:
    """Parse a header, of which the first bytes have been read, with NumPy's own parser."""
    if begun[:8] == b"\x93NUMPY\x02\x00":
        begun += stream.read(2)
        begun += stream.read(
            min(int.from_bytes(begun[8:12], "little"), _MAX_HEADER_BYTES)
        )
    again = io.BytesIO(begun)
    version = np.lib.format.read_magic(again)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, by_columns, dtype = read(again)
    return Header(dtype, shape, by_columns)


def _read_numbers(stream: IO[bytes], header: Header) -> npt.NDArray[Any]:
    """Read the numbers that follow a header."""
    # The size was compared with the file's length before, so this allocation is bounded.
    array: npt.NDArray[Any] = np.empty(
        header.shape, header.dtype, "F" if header.by_columns else "C"
    )
    content = (
        array.reshape(-1, order="A").view(np.uint8)
        if array.size
        else np.empty(0, np.uint8)
    )
    for start in range(0, content.size, _BLOCK):
        block = np.frombuffer(stream.read(min(_BLOCK, content.size - start)), np.uint8)
        if block.size != content[start : start + _BLOCK].size:
            raise EOFError("an array ends too soon")
        content[start : start + _BLOCK] = block
    return array


def _compare(
    path: Path,
    name: str,
    header: Header,
    schema: Mapping[str, Spec],
    sizes: dict[str, int],
) -> None:
    # An exact name wins over a family.
    family = next(
        (n for n in schema if n.endswith("*") and name.startswith(n[:-1])), None
    )
    spec = schema.get(name) or (schema[family] if family is not None else None)
    if spec is None:
        raise DamagedFile(
            f"{path} is damaged: it holds an unknown array {name[:80]!r}."
        )
    fits = header.dtype.str in spec.dtypes or header.dtype.kind in spec.dtypes
    if fits and spec.shape is not None:
        fits = len(header.shape) == len(spec.shape)
        # The first array with a word fixes its size; all later ones must agree.
        for word, size in zip(spec.shape, header.shape):
            fits &= size == (
                sizes.setdefault(word, size) if isinstance(word, str) else word
            )
    if not fits:
        raise DamagedFile(
            f"{path} is damaged: its arrays do not fit together ({name[:80]!r} is {header.dtype} of shape "
            f"{header.shape})."
        )
