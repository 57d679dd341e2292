"""The first process of a host of `hosts`, and a remote shell to it over the link.

    python -m benchmarks.faults.host_shell NAME DISK HERE       the first process, started by `hosts`
    python host_shell.py run ADDRESS COMMAND ...                as ssh would, for launchers

No exit code comes back, and nobody is asked who they are: this is for namespaces of our own only.
It imports nothing of the project, so that a launcher may start it in any folder.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PORT = 514
READY = "ready"
"""A file on the host's own disk, there as soon as the host is settled."""


def serve() -> None:
    """Run the commands of whoever connects, and bury every orphan, which is the first process's duty."""
    with socket.create_server(("", PORT), backlog=16) as listening:
        listening.settimeout(0.2)
        while True:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            with suppress(TimeoutError):
                connection, _ = listening.accept()
                with connection:
                    if os.fork() == 0:
                        _become(connection)


def _become(connection: socket.socket) -> None:
    """Become the command that the other side asks for, with the connection as its output."""
    try:
        connection.settimeout(None)
        with connection.makefile("r") as lines:
            asked = json.loads(lines.readline())
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for number, target in (
            (null, 0),
            (connection.fileno(), 1),
            (connection.fileno(), 2),
        ):
            os.dup2(number, target)
        os.chdir(asked["folder"])
        os.execvpe("/bin/sh", ["/bin/sh", "-c", asked["command"]], asked["environment"])
    finally:
        os._exit(127)


def run(address: str, command: list[str]) -> None:
    """Let a host run a command in this folder and with this environment; copy what it prints."""
    asked = {
        "command": " ".join(command),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    with socket.create_connection((address, PORT), timeout=30.0) as connection:
        connection.settimeout(None)
        connection.sendall(json.dumps(asked).encode() + b"\n")
        while content := connection.recv(1 << 16):
            sys.stdout.buffer.write(content)
            sys.stdout.flush()


def settle(name: str, disk: Path, here: Path) -> None:
    """Give the host its name and its own disk, and a view of its own processes alone."""
    socket.sethostname(name)
    for command in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "proc", "proc", "/proc"],
        ["mount", "--bind", str(disk), str(here)],
        ["mount", "-t", "tmpfs", "tmpfs", "/tmp"],
        ["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"],
        ["ip", "link", "set", "lo", "up"],
    ):
        subprocess.run(command, check=True)
    (here / READY).touch()


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[3:])
    else:
        settle(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
        serve()
