"""Ends what a killed driver leaves of its local Ray: `python watchdog.py SESSION`, in a session of its own.

Ray ends its servers with the driver, but its agents wait for servers that are gone.  Standard input is
a pipe whose other end the driver holds: a byte says that Ray was shut down, the end of the pipe without
one that the driver is gone.  This file imports nothing of asyncqn, so that the process stays small.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_SEARCH_SECONDS = 20.0
"""Seconds for which processes of the dead session are searched: workers may just be starting."""
MAX_IDLE_SECONDS = 2.0
"""Seconds without finding one after which the search ends."""


@contextmanager
def watched(session: str) -> Iterator[None]:
    """Start a process that waits for the death of this one, inside the block; `session` is the local Ray's
    folder."""
    if sys.platform != "linux":
        yield
        return
    with subprocess.Popen(
        [sys.executable, "-I", __file__, session],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Its own session, so that Ctrl-C in the terminal does not reach it.
        start_new_session=True,
    ) as watchdog:
        try:
            yield
        finally:
            with suppress(OSError):
                watchdog.communicate(b"\n")


def processes_of(session: str) -> list[int]:
    """Return Ray's processes that have a file of the session open; they name themselves "ray::..."."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended, or is not ours
            if folder.name.isdecimal() and (folder / "cmdline").read_bytes().startswith(
                b"ray::"
            ):
                files = (os.readlink(file) for file in (folder / "fd").iterdir())
                if any(file.startswith(f"{session}/") for file in files):
                    found.append(int(folder.name))
    return found


def main(session: str) -> None:
    """Wait for the driver's end, and kill what is left of its Ray."""
    if sys.stdin.buffer.read():
        return
    begun = seen = time.monotonic()
    while (
        now := time.monotonic()
    ) - begun < MAX_SEARCH_SECONDS and now - seen < MAX_IDLE_SECONDS:
        for pid in processes_of(session):
            seen = now
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
