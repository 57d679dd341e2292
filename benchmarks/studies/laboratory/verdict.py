"""What must hold, fixed before any of the runs was made, and what the saved lines say of it.

In a cell and at a level, the time of a method is the geometric mean over its runs (draws and seeds); who
does not arrive counts as the length of the run.  The best rival is the tuned rival with the least time, and
only draws and seeds that all of them and the method have in common are compared.

    the method's time over the best rival's, geometric means over all convex cells and over all others: at
    most 1.0 / 0.7 / 0.5 at 5 / 1 / 0.1 %; by family at most 1.5 at every level;
    the method arrives and is within 1.1 of the first of all in at least 80 % of the cells, at every level.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from benchmarks.studies.laboratory.cells import Cell, length
from benchmarks.studies.laboratory.problems import CONVEX, GAPS
from benchmarks.studies.laboratory.rivals import RIVALS

MARGINS, FAMILY, NEAR, SHARE = (1.0, 0.7, 0.5), 1.5, 1.1, 0.8
JUDGED = ("table", "default")
Times = dict[Cell, dict[str, list[dict[tuple[int, int], float]]]]
"""By cell, method and level: passes by draw and seed, infinite where the method did not arrive."""


def geometric(numbers: Iterable[float]) -> float:
    """Return the geometric mean; NaN of nothing."""
    logs = [math.log(number) for number in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def times_of(lines: list[dict[str, Any]]) -> Times:
    """Return the times of all lines; a rival's line counts at the levels that it was tuned for."""
    found: Times = defaultdict(lambda: defaultdict(lambda: [{} for _ in GAPS]))
    for line in lines:
        cell = Cell(line["family"], line["workers"], line["kind"])
        for level in line.get("levels", range(len(GAPS))):
            needed = line["passes"][level]
            run = line["draw"], line["seed"]
            found[cell][line["method"]][level][run] = (
                math.inf if needed is None else needed
            )
    return found


class Compared(NamedTuple):
    """A method beside all others, in a cell at a level."""

    cell: Cell
    ratio: float
    """Its time over that of the best rival."""
    spread: float
    """The factor by which that ratio differs between runs: the geometric standard deviation."""
    runs: int
    near: bool
    """Whether it arrives, and hardly later than the first of all."""
    first: str


def compare(times: Times, method: str, level: int) -> list[Compared]:
    """Return how a method does in every cell in which it and two rivals were measured."""
    found = []
    for cell, methods in times.items():
        here = {
            name: levels[level] for name, levels in methods.items() if levels[level]
        }
        rivals = [name for name in here if name in RIVALS]
        if method not in here or len(rivals) < 2:
            continue
        runs = set(here[method]).intersection(*(here[rival] for rival in rivals))
        whole = {name: each for name, each in here.items() if runs <= set(each)}
        if not runs or not set(rivals) <= set(whole):
            continue

        def counted(
            name: str, run: tuple[int, int], whole: Any = whole, cell: Cell = cell
        ) -> float:
            return float(min(whole[name][run], length(cell.family)))

        means = {name: geometric(counted(name, run) for run in runs) for name in whole}
        best = min(rivals, key=means.__getitem__)
        first = min(means, key=means.__getitem__)
        arrived = {
            name
            for name in means
            if any(math.isfinite(whole[name][run]) for run in runs)
        }
        logs = [math.log(counted(method, run) / counted(best, run)) for run in runs]
        found.append(Compared(
            cell, means[method] / means[best], math.exp(statistics.pstdev(logs)), len(runs),
            method in arrived and means[method] <= NEAR * means[first], first if arrived else "nobody",
        ))  # fmt: skip
    return found


class Line(NamedTuple):
    """A line that must hold: what is judged, at which level, its number, and the words beside it."""

    what: str
    level: str
    good: bool
    number: str
    limit: str

    def __str__(self) -> str:
        word = "holds " if self.good else "MISSED"
        return f"{word}  {self.what} at {self.level}: {self.number}, {self.limit}"


def verdict(times: Times, method: str) -> list[Line]:
    """Return the lines that must hold for a method."""
    said: list[Line] = []
    for level, gap in enumerate(GAPS):
        compared, at = compare(times, method, level), f"{100 * gap:g} %"
        if not compared:
            continue
        for word, convex in (("convex", True), ("other", False)):
            each = [c.ratio for c in compared if (c.cell.family in CONVEX) == convex]
            if each:
                mean, most = geometric(each), MARGINS[level]
                number = f"{mean:.2f} ({min(each):.2f} to {max(each):.2f}, {len(each)} cells)"
                said.append(
                    Line(f"{word} cells", at, mean <= most, number, f"at most {most}")
                )
        families = {
            name: geometric(c.ratio for c in compared if c.cell.family == name)
            for name in dict.fromkeys(c.cell.family for c in compared)
        }
        worst = max(families, key=families.__getitem__)
        number = f"{families[worst]:.2f} ({worst})"
        said.append(
            Line(
                "worst family",
                at,
                families[worst] <= FAMILY,
                number,
                f"at most {FAMILY}",
            )
        )
        near = sum(c.near for c in compared)
        share = near / len(compared)
        number = f"{share:.2f} ({near} of {len(compared)} cells)"
        said.append(
            Line(
                f"within {NEAR} of the first",
                at,
                share >= SHARE,
                number,
                f"at least {SHARE}",
            )
        )
    return said


def summary(times: Times) -> list[dict[str, Any]]:
    """Return a row by family, W and level: mean ratios, their spread, and who is first."""
    rows = []
    for level, gap in enumerate(GAPS):
        by_method = {method: compare(times, method, level) for method in JUDGED}
        pairs = dict.fromkeys(
            (c.cell.family, c.cell.workers) for each in by_method.values() for c in each
        )
        for family, workers in pairs:
            row: dict[str, Any] = {
                "problem": family,
                "W": workers,
                "level": f"{100 * gap:g} %",
            }
            firsts: Counter[str] = Counter()
            for method, compared in by_method.items():
                mine = [
                    c
                    for c in compared
                    if (c.cell.family, c.cell.workers) == (family, workers)
                ]
                firsts = firsts or Counter(c.first for c in mine)
                row["cells"], row["runs"] = len(mine), sum(c.runs for c in mine)
                ratios = [c.ratio for c in mine]
                row[f"{method} / rival"] = round(geometric(ratios), 3)
                row[f"{method} least"] = round(min(ratios, default=math.nan), 3)
                row[f"{method} most"] = round(max(ratios, default=math.nan), 3)
                row[f"{method} spread of runs"] = round(
                    geometric(c.spread for c in mine), 3
                )
            row["first"] = ", ".join(
                f"{name} {count}" for name, count in firsts.most_common()
            )
            rows.append(row)
    return rows
