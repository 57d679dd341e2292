"""Injure runs, resume, replay, count: `python -m benchmarks.faults [SCENARIO ...] [--count N] [--seed N]`.

Scenarios: threads, mpi, ray, disk, kill_points, interrupts; all, without a name.  What became
of the runs is written into docs/results/faults.csv and .md, in place of what stood there of the same rows.
The exit code is 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from asyncqn.storage import write_whole
from benchmarks.faults import disk, interrupts, kill_points, mpi, ray, threads
from benchmarks.faults.harness import COLUMNS, Scenario

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "results"

SCENARIOS: dict[str, Scenario] = {
    module.__name__.rpartition(".")[2]: module.scenarios
    for module in (threads, mpi, ray, disk, kill_points, interrupts)
}

WORDS = """
# Faults on one machine

ANSWER

`python -m benchmarks.faults` kills, stops or interrupts runs, or fills their disk; then it resumes them and
replays them from their start.

- *completed*: the run, or its resume, made all its commits; after Ctrl-C: it ended with the right exit
  code; after the death of a writer: the next one wrote the new version.
- *replayed bit for bit*: so did the saved run; after Ctrl-C: the resumed checkpoint, if the run had begun.
- *checkpoints lost*: the newest whole checkpoint was older after the fault than before, or a killed writer
  left neither the old version nor the new one.
- *most commits done again*: committed after the newest checkpoint, with one every 0.2 s.
- *time to notice*: until the master counted the loss, or the job or the program ended.
- *left behind*: processes alive 8 s after the end (20 s after the death of a Ray driver).
"""


def write_table(stem: Path, row: Mapping[str, str]) -> None:
    """Put a row into stem.csv, in place of that of its scenario, and make stem.md from all of them."""
    file, rows = stem.with_suffix(".csv"), {}
    if file.exists():
        with file.open(newline="", encoding="utf-8") as stored:
            rows = {old["scenario"]: old for old in csv.DictReader(stored)}
    rows[row["scenario"]] = dict(row)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    write_whole(file, text.getvalue())
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    lines += [[old[column] or "" for column in COLUMNS] for old in rows.values()]
    table = "\n".join(
        f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines
    )
    words = WORDS.strip().replace("ANSWER", _answer(list(rows.values())))
    write_whole(stem.with_suffix(".md"), f"{words}\n\n{table}\n")


def _answer(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the sentence about all tries."""

    def total(column: str) -> int:
        return sum(int(row[column]) for row in rows)

    again = max(int(row["most commits done again"]) for row in rows)
    return (
        f"**Of {total('tries')} runs and writers that were killed, stopped or interrupted, "
        f"{total('completed')} completed, if necessary\nafter a resume, and "
        f"{total('replayed bit for bit')} replayed bit for bit.** {total('checkpoints lost')} checkpoints "
        f"were lost, and at most {again}\ncommits had to be computed again."
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
    # So that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    good = True
    with tempfile.TemporaryDirectory(prefix="asyncqn-faults-") as scratch:
        for name in chosen.scenario or SCENARIOS:
            for tally in SCENARIOS[name](
                Path(scratch), chosen.count, random.Random(chosen.seed)
            ):
                row = tally.row()
                print(", ".join(f"{k}: {v}" for k, v in row.items() if v), flush=True)
                write_table(chosen.results, row)
                good = good and tally.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
