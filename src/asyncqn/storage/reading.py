"""Documents that are checked before anything is built from them.

`read_folder` is the entry point: it compares kind, format and checksum, and passes a `Document` to a function
of the caller's, whose data files are compared in the same way when they are used.  Anything unexpected
becomes `DamagedFile`, with one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy.typing as npt

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
from asyncqn.storage.arrays import Schema, map_array, read_arrays
from asyncqn.storage.opening import open_own, read_own
from asyncqn.storage.writing import LONGEST_DOCUMENT, FileEntry, FolderKind, check_of

Structure = TypeVar("Structure")
Stored = TypeVar("Stored")
ATTEMPTS = 3
"""Attempts to read a version that a writer replaces meanwhile, which takes it milliseconds."""


@dataclass(frozen=True)
class Document:
    """A document whose checksum matches: its content as plain data, and its open data files."""

    folder: Path
    kind: FolderKind
    plain: dict[str, Any]
    entries: dict[str, FileEntry]
    files: dict[str, BufferedReader]

    def typed(self, structure: type[Structure]) -> Structure:
        """Return the document as a typed structure; entries that the structure does not have are ignored."""
        return msgspec.convert(self.plain, structure)

    def arrays(
        self, name: str, schema: Schema, sizes: dict[str, int] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of the archive with this plain name; see `arrays.read_arrays`."""
        file = self._compared(name, verify=True)
        path = self.folder / self.entries[name].name
        return read_arrays(file, path, schema, {} if sizes is None else sizes)

    def mapped(
        self, name: str, schema: Schema, sizes: dict[str, int], verify: bool = True
    ) -> npt.NDArray[Any]:
        """Return the array in the file of this plain name as a memory map.

        Without `verify` its content is not read and compared with the checksum.
        """
        file = self._compared(name, verify)
        path = self.folder / self.entries[name].name
        return map_array(file, path, name.removesuffix(".npy"), schema, sizes)

    def _compared(self, name: str, verify: bool) -> BufferedReader:
        """Return a data file after comparing its length and, with `verify`, its checksum."""
        if name not in self.files:
            raise DamagedFile(
                f"{self.folder} is damaged: its {self.kind.document} names no {name}."
            )
        entry, file = self.entries[name], self.files[name]
        same = os.fstat(file.fileno()).st_size == entry.size
        if not same or (verify and FileEntry.of(file, entry.name) != entry):
            raise DamagedFile(
                f"{self.folder} is damaged: {entry.name} does not match its checksum in "
                f"{self.kind.document}{self.kind.advice}."
            )
        return file


def read_folder(
    folder: str | Path, kind: FolderKind, read: Callable[[Document], Stored]
) -> Stored:
    """Read a folder of this kind, although another process may be replacing it at the same time.

    Parameters
    ----------
    folder : path
        The folder.
    kind : FolderKind
        What it must be; anything else raises `BadInput`.
    read : callable
        Returns what the document and its data files hold.  Any error of it means that the folder is damaged.
        It is called again after an error, because the folder may have been replaced meanwhile.
    """
    for _ in range(ATTEMPTS - 1):
        # A reader that holds the old version's document may find its data files removed.
        with suppress(DamagedFile):
            return _read_once(Path(folder), kind, read)
    return _read_once(Path(folder), kind, read)


def _read_once(
    folder: Path, kind: FolderKind, read: Callable[[Document], Stored]
) -> Stored:
    # `lexists`: a dangling link is examined below, and refused with its own sentence.
    if not os.path.lexists(folder / kind.document):
        why = "there is no such folder"
        if os.path.isdir(folder):
            why = f"it has no {kind.document}"
        elif os.path.isfile(folder):
            why = "it is a file, not a folder"
        raise BadInput(f"{folder} is not a saved {kind.what}: {why}.")
    with damage_in_words(folder, kind), ExitStack() as opened:
        plain = _decoded(folder, kind)
        entries = msgspec.convert(plain["files"], dict[str, FileEntry])
        files = {}
        # All files at once, since a writer may remove them: an open file keeps its content.
        for name, entry in entries.items():
            # A name from a file must not lead out of the folder, so only our own pattern is accepted.
            if name not in kind.files or kind.plain_name(entry.name) != name:
                raise DamagedFile(
                    f"{folder} is damaged: it names the unknown file {entry.name[:80]!r}."
                )
            try:
                handle = open_own(folder / entry.name)
            except FileNotFoundError:
                raise DamagedFile(
                    f"{folder} is damaged: {entry.name} is missing{kind.advice}."
                ) from None
            files[name] = opened.enter_context(os.fdopen(handle, "rb"))
        return read(Document(folder, kind, plain, entries, files))


def _decoded(folder: Path, kind: FolderKind) -> dict[str, Any]:
    """Return the document of a folder after comparing kind, format and checksum."""
    plain = msgspec.json.decode(read_own(folder / kind.document, LONGEST_DOCUMENT))
    if not isinstance(plain, dict) or plain.get("kind") != kind.name:
        raise DamagedFile(
            f"{folder} is not a {kind.what}: its {kind.document} has another kind."
        )
    # Another format is refused: reading it half would be worse than not at all.
    if plain.get("format") != kind.format:
        raise DamagedFile(
            f"{folder} has format {str(plain.get('format'))[:20]}, and this version of asyncqn reads format "
            f"{kind.format}: use the version that wrote it."
        )
    if check_of(plain) != plain.get("check"):
        raise DamagedFile(
            f"{folder} is damaged: {kind.document} was altered{kind.advice}."
        )
    return plain


@contextmanager
def damage_in_words(place: str | Path, kind: FolderKind) -> Iterator[None]:
    """Turn any error of a decoder inside the block into `DamagedFile`, with one sentence."""
    try:
        yield
    except AsyncqnError:
        raise
    # A file that we may not read is not damaged.
    except PermissionError as error:
        raise BadInput(f"{place} cannot be read: {error.strerror}.") from None
    except Exception as error:  # decoders raise errors of many kinds on altered content
        # They write several sentences over several lines; a user gets the first one.
        first = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        text = first or type(error).__name__
        raise DamagedFile(
            f"{place} is damaged or not a {kind.what} of asyncqn ({text[:200]}){kind.advice}."
        ) from None
