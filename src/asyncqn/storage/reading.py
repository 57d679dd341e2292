"""Documents and arrays that are compared with what they must be before anything is made of them.

Whatever does not fit is `DamagedFile` in one sentence.  The headers of arrays are compared with the
file's real length and with a schema before room is made for any of them, so that a file can ask for
no more memory than it has bytes.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
from asyncqn.storage.writing import FileEntry, Kind, check_of, crc32_of, sha256_of

Schema = TypeVar("Schema")

LONGEST_DOCUMENT = 1 << 28
_LARGEST = 1 << 48
FLOATS, INT32, INT64, TEXT = ("<f8", "<f4"), ("<i4",), ("<i8",), ("U",)
_DAMAGE = (
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError, OSError, EOFError, SyntaxError),
    *(RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error, struct.error, msgspec.MsgspecError),
)
"""What the decoders raise on altered content (RuntimeError: too deeply nested, or encrypted)."""


class Spec(NamedTuple):
    """What an array must be: one of these dtypes (or kinds of dtype), and this shape.

    A dimension that is a word must be the same wherever the word stands; None: any shape, of which
    whoever asked for the array will know more.
    """

    dtypes: tuple[str, ...]
    shape: tuple[int | str, ...] | None
    optional: bool = False


class Header(NamedTuple):
    """The header of a stored array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Document:
    """A document whose checksum holds: all of it as plain data, and its data files."""

    folder: Path
    kind: Kind
    plain: dict[str, Any]
    files: dict[str, FileEntry]

    def path(self, name: str, verify: bool = True) -> Path:
        """Where the data file of this plain name is, once its length and (`verify`) checksum hold."""
        if name not in self.files:
            raise DamagedFile(f"{self.folder} is damaged: its {self.kind.document} names no {name}.")
        entry = self.files[name]
        path = self.folder / entry.name
        if not os.path.isfile(path):
            raise DamagedFile(f"{self.folder} is damaged: {entry.name} is missing{self.kind.advice}.")
        same = entry.bytes in (-1, path.stat().st_size)
        if same and verify:
            same = sha256_of(path) == entry.sha256 if entry.sha256 else crc32_of(path) == entry.crc32
        if not same:
            raise DamagedFile(
                f"{self.folder} is damaged: {entry.name} does not match its checksum in "
                f"{self.kind.document}{self.kind.advice}."
            )
        return path

    def typed(self, schema: type[Schema]) -> Schema:
        """The document as a typed structure; names it does not know are left out."""
        return msgspec.convert(self.plain, schema)


@contextmanager
def telling_damage(place: str | Path, kind: Kind) -> Iterator[None]:
    """Whatever a decoder raises inside becomes `DamagedFile`, in one sentence."""
    try:
        yield
    except AsyncqnError:
        raise
    except PermissionError as error:
        raise BadInput(f"{place} cannot be read: {error.strerror}.") from None
    except _DAMAGE as error:
        text = " ".join(str(error).split()).split(". ")[0].rstrip(".") or type(error).__name__
        raise DamagedFile(
            f"{place} is damaged or not a {kind.what} of asyncqn ({text[:200]}){kind.advice}."
        ) from None


def decode(path: Path) -> dict[str, Any]:
    """A JSON document of bounded length, which must be an object."""
    if path.stat().st_size > LONGEST_DOCUMENT:
        raise DamagedFile(f"{path} is longer than any document of asyncqn.")
    plain = msgspec.json.decode(path.read_bytes())
    if not isinstance(plain, dict):
        raise DamagedFile(f"{path} was not written by asyncqn: it is of another kind.")
    return plain


def read_document(folder: str | Path, kind: Kind) -> Document:
    """The document of a folder of this kind, once its kind, format and checksum were compared.

    Format 1 had no checksum of itself, and before the newest there was one data file of fixed name.
    """
    folder = Path(folder)
    if not os.path.isfile(folder / kind.document):
        raise BadInput(f"{folder} is not a saved {kind.what}: it has no {kind.document}.")
    with telling_damage(folder, kind):
        plain = decode(folder / kind.document)
        if plain.get("kind") != kind.name:
            raise DamagedFile(f"{folder} was not written by asyncqn: its {kind.document} is of another kind.")
        number = plain.get("format")
        if type(number) is not int or not 1 <= number <= kind.format:
            raise DamagedFile(
                f"{folder} has format {str(number)[:20]}, this version of asyncqn reads {kind.format}: "
                "use the version that wrote it."
            )
        if ("check" in plain or number > 1) and check_of(plain) != plain.get("check"):
            raise DamagedFile(f"{folder} is damaged: {kind.document} was altered{kind.advice}.")
        if "files" not in plain and number < kind.format:
            files = {kind.files[0]: FileEntry(kind.files[0], -1, str(plain["sha256"]))}
        else:
            files = msgspec.convert(plain["files"], dict[str, FileEntry])
            for name, entry in files.items():
                if name not in kind.files or kind.plain_name(entry.name) != name:
                    raise DamagedFile(f"{folder} is damaged: it names the unknown file {entry.name[:80]!r}.")
        return Document(folder, kind, plain, files)


def read_arrays(
    path: Path, schema: Mapping[str, Spec], sizes: dict[str, int] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an archive, once all their headers fit the schema and each other.

    A name in the schema that ends in * stands for any number of arrays.  `sizes` are dimensions known
    already, by word; those that are found are added.
    """
    sizes = {} if sizes is None else sizes
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        room = os.fstat(file.fileno()).st_size
        members: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.compress_type != zipfile.ZIP_STORED or name in members or name == info.filename:
                raise DamagedFile(f"{path} is damaged: {info.filename[:80]!r} was not written by asyncqn.")
            room -= info.file_size
            if room < 0:
                raise DamagedFile(f"{path} is damaged: its arrays claim to be larger than the file.")
            with archive.open(info) as member:
                _compare(path, name, read_header(member, info.file_size), schema, sizes)
            members[name] = info
        for name, spec in schema.items():
            if not (spec.optional or name.endswith("*") or name in members):
                raise DamagedFile(f"{path} is damaged: the array {name!r} is missing.")
        arrays = {}
        for name, info in members.items():
            with archive.open(info) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
        return arrays


def map_array(path: Path, name: str, schema: Mapping[str, Spec], sizes: dict[str, int]) -> npt.NDArray[Any]:
    """An array in a file of its own as a memory map, once its header fits."""
    with path.open("rb") as file:
        header = read_header(file, os.fstat(file.fileno()).st_size)
    _compare(path, name, header, schema, sizes)
    mapped: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped.view(np.ndarray)


def read_header(stream: IO[bytes], length: int) -> Header:
    """The header of an array that fills the rest of a stream of this length exactly."""
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, _, dtype = read(stream)
    elements = 1
    for size in shape:
        if not 0 <= size <= _LARGEST:
            raise ValueError("a size that no array has")
        elements *= size
    plain = dtype.kind in "biufU" and dtype.itemsize > 0 and dtype.isnative
    if not plain or elements * dtype.itemsize != length - stream.tell():
        raise ValueError("an array of another length than its file")
    return Header(dtype, shape)


def _compare(
    path: Path, name: str, header: Header, schema: Mapping[str, Spec], sizes: dict[str, int]
) -> None:
    family = next((n for n in schema if n.endswith("*") and name.startswith(n[:-1])), None)
    spec = schema.get(name) or (schema[family] if family is not None else None)
    if spec is None:
        raise DamagedFile(f"{path} is damaged: it holds an unknown array {name[:80]!r}.")
    fits = header.dtype.str in spec.dtypes or header.dtype.kind in spec.dtypes
    if fits and spec.shape is not None:
        fits = len(header.shape) == len(spec.shape)
        for word, size in zip(spec.shape, header.shape):
            fits &= size == (sizes.setdefault(word, size) if isinstance(word, str) else word)
    if not fits:
        raise DamagedFile(
            f"{path} is damaged: its arrays do not fit together ({name[:80]!r} is {header.dtype} of shape "
            f"{header.shape})."
        )
