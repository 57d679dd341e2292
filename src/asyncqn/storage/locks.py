"""A lock on a folder that the system releases when the process that holds it dies."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path

from asyncqn.errors import BadInput, DamagedFile
from asyncqn.storage.opening import open_own

_MAX_OWNER_BYTES = 4096
"""Largest number of bytes of the holder's description that are read."""


class FolderLock:
    """A lock that at most one process, and one holder in it, has on a folder.

    The file `lock` in the folder describes the holder: process, host, run and time.  The lock of the system
    (`flock`) on that file decides, so the file of a dead process blocks nobody.
    """

    NAME = "lock"

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run
        self._handle: int | None = None

    def take(self) -> bool:
        """Take the lock, or raise `BadInput` with a sentence about its holder.

        Return False if the file system does not support locks.
        """
        if self._handle is not None:
            return True
        path = self.folder / self.NAME
        handle = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            # Read before the attempt: the holder's own description names it where the attempt fails.
            content = os.pread(handle, _MAX_OWNER_BYTES, 0)
            supported = True
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadInput(
                    f"{self.folder} is being written by {_owner(content)}: wait until it ends, or choose "
                    "another folder."
                ) from None
            except OSError:
                supported = False
            # A file of the user's that happens to be called `lock` must not be overwritten.
            if content and not content.startswith(b'{"pid"'):
                raise DamagedFile(
                    f"{path} was not written by asyncqn: choose another folder."
                )
            about = {"pid": os.getpid(), "host": socket.gethostname()}
            text = json.dumps({**about, "run": self.run, "since": time.time()})
            os.ftruncate(handle, 0)
            os.pwrite(handle, text.encode(), 0)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return supported

    def release(self) -> None:
        """Release the lock; the empty file stays, since removing it would race with the next taker."""
        if self._handle is None:
            return
        handle = self._handle
        self._handle = None
        try:
            os.ftruncate(handle, 0)
            # A forked process may share the handle, so closing it alone would not release the lock.
            fcntl.flock(handle, fcntl.LOCK_UN)
        except OSError:
            pass  # the folder is gone, or has no locks: closing the handle is all that is left
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
        since = time.localtime(float(about["since"]))
        when = time.strftime("%Y-%m-%d %H:%M:%S", since)
        text = (
            f"{int(about['pid'])} on {about['host']} (run {about['run']}, since {when})"
        )
    except (ValueError, LookupError, TypeError, OverflowError, OSError):
        return "another process"
    return f"process {''.join(c if c.isprintable() else '?' for c in text[:200])}"
