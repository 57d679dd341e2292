"""Ctrl-C at random moments, once, twice and three times: the program must end, and soon."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

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
"""
PATIENCE = 30.0
"""Seconds after the last Ctrl-C within which the program must be gone."""


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    for times in (1, 2, 3):
        yield interrupted(scratch, count, dice, times)


def interrupted(scratch: Path, count: int, dice: random.Random, times: int) -> Tally:
    """Runs without end; `completed` counts those that ended after Ctrl-C with the exit code of one.

    After a single Ctrl-C the checkpoint must be there and hold what the program says it holds.
    """
    tally = Tally(f"asyncqn run: Ctrl-C {('once', 'twice', 'three times')[times - 1]}")
    job = scratch / f"interrupts{times}.toml"
    job.write_text(JOB)
    for number in range(count):
        folder = scratch / f"interrupt{times}-{number}"
        command = [sys.executable, "-m", "asyncqn", "run", str(job), "--engine", "threads", "--workers", "2",
                   "--checkpoint", str(folder), "--checkpoint-every", "0.05", "--quiet"]  # fmt: skip
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        tally.tries += 1
        until = time.monotonic() + 60.0
        while not (folder.is_dir() and any(folder.iterdir())) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 0.3))
        for _ in range(times):
            kill(process.pid, signal.SIGINT)
            time.sleep(dice.choice([0.0, dice.uniform(0.0, 0.02), dice.uniform(0.0, 0.2)]))
        _count_end(process, folder, tally, once=times == 1)
    return tally


def _count_end(process: subprocess.Popen[str], folder: Path, tally: Tally, once: bool) -> None:
    begun = time.monotonic()
    try:
        err = process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        kill(process.pid)
        process.communicate()
        tally.faults.append(f"it hung for {PATIENCE:.0f} s")
        return
    tally.noticed(time.monotonic() - begun)
    if process.returncode in (130, -signal.SIGINT) and "Traceback" not in err:
        tally.completed += 1
    else:
        tally.faults.append(f"exit code {process.returncode}: {err.strip().splitlines()[-1:]}")
    replayed = subprocess.run(
        [sys.executable, "-c", _CHECK, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    tally.replayed += replayed.returncode == 0
    tally.checkpoints_lost += once and replayed.returncode != 0


_CHECK = """
import sys, warnings
import asyncqn as aq
warnings.simplefilter("ignore")
def enough(progress):
    raise StopIteration
run = aq.resume(sys.argv[1], callback=enough)
aq.replay(run)
"""
"""Go on from the checkpoint to the next evaluation, and replay the whole run from its start."""
