"""MPI: workers killed, stopped, stopped for good; the master killed; the whole job killed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.harness import Tally, Victim, kill, resume_to_the_end, watched
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
    for number in range(count):
        victim = Victim(scratch / f"mpi-killed{number}", SETTINGS, ULFM)
        with watched(victim, tally) as process:
            kills = 2 if number % 4 == 3 else 1
            for rank in dice.sample(range(1, 5), kills):
                time.sleep(dice.uniform(0.0, 0.4))
                moment = time.time()
                kill(victim.rank(rank))
            report = victim.end(process)
            tally.ended(report, SETTINGS.commits)
            _time_to_notice(victim, tally, moment, 4 - kills)
            if report.get("lost") not in (None, kills):
                tally.faults.append(
                    f"{report['lost']} losses were counted, there were {kills}"
                )
    return tally


def worker_stopped(scratch: Path, count: int, dice: random.Random) -> Tally:
    """SIGSTOP, three seconds, SIGCONT: the others continue meanwhile."""
    tally = Tally("MPI, ULFM: a worker is stopped for 3 s and continued")
    for number in range(count):
        victim = Victim(scratch / f"mpi-stopped{number}", SETTINGS, ULFM)
        with watched(victim, tally) as process:
            rank = victim.rank(dice.randrange(1, 5))
            kill(rank, signal.SIGSTOP)
            time.sleep(3.0)
            kill(rank, signal.SIGCONT)
            tally.ended(victim.end(process), SETTINGS.commits)
    return tally


def worker_stopped_for_good(scratch: Path, count: int, dice: random.Random) -> Tally:
    """A worker that never sends an update again is given up after a second."""
    settings = Settings(engine="mpi", workers=4, commits=1500, give_up=1.0)
    tally = Tally("MPI, ULFM: a worker is stopped for good, given up after 1 s")
    for number in range(count):
        victim = Victim(scratch / f"mpi-gone{number}", settings, ULFM)
        with watched(victim, tally) as process:
            moment = time.time()
            kill(victim.rank(dice.randrange(1, 5)), signal.SIGSTOP)
            tally.ended(victim.end(process), settings.commits)
            _time_to_notice(victim, tally, moment, 3)
    return tally


def killed_and_resumed(
    scratch: Path, count: int, dice: random.Random, what: str, master: bool
) -> Tally:
    """The job must end by itself when its master is gone; a resume makes the rest of the commits."""
    tally = Tally(f"MPI, ULFM: {what}")
    for number in range(count):
        victim = Victim(
            scratch / f"mpi-{'master' if master else 'job'}{number}", SETTINGS, ULFM
        )
        with watched(victim, tally) as process:
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


def _time_to_notice(victim: Victim, tally: Tally, moment: float, workers: int) -> None:
    """Until the master counted so few workers."""
    after = [row[0] for row in victim.rows() if row[2] <= workers and row[0] > moment]
    if after:
        tally.noticed(after[0] - moment)
