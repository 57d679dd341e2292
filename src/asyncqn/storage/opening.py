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
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path

from asyncqn.errors import BadInput, DamagedFile

AnyPath = str | os.PathLike[str]
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


def open_input(path: AnyPath, limit: int | None = None) -> BufferedReader:
    """Open a file that a user named, for reading.

    Parameters
    ----------
    path : str or path-like
        The file, which must be a regular one; symbolic links are followed.
    limit : int, optional
        Largest size to accept, in bytes.
    """

    def check(status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(
                f"{short(path)} is {_file_type(status)}: name a regular file."
            )
        if limit is not None and status.st_size > limit:
            raise BadInput(
                f"{short(path)} has {status.st_size:,} bytes, but at most {limit:,} are allowed."
            )

    # Before it is opened, because a socket cannot be, and opening a device can have effects.
    check(os.stat(path))
    return os.fdopen(_open(path, os.O_RDONLY, check), "rb")


def check_output(path: AnyPath) -> None:
    """Raise `BadInput` unless an output path is a regular file or missing."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(
            f"{short(path)} is {_file_type(status)}: name a regular file to write to."
        )


def open_own(path: Path, flags: int = os.O_RDONLY, limit: int | None = None) -> int:
    """Open a file inside a folder of ours with flags of `os.open`, and return its handle.

    A link, anything but a regular file, and a file of more than `limit` bytes raise `DamagedFile`, as does a
    file with a second name that is opened for writing.
    """

    def check(status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise _planted(path, _file_type(status), "regular file")
        # O_RDONLY is no flag but the absence of the other two.
        if status.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
            raise _planted(path, "a hard link", "file with one name")
        if limit is not None and status.st_size > limit:
            raise DamagedFile(
                f"{short(path)} is damaged: it is longer than any such file of asyncqn."
            )

    try:
        return _open(path, flags | os.O_NOFOLLOW, check)
    except OSError as error:
        # A link, a socket or pipe, and a folder: each is refused by the system with an error of its own.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _planted(path, _file_type(os.lstat(path)), "regular file") from None
        raise


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


def short(path: object) -> str:
    """Return a text, such as a path, cut in the middle so that a sentence with it can be read."""
    text = str(path)
    return text if len(text) < 300 else f"{text[:140]} ... {text[-140:]}"


def _open(path: AnyPath, flags: int, check: Callable[[os.stat_result], None]) -> int:
    """Open a file without blocking; `check` raises an error for what was opened."""
    handle = os.open(path, flags | _SAFE, 0o666)
    try:
        check(os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _planted(path: Path, what: str, wanted: str) -> DamagedFile:
    return DamagedFile(
        f"{short(path)} is {what}, where asyncqn keeps a {wanted} of its own: remove it, or use another "
        "folder."
    )


def _file_type(status: os.stat_result) -> str:
    return _FILE_TYPES.get(stat.S_IFMT(status.st_mode), "no regular file")
