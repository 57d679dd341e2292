"""Locks that the system releases when the process that holds them dies.

All of them are `flock` on an open handle.  `sole_writer` waits for the lock of a folder's own handle, for
the moment of a write.  `FolderLock` does not wait: it locks a file in the folder, which also works on
network file systems, for as long as a run writes checkpoints there, and writes the holder into it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from asyncqn.errors import BadInput, DamagedFile
from asyncqn.storage.opening import own_handle

_POLLING_INTERVAL = 0.02
"""Seconds between two attempts to take a lock."""
_MAX_OWNER_BYTES = 4096
"""Largest number of bytes of the holder's description that are read."""


class NoLocks(Exception):
    """The file system does not support locks."""


def _lock(handle: int, *, shared: bool = False) -> bool:
    """Try to lock an open file or folder; return whether it worked.  Raises `NoLocks`."""
    try:
        fcntl.flock(
            handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        )
    except BlockingIOError:
        return False
    except OSError as error:
        raise NoLocks(error.strerror or str(error)) from None
    return True


@contextmanager
def sole_writer(folder: int, path: Path, patience: float = 600.0) -> Iterator[bool]:
    """Wait until no other process writes to a folder, and lock it.

    Parameters
    ----------
    folder : int
        Open handle of the folder.
    path : Path
        Its path, for messages.
    patience : float
        Longest wait in seconds; after it `BadInput` is raised, because any process that can read a folder can
        lock it forever.

    Yields
    ------
    bool
        False if the file system does not support locks on folders.
    """
    ends = time.monotonic() + patience
    try:
        # Polling, because `flock` has no timeout and a blocking call could not be ended.
        while not _lock(folder):
            if time.monotonic() > ends:
                raise BadInput(
                    f"{path} has been locked by another process for {patience:g} seconds: wait until it "
                    "ends, or choose another folder."
                )
            time.sleep(_POLLING_INTERVAL)
    except NoLocks:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


class FolderLock:
    """A lock that at most one process, and one holder in it, has on a folder.

    The file `lock` in the folder describes the holder: process, host, run and time.  The lock of the system
    on that file decides, so the file of a dead process blocks nobody.
    """

    NAME = "lock"

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock, or raise `BadInput` with a sentence about its holder; `NoLocks` if unsupported."""
        if self._handle is not None:
            return
        path = self.folder / self.NAME
        handle = own_handle(path, os.O_RDWR | os.O_CREAT)
        try:
            # Read before the attempt: the holder's own description names it where the attempt fails.
            content = os.pread(handle, _MAX_OWNER_BYTES, 0)
            if not _lock(handle):
                raise BadInput(
                    f"{self.folder} is being written by {_owner(content)}: wait until it ends, or choose "
                    "another folder."
                )
            # A file of the user's that happens to be called `lock` must not be overwritten.
            if content and not content.startswith(b'{"pid"'):
                raise DamagedFile(
                    f"{path} was not written by asyncqn: choose another folder."
                )
            about = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "run": self.run,
                "since": time.time(),
            }
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(about).encode(), 0)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle

    def release(self) -> None:
        """Release the lock; the empty file stays, since removing it would race with the next taker."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        try:
            with suppress(OSError):
                os.ftruncate(handle, 0)
                fcntl.flock(
                    handle, fcntl.LOCK_UN
                )  # a forked process may share the handle
        finally:
            os.close(handle)

    def __del__(self) -> None:
        if self._handle is not None:
            os.close(self._handle)


def _owner(content: bytes) -> str:
    """Return the holder that a lock file describes; the file is not trusted, so its text is cleaned."""
    try:
        about = json.loads(content)
        # In local time, for the person who reads the message.
        since = time.strftime(
            "%Y-%m-%d %H:%M:%S", time.localtime(float(about["since"]))
        )
        host, run = (
            "".join(c if c.isprintable() else "?" for c in str(about[key])[:80])
            for key in ("host", "run")
        )
        return f"process {int(about['pid'])} on {host} (run {run}, since {since})"
    except (ValueError, LookupError, TypeError, OverflowError, OSError):
        return "another process"


def held_by(folder: Path) -> str | None:
    """Return the holder of a folder's lock as a phrase, or None if there is none or it is unknown.

    The query takes a shared lock for a moment, and only where a process left its description without
    releasing the lock.
    """
    try:
        handle = own_handle(folder / FolderLock.NAME, os.O_RDONLY)
    except OSError:
        return None
    try:
        content = os.pread(handle, _MAX_OWNER_BYTES, 0)
        # Without content the lock was released in good order.
        return _owner(content) if content and not _lock(handle, shared=True) else None
    except (OSError, NoLocks):
        return None
    finally:
        os.close(handle)
