"""Files and folders that are written completely or not at all.

A folder of ours holds one small JSON document and the data files that it names.  A new version is written
beside the old one: data files under unused names, forced to disk, then the document, which one `os.replace`
switches; only then are the superseded data files removed.  Whenever the writer is killed, the old version or
the new one is there, and other files in the folder are untouched.

Read `write_whole` (one file) and `write_folder` (a folder) first; `_write_version` has the order of the steps
on which the promise rests.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import AsyncqnError, BadInput
from asyncqn.storage.opening import (
    check_output,
    open_own,
    read_own,
    require_real_folder,
    short,
)

Content: TypeAlias = (
    bytes
    | str
    | npt.NDArray[Any]
    | Mapping[str, npt.NDArray[Any]]
    | Callable[[IO[bytes]], Any]
)
"""The content of a file; see `write_whole`."""
LONGEST_DOCUMENT = 1 << 28
"""Largest size of a document, in bytes, that is read: a damaged one must not fill the memory."""


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder.

    Parameters
    ----------
    name : str
        The entry `kind` of its document.
    what : str
        The kind in messages.
    document : str
        The name of its document.
    format : int
        The format that is written and read.
    files : tuple of str
        The plain names of its data files; a written file has twelve random hexadecimal digits added to its
        stem.
    advice : str, default ""
        What to do about a damaged folder: the end of a sentence.
    """

    name: str
    what: str
    document: str
    format: int
    files: tuple[str, ...]
    advice: str = ""

    def plain_name(self, name: str) -> str | None:
        """Return the plain name of a written file of this kind, or None for a foreign file."""
        match = re.fullmatch(r"(.+)-[0-9a-f]{12}(\.[a-z]+)", name)
        plain = match[1] + match[2] if match else ""
        return plain if plain in (*self.files, self.document) else None

    def check_place(self, folder: str | Path) -> None:
        """Raise `BadInput` for a folder that holds anything but a folder of this kind."""
        place = Path(folder)
        with in_words(f"the {self.what} cannot be saved to {place}"):
            if not os.path.lexists(place):
                return
            names = os.listdir(place) if place.is_dir() else ["no folder"]
            if self.document in names:
                os.close(open_own(place / self.document))
            # A folder with only leftovers of a killed writer is ours; any foreign file means that it is not.
            elif any(self.plain_name(name) is None for name in names):
                raise BadInput(
                    f"{folder} exists and is not a {self.what}: choose another folder, or empty it."
                )


class FileEntry(msgspec.Struct, frozen=True):
    """A document's entry for a data file: name, size in bytes, and CRC-32, which detects accidents."""

    name: str
    size: int
    crc32: int

    @classmethod
    def of(cls, file: IO[bytes], name: str) -> FileEntry:
        """Return the entry of an open file, and rewind the file."""
        total = 0
        while block := file.read(1 << 18):  # fits into the processor's cache
            total = zlib.crc32(block, total)
        size = file.tell()
        file.seek(0)
        return cls(name, size, total)


def check_of(document: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON document, which stores it as its entry `check`."""
    # Sorted keys make the text, and thereby the checksum, independent of the order of insertion.
    rest = {key: value for key, value in document.items() if key != "check"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def write_whole(path: str | Path, content: Content) -> Path:
    """Write beside `path`, force to disk, then move into place, so that no reader sees a partial file.

    `content` is text, bytes, an array (.npy), named arrays (.npz), or a function that writes to the open
    file, for content that should not be held at once.  Missing folders are created.  A symbolic link that the
    user named stays, and the regular file it points to is replaced; a device, a named pipe or a folder is
    refused.
    """
    with in_words(f"{path} cannot be written"):
        # The link that a user named is resolved once, here, and not again at the rename.
        place = Path(os.path.realpath(path))
        check_output(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, because a rename is atomic only within one file system.
        scratch = place.with_name(f".{uuid.uuid4().hex[:12]}{place.suffix}")
        try:
            _fill(scratch, content)
            os.replace(scratch, place)
        except BaseException:
            with suppress(OSError):
                os.unlink(scratch)
            raise
        force_folder(place.parent)
    return Path(path)


def write_folder(
    folder: str | Path,
    kind: FolderKind,
    document: Mapping[str, Any],
    files: Mapping[str, Content],
    *,
    inside: str = "",
) -> Path:
    """Write a folder of this kind, completely or not at all; an older version there is replaced.

    Parameters
    ----------
    folder : path
        The folder; it may be reached through links.
    kind : FolderKind
        What it is.
    document : dict
        Plain data, to which the kind, the format, the entries of the files and a checksum are added.
    files : dict
        The content of the data files, by their plain names; see `write_whole`.
    inside : str, default ""
        The folder of this name in `folder` is written; it must not be a link.
    """
    with in_words(f"the {kind.what} cannot be saved to {Path(folder, inside)}"):
        place = Path(os.path.realpath(folder)) / inside
        if not inside:
            kind.check_place(place)
        else:
            require_real_folder(place)
        place.mkdir(parents=True, exist_ok=True)
        try:
            _write_version(place, kind, document, files)
        finally:
            # After the switch these are the old version's files, and before it those of this one.
            _remove_unnamed(place, kind)
    return Path(folder, inside)


def _write_version(
    place: Path,
    kind: FolderKind,
    document: Mapping[str, Any],
    files: Mapping[str, Content],
) -> None:
    """Write a new version beside the old one, and switch to it."""
    # All files of a version have the same unused digits in their names.
    token = uuid.uuid4().hex[:12]
    entries = {}
    for plain, content in files.items():
        path = place / _with_token(plain, token)
        _fill(path, content)
        with os.fdopen(open_own(path), "rb") as file:
            entries[plain] = msgspec.to_builtins(FileEntry.of(file, path.name))
    sealed = {**document, "kind": kind.name, "format": kind.format, "files": entries}
    sealed["check"] = check_of(sealed)
    scratch = place / _with_token(kind.document, token)
    _fill(scratch, json.dumps(sealed, indent=1, allow_nan=False) + "\n")
    # Data files and their names must be on disk before the document that names them.
    force_folder(place)
    os.replace(scratch, place / kind.document)
    force_folder(place)


def _remove_unnamed(place: Path, kind: FolderKind) -> None:
    """Remove data files that the folder's document does not name: superseded ones, and debris.

    Nothing is removed beside a document that cannot be read, for its files may be all that is left.
    """
    with suppress(OSError, ValueError, LookupError, TypeError, AsyncqnError):
        names = [name for name in os.listdir(place) if kind.plain_name(name)]
        named = set()
        with suppress(FileNotFoundError):
            text = read_own(place / kind.document, LONGEST_DOCUMENT)
            named = {entry["name"] for entry in json.loads(text)["files"].values()}
        for name in set(names) - named:
            os.unlink(place / name)


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """Turn a refusal of the system into one sentence; a path with a null byte raises ValueError."""
    try:
        yield
    except AsyncqnError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{short(what)}: {reason}.") from None


def _fill(path: Path, content: Content) -> None:
    """Write a new file and force it to disk."""
    # O_EXCL: a file or link that somebody planted under this name is not opened.
    handle = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(handle, "wb") as file:
        if callable(content):
            content(file)
        elif isinstance(content, np.ndarray):
            np.save(file, content, allow_pickle=False)
        elif isinstance(content, Mapping):
            np.savez(file, allow_pickle=False, **content)
        else:
            file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def force_folder(folder: Path) -> None:
    """Force the names in a folder to disk, where it can be opened and the file system supports it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _with_token(plain: str, token: str) -> str:
    path = PurePath(plain)
    return f"{path.stem}-{token}{path.suffix}"
