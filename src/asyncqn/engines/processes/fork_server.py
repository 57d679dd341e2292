"""A process that does nothing but fork workers, and ends them all when the master is gone.

Workers are forked from a process that has one thread and has computed nothing, however many threads the
master has by then, so that one can be added at any time.  It comes about in two ways:

* `forked`: as a copy of the master, in milliseconds.  Workers then hold the master's problem as it was,
  whatever it is made of, and share its arrays with the master until somebody writes to them.
* `spawned`: as a new interpreter, which takes about as long as `import asyncqn`; workers load what they
  need from shared memory.

The server is the parent of all workers.  It ends when its socket to the master does, or when its own
parent is another one: first it kills its children, so that no process is left behind.

Runs in several threads of one process fork beside each other, and a copy inherits every descriptor that is
open at that moment.  Two rules keep it from mattering.  The master shuts its socket to the server down before
it closes it, which ends the connection although other processes hold copies.  And the master holds the other
end of a socket, whose last copy must close with the process it belongs to, only under `_FORKING`.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress

from asyncqn.errors import WorkerFailed
from asyncqn.kernels.numba_internals import no_compilation

POLLING_INTERVAL = 1.0
"""Polling interval, in seconds, of the test whether the master is still the parent."""
_NUMBER = struct.Struct("=q")
_FORKING = threading.Lock()
"""Held while this process is forked, and while it has a socket open that belongs to a child."""

Life = Callable[[socket.socket, int, int], None]
"""What a worker does: with its socket to the master, and with its shared memory, by descriptor and bytes."""


class ForkServer:
    """The master's end of the server: `start` a worker, `close` at the end.

    `wait` returns when the server's process has ended.
    """

    def __init__(self, sock: socket.socket, wait: Callable[[], object]) -> None:
        self._socket, self._wait = sock, wait

    def start(self, room: int, nbytes: int) -> tuple[socket.socket, int]:
        """Start a worker with this shared memory; return the socket to it and its PID."""
        with _FORKING:
            mine, its = socket.socketpair()
            # Where the server is gone, there is nothing to receive below.
            with its, suppress(OSError):
                socket.send_fds(
                    self._socket, [_NUMBER.pack(nbytes)], [its.fileno(), room]
                )
        try:
            # The server replies with the PID, or with a negative errno.
            (process,) = _NUMBER.unpack(
                self._socket.recv(_NUMBER.size, socket.MSG_WAITALL)
            )
        except (OSError, struct.error):
            mine.close()
            raise WorkerFailed(
                "no worker can be started: the process that forks them was killed."
            ) from None
        if process < 0:
            mine.close()
            raise WorkerFailed(
                f"no worker can be started ({os.strerror(-process)}): use fewer workers."
            )
        return mine, process

    def close(self) -> None:
        """End the server and every worker that is still there."""
        with suppress(OSError):  # it may be gone
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._wait()


def forked(life: Life) -> ForkServer:
    """Return a server that is a copy of this process."""
    master = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with _FORKING, no_compilation(), warnings.catch_warnings():
        # Some warn of every fork beside threads.  The copy runs none of their code, and where workers would,
        # the engine does not fork unless the user asks for it.
        warnings.simplefilter("ignore")
        mine, its = socket.socketpair()
        process = os.fork()
        if process:
            its.close()
    if process == 0:
        with _no_way_back():
            mine.close()
            serve(its, master, life)

    def wait() -> None:
        with suppress(ChildProcessError):  # a handler of SIGCHLD may have been faster
            os.waitpid(process, 0)

    return ForkServer(mine, wait)


def spawned(setup: int) -> ForkServer:
    """Return a server that is a new interpreter; `setup` is the shared memory that workers load."""
    with _FORKING:
        mine, its = socket.socketpair()
        with its:
            code = f"from {__name__} import main; main({its.fileno()}, {setup}, {os.getpid()})"
            server = subprocess.Popen(
                [sys.executable, "-c", code],
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                pass_fds=(its.fileno(), setup),
            )
    return ForkServer(mine, server.wait)


def child_environment() -> dict[str, str]:
    """Return this process's environment, with its import path, for a new interpreter.

    Without PYTHONSAFEPATH an interpreter that is started with -c or -m looks for modules in the current
    folder first, so that a file `socket.py` there would be run.
    """
    # An empty entry of sys.path means the current folder, which may be another one by then.
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def serve(sock: socket.socket, master: int, life: Life) -> None:
    """Fork a worker for every request, until the master is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Ctrl-C reaches a whole group: the master says when to end.
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    children: list[int] = []
    while os.getppid() == master:
        if not select.select([sock], [], [], POLLING_INTERVAL)[0]:
            continue
        request, descriptors, _, _ = socket.recv_fds(sock, _NUMBER.size, 2)
        if len(request) < _NUMBER.size:
            break
        its, room = descriptors
        try:
            process = os.fork()
        except OSError as error:
            process = -(error.errno or 1)
        if process == 0:
            with _no_way_back():
                sock.close()
                life(socket.socket(fileno=its), room, *_NUMBER.unpack(request))
        os.close(its)
        os.close(room)
        sock.sendall(_NUMBER.pack(process))
        if process > 0:
            # Not waited for: its number belongs to it until the end.
            children.append(process)
    for process in children:
        os.kill(process, signal.SIGKILL)
    for process in children:
        os.waitpid(process, 0)


class _no_way_back:
    """End the process at the end of the block: nothing of the program above it runs again."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0 if error[0] is None else 1)


def main(sock: int, setup: int, master: int) -> None:
    """Serve as the new interpreter of `spawned`."""
    from asyncqn.engines.processes.packing import unpack
    from asyncqn.engines.processes.worker import life

    loading = life(lambda: unpack(setup), warm=True)
    serve(socket.socket(fileno=sock), master, loading)
