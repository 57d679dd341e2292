"""Ray: workers killed and stopped, the driver killed, on a local Ray of the run's own."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.harness import (
    Tally,
    Victim,
    check_losses,
    kill,
    named,
    resume_to_the_end,
    stop_and_continue,
    tries,
)
from benchmarks.faults.job import Settings

SETTINGS = Settings(engine="ray", workers=3, commits=900, pace=0.02)


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    yield worker_killed(scratch, count, dice)
    yield worker_stopped(scratch, max(1, count // 4), dice)
    yield driver_killed(scratch, max(1, count // 2), dice)


def worker_killed(scratch: Path, count: int, dice: random.Random) -> Tally:
    """A new worker takes the place of the lost one."""
    tally = Tally("Ray: a worker is killed")
    for victim, process in tries(tally, scratch / "ray-killed", count, SETTINGS):
        time.sleep(dice.uniform(0.0, 1.0))
        moment = time.time()
        kill(dice.choice(_workers(victim)))
        report = victim.end(process)
        tally.ended(report, SETTINGS.commits)
        check_losses(victim, tally, report, moment, 1)
    return tally


def worker_stopped(scratch: Path, count: int, dice: random.Random) -> Tally:
    tally = Tally("Ray: a worker is stopped for 3 s and continued")
    for victim, process in tries(tally, scratch / "ray-stopped", count, SETTINGS):
        stop_and_continue(victim, tally, process, dice.choice(_workers(victim)))
    return tally


def driver_killed(scratch: Path, count: int, dice: random.Random) -> Tally:
    """Ray must end its processes by itself; a resume makes the rest of the commits."""
    tally = Tally("Ray: the driver is killed")
    for victim, process in tries(tally, scratch / "ray-driver", count, SETTINGS):
        time.sleep(dice.uniform(0.3, 1.5))
        before = victim.saved_commit()
        kill(process.pid)
        process.communicate()
        tally.checkpoints_lost += victim.saved_commit() < before
        tally.left_behind += victim.left_behind(20.0)
        resume_to_the_end(victim, tally, victim.commit())
    return tally


def _workers(victim: Victim) -> list[int]:
    """Return the processes of the actors."""
    return named(victim.family, "ray::Worker")
