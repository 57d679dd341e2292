"""Run the benchmarks: `python -m benchmarks.run [NAME ...]` from the root of the project.

Each file benchmarks/speed/bench_*.py ends in `BENCHMARKS`, a tuple of functions without arguments; each
returns a list of records {name, value, unit, ratio, target, met}.  NAME picks those whose file or
function name contains it.  Lines of at most 80 columns go to standard output, all records to benchmarks/results.json.
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


def write(groups: dict[str, list[Record]], path: Path) -> None:
    """Replace the results in one stroke, after every benchmark, so that an interruption loses nothing."""
    draft = path.with_suffix(".json.part")
    records = [record for group in groups.values() for record in group]
    draft.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, path)


def lines(groups: dict[str, list[Record]]) -> list[str]:
    """Return the records as text for a terminal of 80 columns: first what was missed, then group by group."""
    every = [record for records in groups.values() for record in records]
    others = {
        group: [record for record in records if record["met"] is not False]
        for group, records in groups.items()
    }
    missed = [record for record in every if record["met"] is False]
    text = []
    for title, records in {"missed": missed, **others}.items():
        if records:
            text += ["", title, *map(line, records)]
    with_target = sum(record["met"] is not None for record in every)
    summary = f"{len(every)} rows, {with_target} with a target, {len(missed)} missed"
    return [*text, "", summary]


def line(record: Record) -> str:
    """Return one row: name, value with its unit, ratio and target."""
    value, ratio = (
        "" if record[key] is None else f"{record[key]:.4g}"
        for key in ("value", "ratio")
    )
    shown = fitted(f"{value} {record['unit']}", 17)
    target = fitted(str(record["target"] or ""), 11)
    row = f"  {fitted(record['name'], 40):<40} {shown:>17} {ratio:>6} {target}"
    return row.rstrip()


def fitted(text: str, width: int) -> str:
    """Return a text on one line, cut to a number of columns."""
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def main(picks: Sequence[str]) -> int:
    """Run what is picked; 1 when a benchmark raised or none was found, else 0, whatever was met."""
    progress = Console(stderr=True)
    chosen, broken = collect(FOLDER, picks)
    groups = {name: [failure(name)] for name in broken}
    if not chosen and not broken:
        progress.print(
            f"No benchmark is called {' or '.join(picks) or 'bench_*'}; see benchmarks/speed/bench_*.py."
        )
        return 1
    errors = len(broken)
    for number, (name, function) in enumerate(chosen, 1):
        progress.print(f"[{number}/{len(chosen)}] {name} ...", end="", markup=False)
        start = time.perf_counter()
        # The rows of a file are a group.
        records = groups.setdefault(name.partition(".")[0].removeprefix("bench_"), [])
        try:
            records += [checked(record) for record in function()]
            progress.print(f" {time.perf_counter() - start:.1f} s")
        except Exception:
            progress.print(" failed")
            traceback.print_exc()
            records.append(failure(name))
            errors += 1
        write(groups, RESULTS)
    write(groups, RESULTS)
    print("\n".join(lines(groups)))
    progress.print(f"{RESULTS.relative_to(FOLDER.parent)} written, {errors} failed.")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
