"""When the master (rank 0) is gone: one worker says so in a sentence, with the command that goes on.

Under ULFM a worker learns of the loss as an error of MPI.  Without it the launcher sends every rank
SIGTERM, and SIGKILL a second later; a worker on the master's machine then looks whether the master's
process is still there.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from asyncqn.core.checkpoint import Checkpoints


def sentence(checkpoints: Checkpoints | None) -> str:
    """What became of the job, and how to go on."""
    if checkpoints is None:
        return "the master (rank 0) is gone, and its run is lost: a run with checkpoints can be resumed."
    return f"the master (rank 0) is gone; go on with: mpiexec ... asyncqn resume {checkpoints.folder}"


def say(checkpoints: Checkpoints | None) -> None:
    """Print the sentence on stderr."""
    sys.stdout.flush()
    print(f"asyncqn: {sentence(checkpoints)}", file=sys.stderr, flush=True)


def speaks_under_ulfm(comm: Any, undefined: int) -> bool | None:
    """Whether this rank is the one that says that the master is gone; None if the master is there."""
    failed, everyone = comm.Get_failed(), comm.group
    places = everyone.Translate_ranks(list(range(comm.size)), failed)
    alive = [rank for rank, place in enumerate(places) if place == undefined]
    return None if 0 in alive else bool(comm.rank == alive[0])


def watched_master(comm: Any) -> int | None:
    """The master's process, on the one worker that watches it: the first on the master's machine."""
    machine = int.from_bytes(hashlib.sha256(socket.gethostname().encode()).digest()[:7])
    everyone = np.zeros((comm.size, 2), np.int64)
    comm.Allgather(np.array([machine, os.getpid()]), everyone)
    beside = np.flatnonzero(everyone[:, 0] == everyone[0, 0])
    master = int(everyone[0, 1])
    watches = beside.size > 1 and comm.rank == beside[1] and is_there(master)
    return master if watches else None


def is_there(pid: int) -> bool:
    """Whether a process of this machine is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def watching(master: int | None, checkpoints: Checkpoints | None) -> Iterator[None]:
    """Inside the block a SIGTERM that finds the master's process gone ends this one with the sentence.

    The main thread waits inside MPI, where no handler of Python runs: a thread hears of the signal
    through a socket.  Without checkpoints nobody handles SIGTERM, and there is no way to go on.
    """
    if master is None or checkpoints is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = socket.socketpair()
    told.setblocking(False)

    def listen() -> None:
        while numbers := heard.recv(64):
            if signal.SIGTERM in numbers and not is_there(master):
                say(checkpoints)
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
