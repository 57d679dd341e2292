"""Injure runs, resume, replay, count: `python -m benchmarks.faults [SCENARIO ...] [--count N] [--seed N]`.

Scenarios: threads, mpi, ray, disk, writers, kill_points, interrupts, soak; all, without a name.  What became
of the runs is written into docs/results/faults.csv and .md, in place of what stood there of the same rows.
The exit code is 1 if anything was lost.  (Two hosts: `python -m benchmarks.faults.two_hosts`.)
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.faults import (
    disk,
    interrupts,
    kill_points,
    mpi,
    ray,
    soak,
    threads,
    writers,
)
from benchmarks.faults.harness import COLUMNS, Scenario
from benchmarks.faults.table import RESULTS, write_table

SCENARIOS: dict[str, Scenario] = {
    module.__name__.rpartition(".")[2]: module.scenarios
    for module in (threads, mpi, ray, disk, writers, kill_points, interrupts, soak)
}

WORDS = """
# Faults on one machine

`python -m benchmarks.faults` kills, stops or interrupts runs, or fills their disk; then it resumes them and
replays them from their start.

- *completed*: the run, or its resume, made all its commits; after Ctrl-C: it ended with the right exit
  code; after the death of a writer: the next one wrote the new version.
- *replayed bit for bit*: so did the saved run; after Ctrl-C: the resumed checkpoint, if the run had begun.
- *checkpoints lost*: the newest whole checkpoint was older after the fault than before, or a killed writer
  left neither the old version nor the new one.
- *most commits done again*: committed after the newest checkpoint, with one every 0.2 s.
- *time to notice*: until the master counted the loss, or the job, the second writer or the program ended.
- *left behind*: processes alive 8 s after the end (20 s after the death of a Ray driver).
"""


def answer(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the sentence about all tries."""
    tries, completed, replayed, lost = (
        sum(int(row[column]) for row in rows)
        for column in ("tries", "completed", "replayed bit for bit", "checkpoints lost")
    )
    again = max(int(row["most commits done again"]) for row in rows)
    return (
        f"**Of {tries} runs and writers that were killed, stopped or interrupted, {completed} completed, "
        f"if necessary\nafter a resume, and {replayed} replayed bit for bit.** {lost} checkpoints were lost, "
        f"and at most {again}\ncommits had to be computed again."
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "scenario", nargs="*", choices=[[], *SCENARIOS], help="all, without a name"
    )
    parser.add_argument("--count", type=int, default=8, help="tries of a kind (8)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the moments at which things happen (0)"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS / "faults", help="where the table goes"
    )
    chosen = parser.parse_args(arguments)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that what was started is ended
    good = True
    with tempfile.TemporaryDirectory(prefix="asyncqn-faults-") as scratch:
        for name in chosen.scenario or SCENARIOS:
            for tally in SCENARIOS[name](
                Path(scratch), chosen.count, random.Random(chosen.seed)
            ):
                print(
                    ", ".join(f"{k}: {v}" for k, v in tally.row().items() if v),
                    flush=True,
                )
                write_table(
                    chosen.results,
                    COLUMNS,
                    [tally.row()],
                    keys=1,
                    words=WORDS,
                    answer=answer,
                )
                good = good and tally.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
