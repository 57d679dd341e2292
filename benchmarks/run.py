"""Run the benchmarks: `python -m benchmarks.run [NAME ...]` from the root of the project.

Each file benchmarks/speed/bench_*.py ends in `BENCHMARKS`, a tuple of functions without arguments; each
returns a list of records {name, value, unit, ratio, target, met}.  NAME picks those whose file or
function name contains it.  A table goes to standard output, all records to benchmarks/results.json.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results.json"
KEYS = ("name", "value", "unit", "ratio", "target", "met")

Record = dict[str, Any]
Benchmark = Callable[[], list[Record]]


def failure(name: str) -> Record:
    """Return the record of a benchmark that raised; the traceback has gone to standard error."""
    return {
        "name": name,
        "value": None,
        "unit": "failed",
        "ratio": None,
        "target": "runs",
        "met": False,
    }


def met(record: Record) -> bool | None:
    """Return whether the number that a row shows, its ratio or else its value, meets the row's target.

    A target is "<= 8", ">= 0.8" or ">= 1e6", with a unit behind it or not; None: the row has no target.
    """
    target = re.match(r"(<=|>=) ([0-9.]+(?:e[0-9]+)?)", record["target"] or "")
    shown = record["value"] if record["ratio"] is None else record["ratio"]
    if target is None or shown is None:
        return None
    return bool(
        shown <= float(target[2]) if target[1] == "<=" else shown >= float(target[2])
    )


def checked(record: Record) -> Record:
    """Return the record with exactly the promised keys and plain JSON values, or a `ValueError`."""
    record = {**record, "met": met(record)}
    if set(record) != set(KEYS):
        raise ValueError(
            f"a benchmark record has the keys {', '.join(KEYS)}; this one has {', '.join(record)}."
        )
    # NumPy's numbers have `item`; JSON knows only Python's.
    plain = {
        key: record[key].item() if hasattr(record[key], "item") else record[key]
        for key in KEYS
    }
    # Raises for what JSON cannot hold, here rather than after an hour of benchmarks.
    json.dumps(plain, allow_nan=False)
    return plain


def collect(
    folder: Path, picks: Sequence[str]
) -> tuple[list[tuple[str, Benchmark]], list[str]]:
    """Return the chosen benchmarks as (file.function, function), and the files that could not be imported."""
    chosen: list[tuple[str, Benchmark]] = []
    broken: list[str] = []
    for path in sorted((folder / "speed").glob("bench_*.py")):
        try:
            # A file whose optional package is missing must not keep the others from running.
            functions = importlib.import_module(
                f"{folder.name}.speed.{path.stem}"
            ).BENCHMARKS
        except Exception:
            traceback.print_exc()
            broken.append(path.stem)
            continue
        named = (
            (f"{path.stem}.{function.__name__}", function) for function in functions
        )
        chosen += [
            (name, function)
            for name, function in named
            if not picks or any(p in name for p in picks)
        ]
    return chosen, broken


def write(records: list[Record], path: Path) -> None:
    """Replace the results in one stroke, after every benchmark, so that an interruption loses nothing."""
    draft = path.with_suffix(".json.part")
    draft.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, path)


def table(records: list[Record]) -> Table:
    """Return the records as a table for people."""
    view = Table(title="asyncqn benchmarks")
    for heading in KEYS:
        view.add_column(
            heading, justify="right" if heading in ("value", "ratio") else "left"
        )
    for record in records:
        numbers = {
            key: "" if record[key] is None else f"{record[key]:.4g}"
            for key in ("value", "ratio")
        }
        met = {None: "", True: "yes", False: "[red]no[/red]"}[record["met"]]
        target = "" if record["target"] is None else str(record["target"])
        view.add_row(
            record["name"],
            numbers["value"],
            record["unit"],
            numbers["ratio"],
            target,
            met,
        )
    return view


def main(picks: Sequence[str]) -> int:
    """Run what is picked; 1 when a benchmark raised or none was found, else 0, whatever was met."""
    progress = Console(stderr=True)
    chosen, broken = collect(FOLDER, picks)
    records = [failure(name) for name in broken]
    if not chosen and not broken:
        progress.print(
            f"No benchmark is called {' or '.join(picks) or 'bench_*'}; see benchmarks/speed/bench_*.py."
        )
        return 1
    errors = len(broken)
    for number, (name, function) in enumerate(chosen, 1):
        progress.print(f"[{number}/{len(chosen)}] {name} ...", end="", markup=False)
        start = time.perf_counter()
        try:
            records += [checked(record) for record in function()]
            progress.print(f" {time.perf_counter() - start:.1f} s")
        except Exception:
            progress.print(" failed")
            traceback.print_exc()
            records.append(failure(name))
            errors += 1
        write(records, RESULTS)
    write(records, RESULTS)
    Console().print(table(records))
    progress.print(f"{RESULTS.relative_to(FOLDER.parent)} written, {errors} failed.")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
