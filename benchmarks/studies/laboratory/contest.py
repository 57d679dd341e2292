"""The lines that must hold: Table L-BFGS against tuned rivals and our other methods, on fresh draws.

    python -m benchmarks.studies.laboratory.contest [--seconds 600] [--problems ...] [--laws ...]
    python -m benchmarks.studies.laboratory.contest --seconds 0            prints the lines of what is stored
    python -m benchmarks.studies.laboratory.contest --seconds 0 --page     and writes the page

Every run is a line of docs/results/laboratory/contest.jsonl, and what is there is not measured again: the
command may be stopped at any time.  Draw k is measured with seed k + 1, for draws that nothing was chosen on.

Rivals have the parameters that were found for the problem, W and law on draw 0 (`table`, `tuned`).  All
methods get the same length of run.  Who does not arrive counts as if it had at the end of it; rivals whose
lines are those of `table` had less, which favours them.

What must hold was fixed before any of these runs was made:

    the table's time over the best tuned rival's, geometric means over all cells: at most 1.0 / 0.7 / 0.5 at
    5 / 1 / 0.1 %; by family at most 1.5 at every level;
    the table within 1.1 of the first of all in at least 80 % of the cells, at every level.

The same lines are printed for `default`, which is what `minimize` chooses where it may wait.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from asyncqn.algorithms import algorithm_from_json, algorithm_to_json
from asyncqn.algorithms.defaults import default_algorithm
from benchmarks.studies.laboratory import safety
from benchmarks.studies.laboratory.cells import CONVEX, FINE, FINER, GAPS, LAWS, PROBLEMS, problem, times_to
from benchmarks.studies.laboratory.page import geometric, write_page
from benchmarks.studies.laboratory.table import measured, ours
from benchmarks.studies.laboratory.tuned import RIVALS
from benchmarks.studies.tables import RESULTS, write

LINES = RESULTS / "laboratory" / "contest.jsonl"
FAMILIES = ("factorization", "network", "profiled", "linear", "logistic", "ill", "rotated")
DRAWS = (1, 2, 3)
LENGTH = {True: 12.0, False: 100.0}
"""Passes that every method is given, where U is convex and where it is not."""
MARGINS, FAMILY, NEAR, SHARE = (1.0, 0.7, 0.5), 1.5, 1.1, 0.8
Cell = tuple[str, str, int, int]
KEY = ("problem", "law", "workers", "draw", "method")


class Passes(NamedTuple):
    """What a method needed to every level, infinite where it did not arrive, and how many it was given."""

    needed: list[float]
    given: float

    def counted(self, level: int) -> float:
        return min(self.needed[level], self.given)


Times = dict[Cell, dict[str, Passes]]


def contestants(name: str, law: str, workers: int, draw: int) -> dict[str, Any]:
    """All methods of a cell: ours by their rules, rivals as they were tuned on draw 0."""
    found = {m: a for m, a in ours(name, workers, draw).items() if m not in ("metric", "difference")}
    found["default"] = default_algorithm(problem(name, draw).model, workers)
    for line in measured():
        if line["method"] in RIVALS and (line["problem"], line["law"], line["workers"]) == (
            name,
            law,
            workers,
        ):
            found.setdefault(line["method"], algorithm_from_json(line["algorithm"]))
    return found


def cells(given: argparse.Namespace) -> Iterator[Cell]:
    """By draw first, so that a part of the study is a fair sample of it."""
    for draw in given.draws:
        for name in given.problems:
            for workers in given.workers:
                for law in given.laws:
                    if name != "profiled" or workers <= 100:
                        yield name, law, workers, draw


def stored(*, short: bool = True) -> list[dict[str, Any]]:
    """The lines of this study, and those of `table` that still hold.

    short: also those of methods that did not arrive in a shorter run than here, for want of better ones.
    """
    own = [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.exists() else []
    known = {tuple(line[key] for key in KEY) for line in own}
    before = [line for line in measured() if line["draw"] in DRAWS and _holds(line, short)]
    return own + [line for line in before if tuple(line[key] for key in KEY) not in known]


def _holds(line: dict[str, Any], short: bool) -> bool:
    """Whether a line of `table` is of a method that did not change, and had its time to arrive.

    On *profiled* the times of those were too short, see CHANGELOG.md.
    """
    changed = line["method"] == "table" or line["method"].startswith("tuning")
    if changed or line["problem"] == "profiled":
        return False
    return short or None not in line["passes"] or line["most"] >= LENGTH[line["problem"] in CONVEX]


def measure(given: argparse.Namespace) -> None:
    until = time.monotonic() + given.seconds
    known = {tuple(line[key] for key in KEY): line for line in stored(short=False)}
    LINES.parent.mkdir(parents=True, exist_ok=True)
    for cell in cells(given):
        if time.monotonic() > until:
            return
        for method, algorithm in contestants(*cell).items():
            if (*cell, method) in known:
                continue
            if time.monotonic() > until:
                return
            same = [
                line for key, line in known.items()
                if key[:4] == cell and line["algorithm"] == algorithm_to_json(algorithm)
            ]  # fmt: skip
            record = {**same[0], "method": method} if same else one_run(cell, method, algorithm)
            known[(*cell, method)] = record
            with LINES.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print({k: v for k, v in record.items() if k != "algorithm"}, flush=True)


def one_run(cell: Cell, method: str, algorithm: Any) -> dict[str, Any]:
    """Measure a method in a cell."""
    name, law, workers, draw = cell
    begin, convex = time.process_time(), name in CONVEX
    looks = FINE if convex else FINER
    times, run = times_to(name, law, workers, algorithm, draw + 1, LENGTH[convex], looks, draw)
    return {
        **dict(zip(KEY, (*cell, method), strict=True)),
        "passes": [None if math.isinf(t) else round(t, 4) for t in times],
        "status": run.status, "commits": run.nit, "seconds": round(time.process_time() - begin, 1),
        "algorithm": algorithm_to_json(algorithm),
    }  # fmt: skip


def times_of(lines: list[dict[str, Any]]) -> Times:
    """The times in the cells in which a rival, the table and the default were measured."""
    found: Times = defaultdict(dict)
    for line in lines:
        cell = (line["problem"], line["law"], line["workers"], line["draw"])
        given = line.get("most", LENGTH[line["problem"] in CONVEX])
        needed = [math.inf if t is None else t for t in line["passes"]]
        found[cell][line["method"]] = Passes(needed, given)
    whole = {"table", "default", *RIVALS}
    return {cell: methods for cell, methods in found.items() if whole <= set(methods)}


def ratio(methods: dict[str, Passes], method: str, level: int) -> float:
    """The time of a method over that of the best tuned rival."""
    return methods[method].counted(level) / min(methods[rival].counted(level) for rival in RIVALS)


def _is_near(methods: dict[str, Passes], method: str, level: int) -> bool:
    """Whether a method arrives, and hardly later than the first of all."""
    mine, first = methods[method].needed[level], min(times.needed[level] for times in methods.values())
    return math.isfinite(mine) and mine <= NEAR * first


def verdict(times: Times, method: str) -> list[str]:
    """The lines that must hold for a method, each with its numbers."""
    if not times:
        return ["no cell is complete yet"]

    def line(good: bool, words: str) -> str:
        return f"{'holds ' if good else 'MISSED'}  {method}: {words}"

    said = []
    for level, gap in enumerate(GAPS):
        at = f"at {100 * gap:g} %"
        mean = geometric(ratio(m, method, level) for m in times.values())
        said.append(
            line(mean <= MARGINS[level], f"{mean:.2f} of the best rival {at}, at most {MARGINS[level]}")
        )
        by_family = {
            name: geometric(ratio(m, method, level) for c, m in times.items() if c[0] == name)
            for name in dict.fromkeys(cell[0] for cell in times)
        }
        worst = max(by_family, key=by_family.__getitem__)
        said.append(
            line(
                by_family[worst] <= FAMILY,
                f"worst family {at} is {worst}, {by_family[worst]:.2f}, at most {FAMILY}",
            )
        )
        near = sum(_is_near(m, method, level) for m in times.values())
        share = near / len(times)
        said.append(line(share >= SHARE, f"within {NEAR} of the first {at} in {near} of {len(times)} cells, "
                         f"{share:.2f}, at least {SHARE}"))  # fmt: skip
    return said


def by_family(times: Times) -> list[dict[str, Any]]:
    """By family, W and level: mean ratio to the best rival with its least and largest, and who is first."""
    rows = []
    for name, workers in dict.fromkeys((cell[0], cell[2]) for cell in times):
        mine = [m for c, m in times.items() if (c[0], c[2]) == (name, workers)]
        for level, gap in enumerate(GAPS):
            row: dict[str, Any] = {
                "problem": name,
                "W": workers,
                "cells": len(mine),
                "level": f"{100 * gap:g} %",
            }
            for method in ("table", "default"):
                each = [ratio(m, method, level) for m in mine]
                row[f"{method} / rival"] = f"{geometric(each):.2f} ({min(each):.2f} to {max(each):.2f})"
            firsts: dict[str, int] = defaultdict(int)
            for m in mine:
                best = min(m, key=lambda k: m[k].needed[level])
                firsts[best if math.isfinite(m[best].needed[level]) else "nobody"] += 1
            row["first"] = ", ".join(f"{k} {v}" for k, v in sorted(firsts.items(), key=lambda item: -item[1]))
            rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(FAMILIES))
    parser.add_argument("--laws", nargs="+", choices=LAWS, default=list(LAWS))
    parser.add_argument("--workers", nargs="+", type=int, default=[40, 400])
    parser.add_argument("--draws", nargs="+", type=int, default=list(DRAWS))
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further run after these")
    parser.add_argument("--page", action="store_true", help="write docs/results/laboratory.md")
    given = parser.parse_args()
    if given.seconds > 0:
        measure(given)
    times = times_of(stored())
    rows = by_family(times)
    if rows:
        write("laboratory/contest", rows)
    for row in rows:
        print(" | ".join(str(value) for value in row.values()))
    said = [line for method in ("table", "default") for line in verdict(times, method)]
    print(*said, sep="\n")
    if given.page:
        write_page(said, safety.verdict(safety.stored()))
    return 1 if any("MISSED" in line for line in said) else 0


if __name__ == "__main__":
    sys.exit(main())
