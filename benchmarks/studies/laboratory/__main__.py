"""The laboratory by one command: measure, and say what holds.

    python -m benchmarks.studies.laboratory [look | apart] [--method table] [--seconds 600]
    python -m benchmarks.studies.laboratory look --print

Every run is a line of docs/results/laboratory/SET.jsonl, and what is there is not measured again; delete the
lines of a method to measure it anew (`--forget table`).  The rules are in `verdict`, the problems in
`problems`; README.md beside this file says how both were used.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asyncqn.storage import write_whole
from benchmarks.studies.laboratory.cells import WORKERS, Cell, measure, methods
from benchmarks.studies.laboratory.problems import APART, LOOK, problem
from benchmarks.studies.laboratory.verdict import table_of, verdict
from benchmarks.studies.tables import RESULTS

SETS = {"look": LOOK, "apart": APART}
SEEDS = {"look": range(4), "apart": range(20, 26)}
"""Seeds of the delays."""
RIVAL_SEEDS = 1
"""Rivals have the first of them: their runs hardly differ."""


def stored(file: Path) -> list[dict[str, Any]]:
    """Return the lines of the runs made so far."""
    if not file.exists():
        return []
    return [json.loads(text) for text in file.read_text().splitlines()]


def runs(
    which: str, only: list[str], names: list[str]
) -> Iterator[tuple[Cell, str, int]]:
    """Yield the runs of a set: cell, method and seed."""
    for name in SETS[which]:
        if names and name not in names:
            continue
        for workers in WORKERS:
            cell = Cell(name, workers)
            for method in methods(cell, problem(name)):
                if only and method.split()[0] not in only:
                    continue
                seeds = list(SEEDS[which])
                for seed in seeds if method == "table" else seeds[:RIVAL_SEEDS]:
                    yield cell, method, seed


def main() -> int:
    parser = argparse.ArgumentParser(description="the laboratory")
    parser.add_argument("set", choices=SETS, nargs="?", default="look")
    parser.add_argument("--method", nargs="*", default=[])
    parser.add_argument("--problem", nargs="*", default=[])
    parser.add_argument("--forget", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--print", action="store_true")
    given = parser.parse_args()
    file = given.file or RESULTS / "laboratory" / f"{given.set}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    if given.forget:
        kept = [line for line in stored(file) if line["method"] not in given.forget]
        write_whole(file, "".join(json.dumps(line) + "\n" for line in kept))
    done = {
        (line["problem"], line["workers"], line["method"], line["seed"])
        for line in stored(file)
    }
    until = time.monotonic() + given.seconds
    for cell, method, seed in (
        () if given.print else runs(given.set, given.method, given.problem)
    ):
        if (*cell, method, seed) in done:
            continue
        if time.monotonic() > until:
            print("the time is up: run the command again", flush=True)
            break
        line = measure(cell, method, seed)
        with file.open("a") as out:
            out.write(json.dumps(line) + "\n")
    lines = stored(file)
    print("\n".join(table_of(lines)))
    print(*verdict(lines), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
