"""Files and folders that are written completely or not at all.

A folder of ours holds one small JSON document and the data files that it names.  A new version is written
beside the old one: data files under unused names, forced to disk, then the document, which one `os.replace`
switches; only then are the superseded data files removed.  Whenever the writer is killed, the old version or
the new one is there, and other files in the folder are untouched.  All names are resolved against the handle
of the open folder, and none of them through a link.

Read `write_whole` (one file) and `write_folder` (a folder) first; `_write_version` has the order of the steps
on which the promise rests.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePath
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import AsyncqnError, BadInput
from asyncqn.storage.locks import sole_writer
from asyncqn.storage.opening import (
    check_output,
    open_folder,
    open_own,
    own_handle,
    read_own,
    require_own,
)

Write = Callable[[IO[bytes]], Any]
LONGEST_DOCUMENT = 1 << 28
"""Largest size of a document, in bytes, that is read: a damaged one must not fill the memory."""
_BLOCK = 1 << 18
"""Bytes that are read at a time; small enough for the processor's cache."""


@dataclass(frozen=True)
class Kind:
    """A kind of folder: its name in messages (`what`), its document and format, and its data files.

    `files` are plain names, which formats before `format` used directly.  A written file has twelve random
    hexadecimal digits added to its stem.  `advice` says what to do about a damaged folder.
    """

    name: str
    what: str
    document: str
    format: int
    files: tuple[str, ...]
    checksum: str = "sha256"
    advice: str = ""

    def plain_name(self, name: str) -> str | None:
        """Return the plain name of a written file of this kind, or None for a foreign file."""
        plain, token = _plain_name(name)
        return plain if token and plain in (*self.files, self.document) else None


class FileEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A document's entry for a data file: name, length and checksum."""

    name: str
    bytes: int
    sha256: str = ""
    crc32: int = 0

    @classmethod
    def of(cls, file: BufferedReader, name: str, checksum: str) -> FileEntry:
        size = os.fstat(file.fileno()).st_size
        if checksum == "crc32":
            return cls(name, size, crc32=crc32_of(file))
        return cls(name, size, sha256=sha256_of(file))


def sha256_of(file: BufferedReader) -> str:
    """Return the SHA-256 of an open file, and rewind the file."""
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    return digest


def crc32_of(file: BufferedReader) -> int:
    """Return the CRC-32 of an open file, fast enough for large columns, and rewind the file.

    It detects accidents, not manipulation.
    """
    total, block = 0, memoryview(bytearray(_BLOCK))
    while count := file.readinto(block):
        total = zlib.crc32(block[:count], total)
    file.seek(0)
    return total


def check_of(document: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON document, which stores it as its entry `check`."""
    # Sorted keys make the text, and thereby the checksum, independent of the order of insertion.
    rest = {key: value for key, value in document.items() if key != "check"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def check_place(path: str | Path) -> None:
    """Raise `BadInput` early for a path that cannot be written to; leave no trace."""
    with _in_words(f"{path} cannot be written"):
        if not os.path.isdir(path):
            check_output(path)
        # The path itself may not exist yet, nor the folders above it.
        parents = Path(path).absolute().parents
        nearest = next(parent for parent in parents if os.path.lexists(parent))
        # Only an attempt tells whether a folder is writable: permissions, quotas and read-only mounts all
        # count.
        with tempfile.TemporaryFile(dir=nearest):
            pass
        # A name that is too long, or not allowed, fails here and not after hours of work.
        with suppress(FileNotFoundError):
            os.lstat(path)


def npz(arrays: Mapping[str, npt.NDArray[Any]]) -> Write:
    """Return a function that writes named arrays as one archive, in their memory layout."""
    return lambda file: np.savez(file, **arrays)  # type: ignore[arg-type]


def npy(array: npt.NDArray[Any]) -> Write:
    """Return a function that writes one array, in memory or memory-mapped, in its layout."""
    return lambda file: np.save(file, array, allow_pickle=False)


def write_whole(path: str | Path, content: bytes | str | Write) -> Path:
    """Write beside `path`, force to disk, then move into place, so that no reader sees a partial file.

    `content` may be a function that writes to the open file, for content that should not be held at once.
    Missing folders are created.  A symbolic link that the user named stays, and the regular file it points to
    is replaced; a device, a named pipe or a folder is refused.
    """
    with _in_words(f"{path} cannot be written"):
        # The link that a user named is resolved once, here, and not again at the rename.
        place = Path(os.path.realpath(path))
        check_output(place)
        made = _make_folder(place.parent)
        # In the same folder, because a rename is atomic only within one file system.
        scratch = f".{uuid.uuid4().hex[:12]}{place.suffix}"
        with open_folder(place.parent) as folder:
            try:
                _fill(place.with_name(scratch), folder, content)
                os.replace(scratch, place.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(scratch, dir_fd=folder)
                _remove_empty(made)
                raise
            force_folder(folder)
    return Path(path)


def check_folder(folder: str | Path, kind: Kind) -> None:
    """Raise `BadInput` early for a folder that `write_folder` would refuse."""
    # A new folder is always allowed.
    if not os.path.lexists(folder):
        return
    try:
        names = os.listdir(folder)
    except OSError:
        names = ["no folder"]
    # A folder with only leftovers of a killed writer is ours; any foreign file means that it is not.
    if kind.document not in names and any(
        kind.plain_name(name) is None for name in names
    ):
        raise BadInput(
            f"{folder} exists and is not a {kind.what}: choose another folder, or empty it."
        )
    require_own(Path(folder) / kind.document)


def write_folder(
    folder: str | Path,
    kind: Kind,
    document: Mapping[str, Any],
    files: Mapping[str, Write],
    *,
    inside: str = "",
) -> Path:
    """Write a folder of this kind, completely or not at all; an older version there is replaced.

    `files` maps plain names to functions that write the data files.  `document` is plain data, to which the
    kind, the format, the entries of the files and a checksum are added.  With `inside`, the folder of this
    name in `folder` is written; it must not be a link.
    """
    # One token per version: all files of a version are recognised by it.
    token = uuid.uuid4().hex[:12]
    with _in_words(f"the {kind.what} cannot be saved to {Path(folder, inside)}"):
        outer = Path(os.path.realpath(folder))
        place = outer / inside
        if not inside:
            check_folder(place, kind)
        made = ([place] if inside else []) + _make_folder(outer)
        try:
            with open_folder(outer, inside) as handle:
                # Once more: another writer may have come first.
                check_folder(place, kind)
                try:
                    with sole_writer(handle, place) as sole:
                        _write_version(
                            place, handle, sole, kind, token, document, files
                        )
                except BaseException:
                    _undo(place, handle, kind, token)
                    raise
        except BaseException:
            _remove_empty(made)
            raise
    return Path(folder, inside)


def _write_version(
    place: Path,
    folder: int,
    sole: bool,
    kind: Kind,
    token: str,
    document: Mapping[str, Any],
    files: Mapping[str, Write],
) -> None:
    """Write a new version beside the old one, switch to it, and remove the superseded files."""
    entries = {}
    for plain, write in files.items():
        path = place / _unique_name(plain, token)
        _fill(path, folder, write)
        with open_own(path, folder) as file:
            entries[plain] = msgspec.to_builtins(
                FileEntry.of(file, path.name, kind.checksum)
            )
    sealed = {**document, "kind": kind.name, "format": kind.format, "files": entries}
    sealed["check"] = check_of(sealed)
    scratch = _unique_name(kind.document, token)
    _fill(place / scratch, folder, json.dumps(sealed, indent=1, allow_nan=False) + "\n")
    superseded = _named(place, folder, kind)
    # Data files and their names must be on disk before the document that names them.
    force_folder(folder)
    os.replace(scratch, kind.document, src_dir_fd=folder, dst_dir_fd=folder)
    force_folder(folder)
    for name in os.listdir(folder):
        # Files that the old document named go; leftovers of killed writers go only if we alone write here.
        if _plain_name(name)[1] != token and (
            name in superseded or (sole and kind.plain_name(name))
        ):
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)


def remove_quietly(path: Path) -> None:
    """Remove a file or folder of ours, if it is there and can be removed."""
    with suppress(OSError):
        path.unlink()
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)


def move(path: Path, target: Path) -> Path:
    """Move a complete file to its final name in the same folder, durably."""
    # The content must be on disk before the name points to it.
    with open_own(path) as file:
        os.fsync(file.fileno())
    os.replace(path, target)
    with open_folder(target.parent) as folder:
        force_folder(folder)
    return target


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    """Turn a refusal of the system into one sentence; a path with a null byte raises ValueError."""
    try:
        yield
    except AsyncqnError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        words = what if len(what) < 300 else f"{what[:140]} ... {what[-140:]}"
        raise BadInput(f"{words}: {reason}.") from None


def _fill(path: Path, folder: int, content: bytes | str | Write) -> None:
    """Write a new file into the open folder, and force it to disk."""
    # O_EXCL: a file or link that somebody planted under this name is not opened.
    handle = own_handle(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder)
    with os.fdopen(handle, "wb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def _make_folder(folder: Path) -> list[Path]:
    """Create a folder and its parents; return those that were missing, innermost first."""
    missing = []
    for place in (folder, *folder.parents):
        if os.path.isdir(place):
            break
        missing.append(place)
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def force_folder(folder: int) -> None:
    """Force the names in an open folder to disk, where the file system supports it."""
    with suppress(OSError):
        os.fsync(folder)


def _unique_name(plain: str, token: str) -> str:
    path = PurePath(plain)
    return f"{path.stem}-{token}{path.suffix}"


def _plain_name(name: str) -> tuple[str, str]:
    """Return the plain name and the token of a data file; the token is empty for any other name."""
    found = re.fullmatch(r"(.+)-([0-9a-f]{12})(\.[a-z]+)", name)
    return (found[1] + found[3], found[2]) if found else (name, "")


def _named(place: Path, folder: int, kind: Kind) -> set[str]:
    """Return the names of the data files in the folder's current document, as far as it can be read."""
    try:
        document = json.loads(read_own(place / kind.document, LONGEST_DOCUMENT, folder))
        if "files" not in document:
            return set(kind.files)
        names = {entry["name"] for entry in document["files"].values()}
    # An unreadable document names nothing, so that nothing is removed for its sake.
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        AsyncqnError,
    ):
        return set()
    return {name for name in names if isinstance(name, str) and kind.plain_name(name)}


def _undo(place: Path, folder: int, kind: Kind, token: str) -> None:
    """Remove the files of a failed writer, unless the document names them by now."""
    with suppress(OSError, AsyncqnError):
        # The switch had happened before the error, so the new version is the valid one.
        if token.encode() in read_own(place / kind.document, LONGEST_DOCUMENT, folder):
            return
    with suppress(OSError):
        for name in os.listdir(folder):
            if _plain_name(name)[1] == token:
                os.unlink(name, dir_fd=folder)


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):
        # `rmdir` fails on a folder that is not empty, so that nothing of a user's is ever removed.
        for folder in folders:
            folder.rmdir()
