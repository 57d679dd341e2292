"""Loss of the master (rank 0): one worker reports it in a sentence, with the command that continues.

Under ULFM a worker learns of the loss as an error of MPI.  Without it the launcher sends every rank
SIGTERM, and SIGKILL a second later; a worker on the master's machine then looks whether the master's
process is still there.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asyncqn.runs.checkpoint import Checkpoints


def say(checkpoints: Checkpoints | None) -> None:
    """Print on stderr that the master is gone, and how to continue."""
    sentence = "the master (rank 0) is gone, and its run is lost: a run with checkpoints can be resumed."
    if checkpoints is not None:
        sentence = f"the master (rank 0) is gone; continue with: mpiexec ... asyncqn resume {checkpoints.folder}"
    sys.stdout.flush()
    print(f"asyncqn: {sentence}", file=sys.stderr, flush=True)


def speaks_under_ulfm(comm: Any, undefined: int) -> bool | None:
    """Return whether this rank is the one that says that the master is gone; None if the master is there."""
    failed = failed_ranks(comm, undefined)
    alive = [rank for rank in range(comm.size) if rank not in failed]
    return None if 0 in alive else bool(comm.rank == alive[0])


def failed_ranks(comm: Any, undefined: int) -> set[int]:
    """Return the ranks that are gone, as far as MPI knows; `undefined` is its rank for a process outside a
    group."""
    failed = comm.Get_failed()
    places = comm.group.Translate_ranks(list(range(comm.size)), failed)
    return {rank for rank, place in enumerate(places) if place != undefined}


def watched_master(comm: Any) -> int | None:
    """Return the master's PID on the worker that watches it, the first on its machine, and None elsewhere."""
    (home, master), *others = comm.allgather((socket.gethostname(), os.getpid()))
    # One watcher is enough, and one message on stderr.
    first = next(
        (rank for rank, (machine, _) in enumerate(others, 1) if machine == home), None
    )
    return master if comm.rank == first and is_there(master) else None


def is_there(pid: int) -> bool:
    """Return whether a process of this machine is there."""
    try:
        # Signal 0 only tests whether the process exists.
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def watching(master: int | None, checkpoints: Checkpoints | None) -> Iterator[None]:
    """End this process with a sentence if SIGTERM comes inside the block and the master's process is gone.

    The main thread waits inside MPI, where no handler of Python runs, so a thread learns of the signal
    through a socket.  Without checkpoints nobody handles SIGTERM, and there is no way to continue.
    """
    if (
        master is None
        or checkpoints is None
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    heard, told = socket.socketpair()
    told.setblocking(False)

    def listen() -> None:
        while numbers := heard.recv(64):
            if signal.SIGTERM in numbers and not is_there(master):
                say(checkpoints)
                # Not sys.exit: the main thread is inside MPI and would never see an exception.
                os._exit(1)

    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=listen, name="asyncqn master", daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        listener.join()
        heard.close()
