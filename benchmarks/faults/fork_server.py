"""The program many times without its start: a server that has loaded it forks a process per command.

`python -m benchmarks.faults.fork_server` reads requests, a JSON object per line: {"arguments": [...]} is a
command line of `asyncqn`, {"check": FOLDER} continues from a checkpoint for one evaluation and replays all
of it; "errors" names the file for what is printed on stderr.  It answers with the process id, and with
the exit code once the process has ended as any Python program ends.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.mpi_start import ROOT

START = 300.0
"""Seconds for the server's start, which may compile kernels."""


class ForkServer:
    """The server, seen from the program that uses it; one process at a time."""

    def __init__(self, scratch: Path, job: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "benchmarks.faults.fork_server",
            str(scratch),
            str(job),
        ]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.answers: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        # The server announces its readiness with a first number.
        self.answers.get(timeout=START)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(int(line))

    def start(self, errors: Path, **request: Any) -> int:
        """Start a process; its id."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({**request, "errors": str(errors)}) + "\n")
        self.process.stdin.flush()
        return self.answers.get(timeout=60.0)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code of the process that was started last; None if it does not end in time."""
        try:
            return self.answers.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)  # and what it forked
        self.process.wait()


def check(folder: str) -> None:
    """Continue from the checkpoint to the next evaluation, and replay the whole run from its start."""
    import asyncqn as aq

    def enough(progress: Any) -> None:
        raise StopIteration

    warnings.simplefilter("ignore")
    aq.replay(aq.resume(folder, callback=enough))


def serve(scratch: Path, job: Path) -> None:
    """Load what a command needs by running one, then fork a process per request."""
    from asyncqn.cli.main import main

    told = os.dup(1)
    os.dup2(2, 1)  # standard output belongs to the answers
    with suppress(SystemExit):
        main(
            [
                "run",
                str(job),
                "--engine",
                "threads",
                "--workers",
                "2",
                "--commits",
                "50",
                "--quiet",
                "--checkpoint",
                str(scratch),
            ]
        )
    check(str(scratch))
    os.write(told, b"0\n")
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.dup2(
                os.open(request["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2
            )
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            # The child must not write to the pipe that its parent answers on.
            os.close(told)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if "check" in request:
                check(request["check"])
                sys.exit(0)
            main(request["arguments"])  # ends this process with its exit code
        os.write(told, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
