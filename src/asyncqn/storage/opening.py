"""The one place that opens files: regular files only, and no links inside our own folders.

There are two rules.  A file that a *user names* (a job file, a CSV) may be reached through symbolic links,
but it must be a regular file: a named pipe can block forever, and a device can deliver bytes without end.
A file *inside a folder of ours* (a run, a checkpoint, a model, stored ratings) was written by asyncqn as a
regular file with one name.  A link there was planted, and following it would read or write a file outside
the folder, so it is refused.

Each file is examined twice: by name before it is opened, because opening a device can have effects, and
through the open handle afterwards, so that a swap between the two is noticed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, TextIOWrapper
from pathlib import Path

from asyncqn.errors import BadInput, DamagedFile

# O_NONBLOCK: opening a named pipe that replaced the file since the check must not wait for a writer.
# O_NOCTTY: a terminal must not become ours.
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
    check_input(path, limit)
    # The check by name came first; this one looks at what was really opened.
    handle = os.open(path, os.O_RDONLY | _SAFE)
    try:
        _require_regular_input(path, os.fstat(handle), limit)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def check_input(path: str | os.PathLike[str], limit: int | None = None) -> None:
    """Raise `BadInput` where `open_input` does, for other packages that open the path themselves."""
    _require_regular_input(path, os.stat(path), limit)


def read_input(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the content of a file that a user named, which has at most `limit` bytes."""
    with open_input(path, limit) as file:
        return file.read(limit)


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


def open_append(path: str | os.PathLike[str]) -> TextIOWrapper:
    """Open a text file that a user named, to append lines to it; it is created if it is missing.

    Raises `BadInput` where it is anything but a regular file.
    """
    check_output(path)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE, 0o666)
    try:
        _require_regular_input(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return TextIOWrapper(os.fdopen(handle, "ab"), encoding="utf-8", errors="replace")


def open_own(path: Path, folder: int | None = None) -> BufferedReader:
    """Open a file inside a folder of ours for reading; `folder` is the open handle of that folder.

    Raises `DamagedFile` if it is anything but a regular file with one name.
    """
    return os.fdopen(own_handle(path, os.O_RDONLY, folder), "rb")


def read_own(path: Path, limit: int, folder: int | None = None) -> bytes:
    """Return the content of a file inside a folder of ours, which has at most `limit` bytes."""
    with open_own(path, folder) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise DamagedFile(
                f"{_short(path)} is damaged: it is longer than any such file of asyncqn."
            )
        return file.read(limit)


def own_handle(path: Path, flags: int, folder: int | None = None) -> int:
    """Open a file inside a folder of ours with these flags, and return the handle.

    With O_CREAT and O_EXCL the file is new; without them an existing file is examined first.
    """
    # With a handle the name is resolved in that very folder, even if its path was replaced meanwhile.
    name: str | Path = path if folder is None else path.name
    # O_EXCL fails on anything that exists, so there is nothing to examine.
    if not flags & os.O_EXCL:
        try:
            _require_own(
                path,
                os.lstat(name) if folder is None else os.lstat(name, dir_fd=folder),
            )
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
    try:
        handle = os.open(name, flags | os.O_NOFOLLOW | _SAFE, 0o666, dir_fd=folder)
    except OSError as error:
        # ELOOP is what O_NOFOLLOW reports for a symbolic link.
        if error.errno == errno.ELOOP:
            raise _planted(path, "a symbolic link") from None
        raise
    try:
        _require_own(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextmanager
def open_folder(folder: Path, inside: str = "") -> Iterator[int]:
    """Hold a folder open and yield its handle, against which names in it are resolved.

    `folder` may be reached through links.  `inside` names a folder of ours in it, which is created if it is
    missing and may not be a link.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if inside:
            handle = _open_inside(handle, folder / inside)
        yield handle
    finally:
        os.close(handle)


def _open_inside(outer: int, path: Path) -> int:
    """Return the handle of a folder inside another, and close the outer one."""
    try:
        os.mkdir(path.name, dir_fd=outer)
    except FileExistsError:
        # It exists already: it must be a folder, and not a link to one.
        status = os.lstat(path.name, dir_fd=outer)
        if not stat.S_ISDIR(status.st_mode):
            raise _planted(path, _file_type(status), "folder") from None
    # O_NOFOLLOW: the name may have been replaced by a link since `lstat`.
    inner = os.open(
        path.name,
        os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
        dir_fd=outer,
    )
    os.close(outer)
    return inner


def require_real_folder(path: Path) -> None:
    """Raise `DamagedFile` if a folder of ours, inside another, is a link or a file; it may be missing."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        raise _planted(path, _file_type(status), "folder")


def require_own(path: Path) -> None:
    """Raise `DamagedFile` where `open_own` does, without opening the file; it may be missing."""
    try:
        _require_own(path, os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return


def require_memory(path: Path, size: int) -> None:
    """Raise `DamagedFile` for what must be read as a whole and exceeds the memory of this machine."""
    # A damaged header may claim any size, and reading it would exhaust the memory before any error.
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise DamagedFile(
            f"{_short(path)} holds {size:,} bytes, more than this machine has memory."
        )


def _require_regular_input(
    path: str | os.PathLike[str], status: os.stat_result, limit: int | None = None
) -> None:
    if not stat.S_ISREG(status.st_mode):
        pipe = (
            ", to which you have saved the output of the pipe"
            if stat.S_ISFIFO(status.st_mode)
            else ""
        )
        raise BadInput(
            f"{_short(path)} is {_file_type(status)}: name a regular file{pipe}."
        )
    if limit is not None and status.st_size > limit:
        raise BadInput(
            f"{_short(path)} has {status.st_size:,} bytes, but at most {limit:,} are allowed."
        )


def _require_own(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _planted(path, _file_type(status))
    if (
        status.st_nlink > 1
    ):  # 0 is possible: a writer may have replaced the file since it was opened
        raise _planted(path, "a hard link, which has another name elsewhere")


def _planted(
    path: Path, what: str, wanted: str = "regular file of its own"
) -> DamagedFile:
    return DamagedFile(
        f"{_short(path)} is {what}, where asyncqn keeps a {wanted}: remove it, or use another folder."
    )


def _file_type(status: os.stat_result) -> str:
    return _FILE_TYPES.get(stat.S_IFMT(status.st_mode), "no regular file")


def _short(path: str | os.PathLike[str]) -> str:
    # A sentence with a path of thousands of characters could not be read.
    text = os.fspath(path)
    return text if len(text) < 300 else f"{text[:140]} ... {text[-140:]}"
