"""A lock on a folder that the system lets go of when the process that holds it dies."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from asyncqn.errors import BadInput


class NoLocks(Exception):
    """The file system, or the operating system, has no locks."""


class FolderLock:
    """At most one process (and one holder in it) has the lock of a folder.

    The file `lock` in the folder says who holds it: process, host, run and time.  It is the system's
    lock on that file that counts, so that what a dead process left behind stops nobody.
    """

    NAME = "lock"

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock, or say in a sentence who has it; `NoLocks` where there is none to take."""
        if self._handle is not None:
            return
        try:
            import fcntl
        except ImportError:
            raise NoLocks("this operating system has no flock") from None
        handle = os.open(self.folder / self.NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(os.pread(handle, 4096, 0))
            os.close(handle)
            raise BadInput(
                f"{self.folder} is being written by {owner}: wait until it ends, or choose another folder."
            ) from None
        except OSError as error:
            os.close(handle)
            raise NoLocks(error.strerror or str(error)) from None
        self._handle = handle
        about = {"pid": os.getpid(), "host": socket.gethostname(), "run": self.run, "since": time.time()}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(about).encode(), 0)

    def release(self) -> None:
        """Let go of the lock; the empty file stays, for to remove it would race with the next taker."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        try:
            with suppress(OSError):
                os.ftruncate(handle, 0)
        finally:
            os.close(handle)

    def __del__(self) -> None:
        if self._handle is not None:
            os.close(self._handle)


def _owner(content: bytes) -> str:
    try:
        about = json.loads(content)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(about["since"])))
        return f"process {int(about['pid'])} on {about['host']} (run {about['run']}, since {since})"
    except (ValueError, LookupError, TypeError, OverflowError, OSError):
        return "another process"


def held_by(folder: Path) -> str | None:
    """Who holds the lock of a folder, in words; None where nobody does, or nobody can know.

    Whoever asks holds a shared lock for the moment of the question, and only where a process has left its
    name without letting go.
    """
    try:
        import fcntl

        handle = os.open(folder / FolderLock.NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (ImportError, OSError):
        return None
    try:
        content = os.pread(handle, 4096, 0)
        if not content:
            return None  # let go of in good order
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(content)
    except OSError:
        return None
    finally:
        os.close(handle)
    return None
