"""MPI: workers killed, stopped, stopped for good; the master killed; the whole job killed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.faults.harness import (
    Tally,
    check_losses,
    kill,
    resume_to_the_end,
    stop_and_continue,
    tries,
)
from benchmarks.faults.job import Settings

ULFM = ("--with-ft", "ulfm")
SETTINGS = Settings(engine="mpi", workers=4, commits=1500)


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    yield worker_killed(scratch, count, dice)
    yield worker_stopped(scratch, max(1, count // 4), dice)
    yield worker_stopped_for_good(scratch, max(1, count // 4), dice)
    yield killed_and_resumed(scratch, count, dice, "the master is killed", master=True)
    yield killed_and_resumed(
        scratch, count, dice, "the whole job is killed", master=False
    )


def worker_killed(scratch: Path, count: int, dice: random.Random) -> Tally:
    """Under ULFM the run continues without it; every fourth try loses two."""
    tally = Tally("MPI, ULFM: a worker is killed")
    for victim, process in tries(tally, scratch / "mpi-killed", count, SETTINGS, ULFM):
        kills = 2 if tally.tries % 4 == 0 else 1
        for rank in dice.sample(range(1, 5), kills):
            time.sleep(dice.uniform(0.0, 0.4))
            moment = time.time()
            kill(victim.rank(rank))
        report = victim.end(process)
        tally.ended(report, SETTINGS.commits)
        check_losses(victim, tally, report, moment, kills)
    return tally


def worker_stopped(scratch: Path, count: int, dice: random.Random) -> Tally:
    tally = Tally("MPI, ULFM: a worker is stopped for 3 s and continued")
    for victim, process in tries(tally, scratch / "mpi-stopped", count, SETTINGS, ULFM):
        stop_and_continue(victim, tally, process, victim.rank(dice.randrange(1, 5)))
    return tally


def worker_stopped_for_good(scratch: Path, count: int, dice: random.Random) -> Tally:
    """A worker that never sends an update again is given up after a second."""
    settings = replace(SETTINGS, give_up=1.0)
    tally = Tally("MPI, ULFM: a worker is stopped for good, given up after 1 s")
    for victim, process in tries(tally, scratch / "mpi-gone", count, settings, ULFM):
        moment = time.time()
        kill(victim.rank(dice.randrange(1, 5)), signal.SIGSTOP)
        report = victim.end(process)
        tally.ended(report, settings.commits)
        check_losses(victim, tally, report, moment, 1)
    return tally


def killed_and_resumed(
    scratch: Path, count: int, dice: random.Random, what: str, master: bool
) -> Tally:
    """The job must end by itself when its master is gone; a resume makes the rest of the commits."""
    tally = Tally(f"MPI, ULFM: {what}")
    stem = scratch / f"mpi-{'master' if master else 'job'}"
    for victim, process in tries(tally, stem, count, SETTINGS, ULFM):
        time.sleep(dice.uniform(0.3, 1.5))
        before = victim.saved_commit()
        moment = time.time()
        if master:
            kill(victim.rank(0))
            victim.end(process, 40.0)
            tally.noticed(time.time() - moment)
        else:
            victim.kill_all(process)
        tally.checkpoints_lost += victim.saved_commit() < before
        resume_to_the_end(victim, tally, victim.commit())
    return tally
