"""What must hold, fixed before the method was written, and what the lines of the runs say of it.

U* of a problem is the lowest U of all its lines, and the gap is (U - U*) / (U(theta0) - U*).  A cell is a
problem and a number of workers; a tuned rival is the best of its three rates by the median of the end.

    one group       the worst end of all seeds is at most 1.5 times the median gap, in every cell
    no harm         no run ends above its start
    two workers     passes to 5 % on networks over those of tuned serial Adam: at most 1.2
    delays          the same at W = 16 and 40 over the best tuned asynchronous rival: at most 0.9
    1 %             over the best tuned asynchronous rival, all problems that are not convex: at most 0.7
    worst problem   the same at 5 %, geometric mean over W: at most 1.3 for every problem

Passes are medians over seeds; who does not arrive counts as `NEVER` passes.  Means are geometric.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from benchmarks.studies.laboratory.cells import LOOKS, PASSES, Cell
from benchmarks.studies.laboratory.problems import CONVEX, NETWORKS

ONE_GROUP, SERIAL, DELAYED, ONE_PERCENT, WORST = 1.5, 1.2, 0.9, 0.7, 1.3
NEVER = 2.0 * PASSES
LEAST_GAP = 1e-3
"""A gap below this share counts as this share: rounding of U* decides nothing."""
Line = dict[str, Any]
Cells = dict[Cell, dict[str, list[Line]]]


def geometric(numbers: Iterable[float]) -> float:
    """Return the geometric mean; NaN of nothing."""
    logs = [math.log(number) for number in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def by_cell(lines: Iterable[Line]) -> Cells:
    """Return the lines of every cell, by method."""
    cells: Cells = defaultdict(lambda: defaultdict(list))
    for line in lines:
        cells[Cell(line["problem"], line["workers"])][line["method"]].append(line)
    return cells


class Levels:
    """U* of every problem, and gaps measured from it."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lowest: dict[str, float] = {}
        for line in lines:
            name = line["problem"]
            least = min(line["end"], *line["values"])
            self.lowest[name] = min(least, self.lowest.get(name, math.inf))

    def gap(self, line: Line, value: float) -> float:
        """Return the share of the initial gap that is left at a value of U."""
        lowest = self.lowest[line["problem"]]
        share = (value - lowest) / (line["start"] - lowest)
        # A value that is not finite is as bad as can be.
        return max(share, LEAST_GAP) if math.isfinite(share) else math.inf

    def end(self, lines: list[Line]) -> tuple[float, float]:
        """Return the median and the largest gap at the end."""
        gaps = [self.gap(line, line["end"]) for line in lines]
        return statistics.median(gaps), max(gaps)

    def passes(self, lines: list[Line], share: float) -> float:
        """Return the median of the passes to a share of the gap; linear between two evaluations."""
        return statistics.median(self._passes(line, share) for line in lines)

    def _passes(self, line: Line, share: float) -> float:
        before = 1.0
        for look, value in enumerate(line["values"]):
            gap = self.gap(line, value)
            if gap <= share:
                part = (before - share) / (before - gap) if before > gap else 1.0
                return (look + part) / LOOKS
            before = min(gap, 1e300)
        return NEVER


def tuned(levels: Levels, methods: dict[str, list[Line]], serial: bool) -> list[str]:
    """Return the rivals of a kind, each at its best rate."""
    best: dict[str, str] = {}
    for name in methods:
        rival = name.split()[0]
        if name == "table" or (rival == "serial") != serial:
            continue
        before = best.setdefault(rival, name)
        if levels.end(methods[name])[0] < levels.end(methods[before])[0]:
            best[rival] = name
    return list(best.values())


class Verdict(NamedTuple):
    """A line that must hold."""

    what: str
    good: bool
    number: str

    def __str__(self) -> str:
        return f"{'holds ' if self.good else 'MISSED'}  {self.what}: {self.number}"


def _ratios(
    levels: Levels, cells: Cells, share: float, serial: bool
) -> dict[Cell, float]:
    """Return the passes of the table over those of the best tuned rival, by cell."""
    ratios = {}
    for cell, methods in cells.items():
        rivals = tuned(levels, methods, serial)
        if rivals and "table" in methods and cell.problem not in CONVEX:
            best = min(levels.passes(methods[rival], share) for rival in rivals)
            ratios[cell] = levels.passes(methods["table"], share) / best
    return ratios


def verdict(lines: list[Line]) -> list[Verdict]:
    """Return the lines that must hold for the table."""
    levels, cells = Levels(lines), by_cell(lines)
    own = {cell: here["table"] for cell, here in cells.items() if "table" in here}
    spreads = {}
    for cell, here in own.items():
        median, worst = levels.end(here)
        spreads[cell] = worst / median
    split = [cell for cell, spread in spreads.items() if spread > ONE_GROUP]
    above = [
        line
        for here in own.values()
        for line in here
        if not line["end"] <= line["start"]
    ]
    widest = max(spreads, key=spreads.__getitem__)
    names = f"{len(split)} of {len(spreads)} cells, {spreads[widest]:.2f} on {widest}"
    verdicts = [
        Verdict(f"one group, at most {ONE_GROUP}", not split, names),
        Verdict("no harm", not above, f"{len(above)} runs above the start"),
    ]
    five = _ratios(levels, cells, 0.05, False)
    one = _ratios(levels, cells, 0.01, False)
    serial = _ratios(levels, cells, 0.05, True)
    late = [
        five[cell] for cell in five if cell.workers > 2 and cell.problem in NETWORKS
    ]
    each = {
        name: geometric(five[cell] for cell in five if cell.problem == name)
        for name in dict.fromkeys(cell.problem for cell in five)
    }
    worst = max(each, key=each.__getitem__)
    two = [serial[cell] for cell in serial if cell.problem in NETWORKS]
    for what, numbers, most in (
        ("two workers", two, SERIAL),
        ("delays", late, DELAYED),
        ("1 %", list(one.values()), ONE_PERCENT),
        (f"worst problem ({worst})", [each[worst]], WORST),
    ):
        mean = geometric(numbers)
        verdicts.append(Verdict(f"{what}, at most {most}", mean <= most, f"{mean:.2f}"))
    return verdicts


def table_of(lines: list[Line]) -> list[str]:
    """Return a row of text by cell: the ends of the table and of the best tuned rivals."""
    levels, cells = Levels(lines), by_cell(lines)
    rows = [f"{'cell':24s}{'table':>26s}   rivals"]
    for cell in sorted(cells):
        methods = cells[cell]
        row = f"{cell.problem:20s}{cell.workers:4d}"
        row += f"{_end_of(levels, methods.get('table', [])):>26s}"
        for rival in tuned(levels, methods, False) + tuned(levels, methods, True):
            row += f"   {rival} {_end_of(levels, methods[rival])}"
        rows.append(row)
    return rows


def _end_of(levels: Levels, lines: list[Line]) -> str:
    """Return the median and the worst U at the end, and the passes to 5 and 1 % of the gap."""
    if not lines:
        return "-"
    ends = sorted(line["end"] for line in lines)
    five, one = levels.passes(lines, 0.05), levels.passes(lines, 0.01)
    return f"{statistics.median(ends):.5g} ({ends[-1]:.5g}) {five:.1f}/{one:.1f}"
