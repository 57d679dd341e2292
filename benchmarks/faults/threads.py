"""Threads: whole runs killed at random moments and while they write a checkpoint, stopped and continued."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.harness import (
    Tally,
    Victim,
    resume_to_the_end,
    stop_and_continue,
    tries,
    watched,
)
from benchmarks.faults.job import Settings


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    yield killed_at_random(scratch, count, dice)
    yield killed_while_writing(scratch, count, dice)
    yield stopped_and_continued(scratch, max(1, count // 4), dice)


def killed_at_random(scratch: Path, count: int, dice: random.Random) -> Tally:
    """Each run is killed, resumed and killed again, up to three times, and then left alone."""
    tally = Tally("threads: the whole run is killed")
    for number in range(count):
        victim = Victim(scratch / f"random{number}", Settings())
        for _ in range(dice.randrange(3)):
            process = victim.start()
            victim.running(process)
            time.sleep(dice.uniform(0.0, 0.6))
            _kill_and_check(victim, tally, process)
        with watched(victim, tally) as process:
            time.sleep(dice.uniform(0.0, 0.6))
            _kill_and_check(victim, tally, process)
            resume_to_the_end(victim, tally, victim.commit())
    return tally


def killed_while_writing(scratch: Path, count: int, dice: random.Random) -> Tally:
    """Large states that are written all the time, so that nearly every kill falls into a write."""
    tally = Tally("threads: killed while a checkpoint is written")
    settings = Settings(dim=100_000, commits=300, pace=0.01, every=0.001, evaluate=5)
    for victim, process in tries(tally, scratch / "writing", count, settings):
        victim.wait(process, lambda v=victim: v.saved_commit() > 0)  # type: ignore[misc]
        time.sleep(dice.uniform(0.0, 0.3))
        _kill_and_check(victim, tally, process)
        resume_to_the_end(victim, tally, victim.commit())
    return tally


def stopped_and_continued(scratch: Path, count: int, dice: random.Random) -> Tally:
    """As when a laptop sleeps."""
    tally = Tally("threads: stopped for 3 s and continued")
    for victim, process in tries(tally, scratch / "stopped", count, Settings()):
        time.sleep(dice.uniform(0.0, 0.6))
        stop_and_continue(victim, tally, process, process.pid)
    return tally


def _kill_and_check(
    victim: Victim, tally: Tally, process: subprocess.Popen[str]
) -> None:
    """Kill the run; what was on the disk before must be there, or newer."""
    before = victim.saved_commit()
    victim.kill_all(process)
    tally.checkpoints_lost += victim.saved_commit() < before
