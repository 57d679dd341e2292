"""Documents that are checked before anything is built from them.

`read_document` is the entry point: it compares kind, format and checksum, and returns a `Document`, whose
methods give the data files after the same comparison.  Anything unexpected becomes `DamagedFile`, with one
sentence.  `read_settled` wraps a reader whose files another process may replace at the same time.
"""

from __future__ import annotations

import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy.typing as npt

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
from asyncqn.storage.arrays import Spec, map_array, read_arrays
from asyncqn.storage.opening import open_own, read_own, require_memory
from asyncqn.storage.writing import (
    LONGEST_DOCUMENT,
    FileEntry,
    Kind,
    check_of,
    crc32_of,
    sha256_of,
)

Schema = TypeVar("Schema")
Stored = TypeVar("Stored")
_MAX_ATTEMPTS = 20
"""Attempts to read a version that a writer replaces meanwhile.  A replacement takes milliseconds, so a reader
that loses this often shows a defect."""

_DAMAGE = (
    *(
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        OSError,
        EOFError,
        SyntaxError,
    ),
    *(
        RuntimeError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        msgspec.MsgspecError,
    ),
    tokenize.TokenError,
)
"""The errors of the decoders on altered content.  RuntimeError: too deeply nested, or encrypted.  TokenError:
an array header that NumPy cannot parse."""


@dataclass(frozen=True)
class Document:
    """A document whose checksum matches: its content as plain data, and the entries of its data files."""

    folder: Path
    kind: Kind
    plain: dict[str, Any]
    files: dict[str, FileEntry]

    def arrays(
        self, name: str, schema: Mapping[str, Spec], sizes: dict[str, int] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of the archive with this plain name; see `arrays.read_arrays`."""
        with self._open(name, verify=True) as file:
            require_memory(
                self.folder / self.files[name].name, os.fstat(file.fileno()).st_size
            )
            return read_arrays(file, self.folder / self.files[name].name, schema, sizes)

    def mapped(
        self,
        name: str,
        array: str,
        schema: Mapping[str, Spec],
        sizes: dict[str, int],
        verify: bool = True,
    ) -> npt.NDArray[Any]:
        """Return the array in the file of this plain name as a memory map; `array` is its name in the
        schema."""
        with self._open(name, verify) as file:
            return map_array(
                file, self.folder / self.files[name].name, array, schema, sizes
            )

    def _open(self, name: str, verify: bool) -> BufferedReader:
        """Open the data file of this plain name after comparing its length and, with `verify`, its
        checksum."""
        if name not in self.files:
            raise DamagedFile(
                f"{self.folder} is damaged: its {self.kind.document} names no {name}."
            )
        entry = self.files[name]
        try:
            file = open_own(self.folder / entry.name)
        except FileNotFoundError:
            raise DamagedFile(
                f"{self.folder} is damaged: {entry.name} is missing{self.kind.advice}."
            ) from None
        try:
            # -1: formats before the newest did not store the length.
            same = entry.bytes in (-1, os.fstat(file.fileno()).st_size)
            if same and verify:
                same = (
                    sha256_of(file) == entry.sha256
                    if entry.sha256
                    else crc32_of(file) == entry.crc32
                )
            if not same:
                raise DamagedFile(
                    f"{self.folder} is damaged: {entry.name} does not match its checksum in "
                    f"{self.kind.document}{self.kind.advice}."
                )
        except BaseException:
            file.close()
            raise
        return file

    def typed(self, schema: type[Schema]) -> Schema:
        """Return the document as a typed structure; entries that the structure does not have are ignored."""
        # Later versions may add entries, which older ones must be able to skip.
        return msgspec.convert(self.plain, schema)


def read_settled(
    look: Callable[[], object],
    read: Callable[[], Stored],
    sound: Callable[[Stored], bool] = lambda _: True,
) -> Stored:
    """Read something that another process may be replacing at the same time.

    A reader that holds the old version's document may find its data files removed, which is not damage: if
    reading fails and the version has changed in between, it is read again.

    Parameters
    ----------
    look : callable
        Returns an identifier of the version that is there now.
    read : callable
        Reads it; a failure is an `AsyncqnError`.
    sound : callable
        Returns whether a result is free of defects, for readers that return defects instead of raising.
    """
    for _ in range(_MAX_ATTEMPTS - 1):
        version = look()
        try:
            result = read()
        except AsyncqnError:
            if look() == version:
                raise
        else:
            if sound(result) or look() == version:
                return result
    return read()


def version_of(folder: str | Path, kind: Kind) -> tuple[int, ...]:
    """Return an identifier of the version of a folder: every write replaces the document by a new file."""
    try:
        status = os.stat(Path(folder) / kind.document)
    except (OSError, ValueError):
        return ()
    # `os.replace` gives the document another inode, even within one tick of the clock.
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def telling_damage(place: str | Path, kind: Kind) -> Iterator[None]:
    """Turn any error of a decoder inside the block into `DamagedFile`, with one sentence."""
    try:
        yield
    except AsyncqnError:
        raise
    # A file that we may not read is not damaged.
    except PermissionError as error:
        raise BadInput(f"{place} cannot be read: {error.strerror}.") from None
    except _DAMAGE as error:
        # Decoders write several sentences over several lines; a user gets the first one.
        text = (
            " ".join(str(error).split()).split(". ")[0].rstrip(".")
            or type(error).__name__
        )
        raise DamagedFile(
            f"{place} is damaged or not a {kind.what} of asyncqn ({text[:200]}){kind.advice}."
        ) from None


def decode(path: Path) -> dict[str, Any]:
    """Return a JSON document of bounded length, which must be an object."""
    plain = msgspec.json.decode(read_own(path, LONGEST_DOCUMENT))
    if not isinstance(plain, dict):
        raise DamagedFile(
            f"{path} was not written by asyncqn: it is not a JSON object."
        )
    return plain


def read_document(folder: str | Path, kind: Kind) -> Document:
    """Return the document of a folder of this kind after comparing kind, format and checksum.

    Format 1 had no checksum of the document, and older formats had one data file of a fixed name.
    """
    folder = Path(folder)
    # `lexists`: a dangling link is examined below, and refused with its own sentence.
    if not os.path.lexists(folder / kind.document):
        missing = (
            "it is a file, not a folder"
            if os.path.isfile(folder)
            else "there is no such folder"
        )
        why = f"it has no {kind.document}" if os.path.isdir(folder) else missing
        raise BadInput(f"{folder} is not a saved {kind.what}: {why}.")
    with telling_damage(folder, kind):
        plain = decode(folder / kind.document)
        if plain.get("kind") != kind.name:
            raise DamagedFile(
                f"{folder} is not a {kind.what}: its {kind.document} has another kind."
            )
        # A newer format is refused: reading it half would be worse than not at all.
        number = plain.get("format")
        if type(number) is not int or not 1 <= number <= kind.format:
            raise DamagedFile(
                f"{folder} has format {str(number)[:20]}, and this version of asyncqn reads formats up to "
                f"{kind.format}: use the version that wrote it."
            )
        if ("check" in plain or number > 1) and check_of(plain) != plain.get("check"):
            raise DamagedFile(
                f"{folder} is damaged: {kind.document} was altered{kind.advice}."
            )
        if "files" not in plain and number < kind.format:
            files = {kind.files[0]: FileEntry(kind.files[0], -1, str(plain["sha256"]))}
        else:
            files = msgspec.convert(plain["files"], dict[str, FileEntry])
            for name, entry in files.items():
                # A name from a file must not lead out of the folder, so only our own patterns are accepted.
                if name not in kind.files or kind.plain_name(entry.name) != name:
                    raise DamagedFile(
                        f"{folder} is damaged: it names the unknown file {entry.name[:80]!r}."
                    )
        return Document(folder, kind, plain, files)
