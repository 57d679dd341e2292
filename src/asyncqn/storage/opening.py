"""The one place that opens files: regular files alone, without blocking, and no planted links.

There are two rules.  A file that a *user names* (a job file, a CSV) may be reached through symbolic links, but
it must be a regular file: a named pipe can block forever, and a device can deliver bytes without end.  A file
*inside a folder of ours* (a run, a checkpoint, a model, stored ratings) was written by asyncqn.  A link there
was planted, and following it would read or write a file outside the folder, so it is refused.  A file that we
overwrite in place may have no second name either, because that could be a file of somebody else's.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from asyncqn.errors import BadInput, DamagedFile

# O_NONBLOCK: opening a named pipe must not wait for a writer.  O_NOCTTY: a terminal must not become ours.
_SAFE = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FILE_TYPES = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def open_input(
    path: str | os.PathLike[str], limit: int | None = None
) -> BufferedReader:
    """Open a file that a user named, for reading.

    Parameters
    ----------
    path : str or path-like
        The file; symbolic links are followed.
    limit : int, optional
        Largest size to accept, in bytes; unlimited by default.

    Returns
    -------
    binary file

    Raises
    ------
    BadInput
        If `path` is not a regular file, or is larger than `limit`.
    OSError
        If it cannot be opened.
    """
    # A socket cannot be opened at all, and opening a device can have effects.
    _require_input(path, os.stat(path), limit)
    handle = os.open(path, os.O_RDONLY | _SAFE)
    try:
        # The file may have been replaced since `stat`.
        _require_input(path, os.fstat(handle), limit)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def check_output(path: str | os.PathLike[str]) -> None:
    """Raise `BadInput` unless an output path is a regular file or missing."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(
            f"{_short(path)} is {_file_type(status)}: name a regular file to write to."
        )


def open_own(path: Path, flags: int = os.O_RDONLY, limit: int | None = None) -> int:
    """Open a file inside a folder of ours, and return its handle.

    Parameters
    ----------
    path : Path
        The file.
    flags : int
        Flags of `os.open`.
    limit : int, optional
        Largest size to accept, in bytes.

    Raises
    ------
    DamagedFile
        If it is a link, no regular file, too long, or has a second name and is opened for writing.
    OSError
        If it cannot be opened.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | _SAFE, 0o666)
    except OSError as error:
        # A link, a socket or pipe, and a folder: each is refused by the system with an error of its own.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _planted(path, _file_type(os.lstat(path)), "regular file") from None
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _planted(path, _file_type(status), "regular file")
        # O_RDONLY is no flag but the absence of the other two.
        if status.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
            raise _planted(path, "a hard link", "file with one name")
        if limit is not None and status.st_size > limit:
            raise DamagedFile(
                f"{_short(path)} is damaged: it is longer than any such file of asyncqn."
            )
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_own(path: Path, limit: int) -> bytes:
    """Return the content of a file inside a folder of ours, which has at most `limit` bytes."""
    with os.fdopen(open_own(path, limit=limit), "rb") as file:
        return file.read(limit)


def require_real_folder(path: Path) -> None:
    """Raise `DamagedFile` if a folder of ours, inside another, is a link or a file; it may be missing."""
    if os.path.lexists(path):
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            raise _planted(path, _file_type(status), "folder")


def _require_input(
    path: str | os.PathLike[str], status: os.stat_result, limit: int | None
) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _file_type(status)
        pipe = stat.S_ISFIFO(status.st_mode)
        hint = ", to which you have saved the output of the pipe" if pipe else ""
        raise BadInput(f"{_short(path)} is {kind}: name a regular file{hint}.")
    if limit is not None and status.st_size > limit:
        raise BadInput(
            f"{_short(path)} has {status.st_size:,} bytes, but at most {limit:,} are allowed."
        )


def _planted(path: Path, what: str, wanted: str) -> DamagedFile:
    return DamagedFile(
        f"{_short(path)} is {what}, where asyncqn keeps a {wanted} of its own: remove it, or use another "
        "folder."
    )


def _file_type(status: os.stat_result) -> str:
    return _FILE_TYPES.get(stat.S_IFMT(status.st_mode), "no regular file")


def _short(path: str | os.PathLike[str]) -> str:
    # A sentence with a path of thousands of characters could not be read.
    text = os.fspath(path)
    return text if len(text) < 300 else f"{text[:140]} ... {text[-140:]}"
