"""One long run with checkpoints: time per commit and memory must not grow.

Processor time per commit tells growth from other work on the machine, which the time on the clock shows too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.faults.harness import Tally, Victim
from benchmarks.faults.job import Settings

CLOCK, PROCESSOR = 0, 4
"""Columns of the victim's rows."""
LIMIT = 1800.0
"""Seconds within which it must end."""


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    """Yield the tally of one run of `count` times 250,000 commits: two million by default."""
    commits = 250_000 * count
    settings = Settings(
        workers=2, commits=commits, dim=10, pace=0.0, every=5.0, evaluate=commits // 100
    )
    victim = Victim(scratch / "soak", settings)
    tally = Tally(f"threads: {commits:,} commits, a checkpoint every 5 s", tries=1)
    begun = time.monotonic()
    report = victim.end(victim.start(), LIMIT)
    tally.ended(report, commits)
    rows = np.array(victim.rows())
    tenth = len(rows) // 10
    if tenth >= 2:
        # The first tenth follows the first evaluation, after which all is compiled.
        first, last = rows[1 : tenth + 2], rows[-tenth - 1 :]
        # The first tenth holds what a process needs once, compiled code for one.
        grown = (rows[-1, 3] - rows[tenth, 3]) / (rows[-1, 1] - rows[tenth, 1])
        tally.scenario += (
            f": {_per_commit(first, CLOCK):.1f} µs per commit in the first tenth, "
            f"{_per_commit(last, CLOCK):.1f} in the last; of processor time "
            f"{_per_commit(first, PROCESSOR):.1f} and {_per_commit(last, PROCESSOR):.1f}; "
            f"{grown:.1f} bytes of memory per commit; {time.monotonic() - begun:.0f} s with the replay"
        )
    yield tally


def _per_commit(rows: np.ndarray, time: int) -> float:
    """Microseconds; the median over the intervals, so that a moment of other work does not count."""
    return 1e6 * float(np.median(np.diff(rows[:, time]) / np.diff(rows[:, 1])))
