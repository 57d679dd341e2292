"""A full disk: a small file system in memory is filled while a run writes its checkpoints there."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.harness import Tally, Victim, resume_to_the_end, watched
from benchmarks.faults.job import Settings

SIZE = 64 << 20
SETTINGS = Settings(dim=50_000, commits=1000, pace=0.1, every=0.1)
"""A checkpoint of it takes several megabytes; half a minute is time to fill the disk."""


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    tries = max(1, count // 4)
    yield filled(
        scratch, tries, dice, "the disk fills and has room again", room_again=True
    )
    yield filled(
        scratch, tries, dice, "the disk fills, the run is killed", room_again=False
    )


def filled(
    scratch: Path, count: int, dice: random.Random, what: str, room_again: bool
) -> Tally:
    """The run continues without checkpoints; those that are there stay whole, and it can be resumed."""
    tally = Tally(f"threads: {what}")
    if os.geteuid() != 0:
        tally.faults.append("not tried: mounting a small file system needs root")
        return tally
    for number in range(count):
        with small_disk(scratch / f"disk{number}-{room_again}") as disk:
            victim = Victim(disk / "job", SETTINGS)
            with watched(victim, tally) as process:
                victim.wait(process, lambda v=victim: v.saved_commit() > 0)  # type: ignore[misc]
                before = victim.saved_commit()
                filler = disk / "filler"
                _fill(filler)
                at = victim.commit()
                victim.wait(process, lambda v=victim, at=at: v.commit() > at + 60)  # type: ignore[misc]
                tally.checkpoints_lost += victim.saved_commit() < before
                if process.poll() is not None:
                    tally.faults.append("the run ended while the disk was full")
                if room_again:
                    filler.unlink()
                    tally.ended(victim.end(process), SETTINGS.commits)
                    continue
                at = victim.commit()
                victim.kill_all(process)
                filler.unlink()
                resume_to_the_end(victim, tally, at)
    return tally


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """Mount a small file system at `place` inside the block."""
    place.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)], check=True
    )
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _fill(file: Path) -> None:
    """Take all the room that is left, but for the few bytes that the log of the run needs."""
    with file.open("wb", buffering=0) as out:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    out.write(bytes(size))
            except OSError:
                continue
        out.truncate(max(0, out.tell() - (256 << 10)))
