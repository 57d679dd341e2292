"""One long run with checkpoints: time per commit and memory must not grow."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.faults.harness import Tally, Victim
from benchmarks.faults.job import Settings

COMMITS = 2_000_000
LIMIT = 1800.0
"""Seconds within which it must end."""


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    """`count` is not used: one run of two million commits."""
    settings = Settings(workers=2, commits=COMMITS, dim=10, pace=0.0, every=5.0, evaluate=COMMITS // 100)
    victim = Victim(scratch / "soak", settings)
    tally = Tally(f"threads: {COMMITS:,} commits, a checkpoint every 5 s", tries=1)
    begun = time.monotonic()
    report = victim.end(victim.start(), LIMIT)
    tally.ended(report, COMMITS)
    rows = np.array(victim.rows())
    tenth = len(rows) // 10
    if tenth >= 2:
        first, last = _per_commit(rows[: tenth + 1]), _per_commit(rows[-tenth - 1 :])
        # The first tenth holds what a process needs once, compiled code for one.
        grown = (rows[-1, 3] - rows[tenth, 3]) / (rows[-1, 1] - rows[tenth, 1])
        tally.scenario += (
            f": {first * 1e6:.1f} µs per commit in the first tenth, {last * 1e6:.1f} in the last; "
            f"{grown:.1f} bytes of memory per commit; {time.monotonic() - begun:.0f} s with the replay"
        )
    yield tally


def _per_commit(rows: np.ndarray) -> float:
    """Median over the intervals, so that a moment of other work on the machine does not count."""
    return float(np.median(np.diff(rows[:, 0]) / np.diff(rows[:, 1])))
