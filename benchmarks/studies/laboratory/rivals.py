"""The rivals, and how each is tuned for each level: on draw 0 with seed 0, with an equal budget for all.

For each cell under `lognormal` and `dear`, a rival gets `SHARED` trials at random from its space (`_drawn`),
each of which records the times to all three levels, and then, for each level, `AROUND`
trials around the best for it so far.  All trials of a cell have the length of the run that our methods get.
A trial ends early where it cannot become the best at any level any more, where nothing is below the start
after a quarter of its length, and, where U is convex, where more than half of the gap is left after a quarter
of its length or a tenth after half.

Under the other clusters the best two rivals for a level under `lognormal` at the same W serve, with h tried
again at half and double.  On fresh draws the best two for a level are measured.  The results are in
docs/results/laboratory/tuned.json: by cell and rival, one entry for each level.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms import ALGORITHMS
from asyncqn.algorithms.stability import largest_curvature
from asyncqn.storage import write_whole
from benchmarks.studies.laboratory.cells import DEAR, Cell, length, trace
from benchmarks.studies.laboratory.problems import CONVEX, GAPS, problem
from benchmarks.studies.tables import RESULTS

FILE = RESULTS / "laboratory" / "tuned.json"
RIVALS = ("async-saga", "delay-adaptive-sgd", "ringmaster", "rennala")
SHARED, AROUND, BEST = 12, 3, 2
ROWS = {
    "network": (30, 100, 300),
    "convolution": (20, 60, 200),
    "movielens": (3000, 10_000, 30_000),
}
"""Rows of a gradient that are tried, where they are not these:"""
USUAL_ROWS = (10, 30, 100, 300)
TUNED_KINDS = ("lognormal", "dear")


def _drawn(rival: str, cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
    """Return a point of the rival's space; the metric of the scatter is on in three of four."""
    told = problem(cell.family)
    n, W = told.model.n_data, cell.workers
    dearer = 10 if cell.message == DEAR else 1
    rows = rng.choice(ROWS.get(cell.family, USUAL_ROWS)) * dearer / told.row
    rows = int(max(1, min(round(rows), n // 2)))
    own: dict[str, Any] = {"scatter": bool(rng.random() < 0.75)}
    # The step is drawn in units of the limit of stability, which falls with the greatest staleness.
    step, staleness = _loguniform(rng, 0.02, 10.0), W
    if rival == "async-saga":
        own |= {
            "parts": max(2, n // rows),
            "order": ("random", "age")[int(rng.integers(2))],
        }
    else:
        own["batch"] = rows
    if rival == "delay-adaptive-sgd":
        own["tau"] = max(1, round(W * _loguniform(rng, 0.1, 10.0)))
    if rival == "ringmaster":
        own["max_delay"] = round(W * _loguniform(rng, 0.1, 10.0))
        staleness = min(W, own["max_delay"] + 1)
    if rival == "rennala":
        own["collect"] = max(1, round(W * _loguniform(rng, 0.1, 10.0)))
        staleness = 1  # no gradient is stale
    return {"h": step / (largest_curvature(told.model, told.theta0) * staleness), **own}


def _loguniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def _varied(
    point: dict[str, Any], n_data: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Return a neighbour: h by a factor up to 2.5, and one of the other numbers by up to 2."""
    new = dict(point)
    new["h"] = float(point["h"] * math.exp(rng.uniform(-0.9, 0.9)))
    numbers = [
        key for key in ("batch", "tau", "max_delay", "collect", "parts") if key in point
    ]
    key = numbers[int(rng.integers(len(numbers)))]
    new[key] = max(1, round(point[key] * math.exp(rng.uniform(-0.7, 0.7))))
    if "parts" in new:
        new["parts"] = max(2, min(new["parts"], n_data // 2))
    return new


class Tried(NamedTuple):
    """A trial: the passes to each level, and the least gap that it reached."""

    point: dict[str, Any]
    passes: list[float]
    least: float

    def rank(self, level: int) -> tuple[float, ...]:
        """Return what is less for the better trial; who does not arrive is judged by easier levels."""
        return (*reversed(self.passes[: level + 1]), self.least)


def _trial(
    cell: Cell, rival: str, point: dict[str, Any], best: list[float], gap: float
) -> Tried:
    """Run a point on draw 0, for as long as it may become better than `best` at a level."""
    most, least_seen = length(cell.family), math.inf

    def hopeless(passes: float, least: float) -> bool:
        nonlocal least_seen
        least_seen = least
        if cell.family in CONVEX and (
            (passes > most / 4 and least > 0.5) or (passes > most / 2 and least > 0.1)
        ):
            return True
        return not any(
            least > level and passes < best[i] for i, level in enumerate(GAPS)
        )

    told = trace(cell, 0, ALGORITHMS[rival](**point), 0, gap, hopeless)
    return Tried(point, told.passes, least_seen)


def tune(cell: Cell, rival: str) -> list[dict[str, Any]]:
    """Return the best point for each level, with the passes that it needed on draw 0 (None: more)."""
    rng = np.random.default_rng(
        [4, cell.workers, sum(map(ord, rival + cell.family + cell.kind))]
    )
    n, tried = problem(cell.family).model.n_data, list[Tried]()

    def best(level: int) -> Tried:
        return min(tried, key=lambda trial: trial.rank(level))

    def add(point: dict[str, Any]) -> None:
        levels = range(len(GAPS))
        times = [best(i).passes[i] if tried else math.inf for i in levels]
        tried.append(_trial(cell, rival, point, times, GAPS[-1]))

    for _ in range(SHARED):
        add(_drawn(rival, cell, rng))
    for level in range(len(GAPS)):
        for _ in range(AROUND):
            add(_varied(best(level).point, n, rng))
    return [
        _entry(best(level).point, best(level).passes[level])
        for level in range(len(GAPS))
    ]


def _entry(point: dict[str, Any], passes: float) -> dict[str, Any]:
    return {
        "passes": None if math.isinf(passes) else round(passes, 4),
        "parameters": point,
    }


def tune_step(
    cell: Cell, rival: str, level: int, point: dict[str, Any]
) -> dict[str, Any]:
    """Return the best of h, h / 2 and 2 h for a level on another cluster."""
    tried: list[Tried] = []
    for factor in (1.0, 0.5, 2.0):
        least = min((trial.passes[level] for trial in tried), default=math.inf)
        best = [least if i == level else 0.0 for i in range(len(GAPS))]
        tried.append(
            _trial(cell, rival, {**point, "h": factor * point["h"]}, best, GAPS[level])
        )
    found = min(tried, key=lambda trial: trial.rank(level))
    return _entry(found.point, found.passes[level])


def _key(cell: Cell) -> str:
    return f"{cell.family} {cell.workers} {cell.kind}"


def stored() -> dict[str, Any]:
    """Return what was tuned so far."""
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def _best_two(entries: dict[str, Any], level: int) -> list[str]:
    def passes(rival: str) -> float:
        needed = entries[rival][level]["passes"]
        return math.inf if needed is None else float(needed)

    return sorted(entries, key=passes)[:BEST]


def tuning(cell: Cell) -> Iterator[None]:
    """Tune all rivals for a cell, as far as that was not done; yields after every rival."""
    if cell.kind not in TUNED_KINDS:
        plain = cell._replace(kind="lognormal")
        yield from tuning(plain)
        for level in range(len(GAPS)):
            for rival in _best_two(stored()[_key(plain)], level):
                found = stored()
                entry = found.setdefault(_key(cell), {}).setdefault(
                    rival, [None] * len(GAPS)
                )
                if entry[level] is None:
                    point = found[_key(plain)][rival][level]["parameters"]
                    entry[level] = tune_step(cell, rival, level, point)
                    write_whole(FILE, json.dumps(found, indent=0))
                    yield
        return
    for rival in RIVALS:
        if rival not in stored().get(_key(cell), {}):
            entry = tune(cell, rival)
            found = stored()
            found.setdefault(_key(cell), {})[rival] = entry
            write_whole(FILE, json.dumps(found, indent=0))
            yield


def chosen(cell: Cell) -> list[tuple[str, dict[str, Any], list[int]]]:
    """Return the rivals of a cell that fresh draws measure, each with parameters and the levels it is for.

    A point that is the choice for several levels is there once.
    """
    plain = cell if cell.kind in TUNED_KINDS else cell._replace(kind="lognormal")
    found = stored()
    points: dict[str, tuple[str, dict[str, Any], list[int]]] = {}
    for level in range(len(GAPS)):
        for rival in _best_two(found[_key(plain)], level):
            point = found[_key(cell)][rival][level]["parameters"]
            name = rival + json.dumps(point, sort_keys=True)
            points.setdefault(name, (rival, point, []))[2].append(level)
    return list(points.values())
