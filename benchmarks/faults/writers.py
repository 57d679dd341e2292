"""Two writers on one folder of checkpoints: a second run, and a resume beside the living one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.faults.harness import Tally, Victim, watched
from benchmarks.faults.job import Settings

SETTINGS = Settings(commits=2500, every=0.2)
REFUSED = "refused"


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    yield beside(scratch, count, dice, "a second run starts at once", early=True)
    yield beside(scratch, count, dice, "a resume beside the living run", early=False)


def beside(
    scratch: Path, count: int, dice: random.Random, what: str, early: bool
) -> Tally:
    """The second writer must be refused in a sentence, and the first must not notice.

    early: the first has no checkpoint yet, so that the second is a new run, else a resume.
    """
    tally = Tally(f"threads: {what}")
    settings = replace(SETTINGS, every=60.0) if early else SETTINGS
    for number in range(count):
        first = Victim(scratch / f"first{number}-{early}", settings)
        second = Victim(scratch / f"second{number}-{early}", settings)
        second.checkpoints.symlink_to(first.checkpoints)
        with watched(first, tally) as process:
            if not early:
                first.wait(process, lambda v=first: v.saved_commit() > 0)  # type: ignore[misc]
            time.sleep(dice.uniform(0.0, 0.3))
            begun = time.monotonic()
            report = second.end(second.start(), 60.0)
            if "status" in report or "another" not in str(report.get("words")):
                tally.faults.append(
                    f"the second was not refused: {report.get('words', 'it ran')}"
                )
            else:
                tally.noticed(time.monotonic() - begun)
            tally.ended(first.end(process), settings.commits)
    return tally
