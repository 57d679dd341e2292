"""Ctrl-C at random moments, once, twice and three times: the program must end, and soon."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults.harness import Tally, kill
from benchmarks.mpi_start import ROOT

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
CHECK = """
import sys, asyncqn as aq
def enough(progress):
    raise StopIteration
aq.replay(aq.resume(sys.argv[1], callback=enough))
"""
"""Continues from a checkpoint to the next evaluation, and replays the whole run from its start."""


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    job = scratch / "interrupts.toml"
    job.write_text(JOB)
    for times, tries in ((1, count), (2, count), (3, max(1, count // 10))):
        yield interrupted(scratch / f"interrupt{times}-", job, tries, dice, times)


def interrupted(
    stem: Path, job: Path, count: int, dice: random.Random, times: int
) -> Tally:
    """Runs without end; `completed` counts those that ended after Ctrl-C with the exit code of one.

    After a single Ctrl-C the checkpoint must be there and hold what the program says it holds.
    """
    tally = Tally(f"asyncqn run: Ctrl-C {('once', 'twice', 'three times')[times - 1]}")
    options = f"--engine threads --workers 2 --checkpoint-every 0.05 --quiet --checkpoint {stem}"
    for number in range(count):
        folder = Path(f"{stem}{number}")
        run = ["-m", "asyncqn", "run", str(job), *f"{options}{number}".split()]
        process = _start(run)
        tally.tries += 1
        until = time.monotonic() + 60.0
        while not any(folder.glob("*")) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 0.3))
        for _ in range(times):
            kill(process.pid, signal.SIGINT)
            pauses = [0.0, dice.uniform(0.0, 0.02), dice.uniform(0.0, 0.2)]
            time.sleep(dice.choice(pauses))
        _count_end(process, folder, tally, once=times == 1)
    return tally


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    options: dict[str, Any] = {"text": True, "cwd": ROOT}
    options |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *arguments], **options)


def _count_end(
    process: subprocess.Popen[str], folder: Path, tally: Tally, once: bool
) -> None:
    begin = time.monotonic()
    try:
        _, words = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        tally.faults.append(f"it hung for {PATIENCE:.0f} s")
        return
    tally.noticed(time.monotonic() - begin)
    code = process.returncode
    if code in (130, -signal.SIGINT) and "Traceback" not in words:
        tally.completed += 1
    else:
        tally.faults.append(f"exit code {code}: {words.strip().splitlines()[-1:]}")
    if any(folder.glob("*/checkpoint.json")):
        check = _start(["-W", "ignore", "-c", CHECK, str(folder)])
        check.communicate(timeout=10 * PATIENCE)
        replayed = check.returncode == 0
        tally.checkpoints_lost += once and not replayed
    else:
        # It came before the run began, and nothing was promised.
        replayed = PROMISE not in words
        tally.checkpoints_lost += not replayed
    tally.replayed += replayed
