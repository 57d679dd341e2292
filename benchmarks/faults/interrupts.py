"""Ctrl-C at random moments, once, twice and three times: the program must end, and soon."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.fork_server import ForkServer
from benchmarks.faults.harness import Tally, kill

JOB = """
[problem]
kind = "linear-gaussian"
dim = 10
n_data = 60
[algorithm]
kind = "async-sgd"
h = 1e-6
batch = 6
[run]
commits = 100000000
evaluate = 1000
"""
PATIENCE = 30.0
"""Seconds after the last Ctrl-C within which the program must be gone."""
PROMISE = "asyncqn resume"
"""The words with which an interrupted program promises that a checkpoint is there."""


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    job = scratch / "interrupts.toml"
    job.write_text(JOB)
    server = ForkServer(scratch / "interrupts-first", job)
    try:
        for times, tries in (
            (2, count),
            (1, max(1, count // 10)),
            (3, max(1, count // 10)),
        ):
            yield interrupted(server, scratch, job, tries, dice, times)
    finally:
        server.close()


def interrupted(
    server: ForkServer,
    scratch: Path,
    job: Path,
    count: int,
    dice: random.Random,
    times: int,
) -> Tally:
    """Runs without end; `completed` counts those that ended after Ctrl-C with the exit code of one.

    After a single Ctrl-C the checkpoint must be there and hold what the program says it holds.
    """
    tally = Tally(f"asyncqn run: Ctrl-C {('once', 'twice', 'three times')[times - 1]}")
    for number in range(count):
        folder, errors = (
            scratch / f"interrupt{times}-{number}",
            scratch / f"errors{times}-{number}",
        )
        command = [
            "run",
            str(job),
            "--engine",
            "threads",
            "--workers",
            "2",
            "--checkpoint",
            str(folder),
            "--checkpoint-every",
            "0.05",
            "--quiet",
        ]
        pid = server.start(errors, arguments=command)
        tally.tries += 1
        until = time.monotonic() + 60.0
        while (
            not (folder.is_dir() and any(folder.iterdir())) and time.monotonic() < until
        ):
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 0.3))
        for _ in range(times):
            kill(pid, signal.SIGINT)
            time.sleep(
                dice.choice([0.0, dice.uniform(0.0, 0.02), dice.uniform(0.0, 0.2)])
            )
        _count_end(server, pid, folder, errors, tally, once=times == 1)
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def _count_end(
    server: ForkServer, pid: int, folder: Path, errors: Path, tally: Tally, once: bool
) -> None:
    begun = time.monotonic()
    code = server.wait(PATIENCE)
    if code is None:
        kill(pid)
        server.wait(PATIENCE)
        tally.faults.append(f"it hung for {PATIENCE:.0f} s")
        return
    tally.noticed(time.monotonic() - begun)
    words = errors.read_text(errors="replace")
    if code in (130, -signal.SIGINT) and "Traceback" not in words:
        tally.completed += 1
    else:
        tally.faults.append(f"exit code {code}: {words.strip().splitlines()[-1:]}")
        print(words, file=sys.stderr)
    if not any(folder.glob("*/checkpoint.json")):
        early = (
            PROMISE not in words
        )  # it came before the run began, and nothing was promised
        tally.replayed += early
        tally.checkpoints_lost += not early
        return
    checking = server.start(errors, check=str(folder))
    replayed = (code := server.wait(PATIENCE)) == 0
    if code is None:
        kill(checking)
        server.wait(PATIENCE)
    if not replayed:
        print(errors.read_text(errors="replace"), file=sys.stderr)
    tally.replayed += replayed
    tally.checkpoints_lost += once and not replayed
