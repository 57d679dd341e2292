"""The contest: our methods against tuned rivals, on fresh draws, and the lines that must hold (`verdict`).

    python -m benchmarks.studies.laboratory.contest --rivals [--seconds 600]    tunes and measures the rivals
    python -m benchmarks.studies.laboratory.contest --ours [--seconds 600]      measures our methods
    python -m benchmarks.studies.laboratory.contest                             prints the lines alone
    python -m benchmarks.studies.laboratory.contest --page                      and writes the page

Every run is a line of rivals.jsonl or ours.jsonl in docs/results/laboratory, and what is there is not
measured again: the command may be stopped at any time.  To measure a method of ours anew, delete its lines
first (`--forget table`).

Draws 2, 3 and 4 are measured, each with seeds 1, 2 and 3.  The first round has every draw with one seed; two
more rounds follow, without *movielens*, whose runs take long.  `--draws 5 6 7` measures further draws.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from asyncqn.algorithms import ALGORITHMS
from asyncqn.storage import write_whole
from benchmarks.studies.laboratory import safety
from benchmarks.studies.laboratory.cells import Cell, Trace, cells, trace
from benchmarks.studies.laboratory.commits import commit_time, method_of
from benchmarks.studies.laboratory.ours import our_methods
from benchmarks.studies.laboratory.page import write_page
from benchmarks.studies.laboratory.problems import FAMILIES, GAPS, problem
from benchmarks.studies.laboratory.rivals import chosen, tuning
from benchmarks.studies.laboratory.verdict import JUDGED, summary, times_of, verdict
from benchmarks.studies.tables import RESULTS, write

RIVALS_FILE, OURS_FILE = (
    RESULTS / "laboratory" / f"{name}.jsonl" for name in ("rivals", "ours")
)
DRAWS, ROUNDS = (2, 3, 4), 3


def round_of(draws: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Return draws and seeds of a round."""
    return [(draw, 1 + (draw + number) % 3) for draw in draws]


OURS = ("table", "default", "growing", "growing by scatter", "block")


def stored(file: Path) -> list[dict[str, Any]]:
    """Return the lines of the runs made so far."""
    return (
        [json.loads(text) for text in file.read_text().splitlines()]
        if file.exists()
        else []
    )


def _text(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":")) + "\n"


class Lines:
    """The saved lines of a file, to which runs are added until the time is up."""

    def __init__(self, file: Path, until: float) -> None:
        self.file, self.until = file, until
        self.known = {self._key(line) for line in stored(file)}
        file.parent.mkdir(parents=True, exist_ok=True)

    def _key(self, line: dict[str, Any]) -> tuple[Any, ...]:
        names = "family", "workers", "kind", "draw", "seed", "method"
        return (*(line[name] for name in names), tuple(line.get("levels", ())))

    def add(self, line: dict[str, Any], run: Callable[[], Trace]) -> bool:
        """Make a run and save its line, unless it is there; False: the time is up."""
        if self._key(line) in self.known:
            return True
        if time.monotonic() > self.until:
            return False
        begin, told = time.process_time(), run()
        line["passes"] = [
            None if math.isinf(passes) else round(passes, 4) for passes in told.passes
        ]
        line["commits"] = told.commits
        self.known.add(self._key(line))
        with self.file.open("a") as file:
            file.write(_text(line))
        print(*line.values(), f"{time.process_time() - begin:.1f} s", flush=True)
        return True


def selected(given: argparse.Namespace) -> list[Cell]:
    """Return the cells that the command line names."""
    return [
        cell for cell in cells()
        if cell.family in given.problems and (not given.kinds or cell.kind in given.kinds)
        and (not given.workers or cell.workers in given.workers)
    ]  # fmt: skip


def runs(given: argparse.Namespace, rounds: slice) -> Iterator[tuple[Cell, int, int]]:
    """Yield cell, draw and seed of the runs of some rounds, draw by draw and family by family."""
    for number in range(given.rounds)[rounds]:
        chosen_cells = [
            cell
            for cell in selected(given)
            if number == 0 or cell.family != "movielens"
        ]
        for draw, seed in round_of(given.draws, number):
            yield from (
                (cell, draw, seed)
                for cell in sorted(chosen_cells, key=lambda c: c.family)
            )


def measure_rivals(given: argparse.Namespace, lines: Lines) -> None:
    """Tune the rivals of each cell and make its first round of runs; then make the other rounds."""
    for cell in selected(given):
        begin = time.process_time()
        for _ in tuning(cell):
            print("tuned", *cell, f"{time.process_time() - begin:.0f} s", flush=True)
            if time.monotonic() > lines.until:
                return
        if not all(
            _rivals_in(cell, draw, seed, lines)
            for draw, seed in round_of(given.draws, 0)
        ):
            return
    for cell, draw, seed in runs(given, slice(1, None)):
        if not _rivals_in(cell, draw, seed, lines):
            return


def _rivals_in(cell: Cell, draw: int, seed: int, lines: Lines) -> bool:
    """Measure the best two rivals for each level; a run ends at the last level that its point is for."""
    for rival, point, levels in chosen(cell):
        line = {
            **cell._asdict(),
            "draw": draw,
            "seed": seed,
            "method": rival,
            "levels": levels,
        }
        algorithm, gap = ALGORITHMS[rival](**point), GAPS[levels[-1]]
        if not lines.add(
            line, lambda a=algorithm, g=gap: trace(cell, draw, a, seed, g)
        ):
            return False
    return True


def ours_in(cell: Cell, draw: int) -> dict[str, Any]:
    """Return our methods in a cell, each told what messages and its commits cost."""
    told = problem(cell.family, draw)
    model, message = told.model, cell.message / told.row
    plain = our_methods(model, cell.workers, message)
    table = plain["table"]
    master = commit_time(table, model.dim) / told.row
    return our_methods(model, cell.workers, message, master)


def measure_ours(given: argparse.Namespace, lines: Lines) -> None:
    """Measure our methods; one that is the default, too, makes one run for both names."""
    for cell, draw, seed in runs(given, slice(None)):
        made: dict[str, Trace] = {}

        def run(
            algorithm: Any,
            cell: Cell = cell,
            draw: int = draw,
            seed: int = seed,
            made: Any = made,
        ) -> Trace:
            if repr(algorithm) not in made:
                made[repr(algorithm)] = trace(cell, draw, algorithm, seed)
            told: Trace = made[repr(algorithm)]
            return told

        for method, algorithm in ours_in(cell, draw).items():
            line = {**cell._asdict(), "draw": draw, "seed": seed, "method": method}
            line["is"] = method_of(algorithm)
            if method in given.methods and not lines.add(
                line, lambda a=algorithm, run=run: run(a)
            ):
                return


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--rivals", action="store_true", help="tune and measure the rivals"
    )
    parser.add_argument("--ours", action="store_true", help="measure our methods")
    parser.add_argument(
        "--methods", nargs="+", choices=OURS, default=list(OURS), help="which of ours"
    )
    parser.add_argument(
        "--problems", nargs="+", choices=FAMILIES, default=list(FAMILIES)
    )
    parser.add_argument("--workers", nargs="+", type=int, help="default: all")
    parser.add_argument("--kinds", nargs="+", help="kinds of clusters; default: all")
    parser.add_argument("--draws", nargs="+", type=int, default=list(DRAWS))
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="of one seed for each draw"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="begin no further run after these",
    )
    parser.add_argument(
        "--forget", nargs="+", choices=OURS, help="delete the lines of these"
    )
    parser.add_argument(
        "--page", action="store_true", help="write docs/results/laboratory.md"
    )
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    if given.forget:
        left = [
            line for line in stored(OURS_FILE) if line["method"] not in given.forget
        ]
        write_whole(OURS_FILE, "".join(map(_text, left)))
    if given.rivals:
        measure_rivals(given, Lines(RIVALS_FILE, until))
    if given.ours:
        measure_ours(given, Lines(OURS_FILE, until))
    times = times_of(stored(RIVALS_FILE) + stored(OURS_FILE))
    rows = summary(times)
    if rows:
        write("laboratory/contest", rows)
    said = {method: verdict(times, method) for method in JUDGED}
    for method, judged in said.items():
        print(
            f"{method} over the best tuned rival:",
            *(judged or ["no cell has two rivals yet"]),
            sep="\n  ",
        )
    if given.page:
        write_page(times, said, safety.verdict(safety.stored()))
    return 0 if all(line.good for judged in said.values() for line in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
