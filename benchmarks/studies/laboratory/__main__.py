"""The laboratory by one command: measure, and say what holds.

    python -m benchmarks.studies.laboratory [look | apart] [--method table] [--seconds 600]
    python -m benchmarks.studies.laboratory look --print

Every run is a line of docs/results/laboratory/SET.jsonl, and what is there is not measured again: delete lines
to measure them anew.  The rules are in `verdict`, the problems in `problems`; README.md beside this file says
how both were used.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.studies.laboratory.cells import (
    WORKERS,
    Cell,
    add,
    measure,
    methods,
    stored,
)
from benchmarks.studies.laboratory.problems import APART, LOOK, problem
from benchmarks.studies.laboratory.verdict import table_of, verdict
from benchmarks.studies.tables import RESULTS

SETS = {"look": LOOK, "apart": APART}
SEEDS = {"look": range(4), "apart": range(20, 26)}
"""Seeds of the delays; rivals have the first one alone, because their runs hardly differ."""


def runs(names: str, only: list[str]) -> Iterator[tuple[Cell, str, int]]:
    """Yield the runs of a set: cell, method and seed."""
    for name in SETS[names]:
        for workers in WORKERS:
            cell = Cell(name, workers)
            for method in methods(cell, problem(name)):
                if not only or method.split()[0] in only:
                    seeds = SEEDS[names]
                    for seed in seeds if method == "table" else seeds[:1]:
                        yield cell, method, seed


def main() -> int:
    parser = argparse.ArgumentParser(description="the laboratory")
    parser.add_argument("set", choices=SETS, nargs="?", default="look")
    parser.add_argument("--method", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--print", action="store_true")
    given = parser.parse_args()
    file = given.file or RESULTS / "laboratory" / f"{given.set}.jsonl"
    names = ("problem", "workers", "method", "seed")
    done = {tuple(line[name] for name in names) for line in stored(file)}
    until = time.monotonic() + given.seconds
    for cell, method, seed in () if given.print else runs(given.set, given.method):
        if (*cell, method, seed) in done:
            continue
        if time.monotonic() > until:
            print("the time is up: run the command again", flush=True)
            break
        add(file, measure(cell, method, seed))
    lines = stored(file)
    print(*table_of(lines), *verdict(lines), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
