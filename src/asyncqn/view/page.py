"""A page of one or several runs: one file that needs no network, drawn by the script in page.html."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.storage import write_whole
from asyncqn.view.plots import births, pick_metric, time_axis
from asyncqn.view.seen import Seen
from asyncqn.view.styles import styles_of_runs
from asyncqn.view.trace import starts

MOST_ROWS = 20_000
"""Computations in the timeline of a page; of more, the first, and the page says so."""
MOST_LINES = 40
"""Lines of the tables by worker; with more workers, each line stands for several."""
OPENING = 8
"""Computations per worker that fill the timeline when the page opens."""


def write_page(path: str | Path, runs: Mapping[str, Seen]) -> Path:
    """Write the page, whole or not at all."""
    return write_whole(path, page(runs))


def page(runs: Mapping[str, Seen]) -> str:
    """The page as text."""
    colors = _colors(runs)
    document = [{**_run(label, run), "color": colors[label]} for label, run in runs.items()]
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    title = escape(f"{', '.join(runs)} - asyncqn")
    template = files("asyncqn.view").joinpath("page.html").read_text("utf-8")
    return template.replace("@TITLE@", title).replace("@DATA@", safe)


def _colors(runs: Mapping[str, Seen]) -> dict[str, str]:
    """An algorithm's own colour, where no two of the runs that are drawn together have the same algorithm."""
    together: dict[tuple[str, str], dict[str, str]] = {}
    for label, run in runs.items():
        drawn = together.setdefault((_problem(run), time_axis(run)), {})
        drawn[label] = run.manifest["algorithm"]["kind"]
    found: dict[str, str] = {}
    for drawn in together.values():
        found |= {label: look["color"] for label, look in styles_of_runs(drawn).items()}
    return found


def _problem(run: Seen) -> str:
    made = run.manifest["problem"]
    return f"{made['name']}, {made['dim']:,} numbers, {made['n_data']:,} data points"


def _run(label: str, run: Seen) -> dict[str, Any]:
    schedule, made = run.schedule, run.manifest
    group = max(1, math.ceil(schedule.workers / MOST_LINES))
    lines = math.ceil(schedule.workers / group)
    names = [
        str(i) if group == 1 else f"{i * group}-{min((i + 1) * group, schedule.workers) - 1}"
        for i in range(lines)
    ]
    return {
        "label": label,
        "algorithm": str(made["algorithm"]["kind"]),
        "status": run.status,
        "message": run.message,
        "problem": _problem(run),
        "axis": time_axis(run),
        "metric": pick_metric(run.metrics) if run.metrics.rows else "fun",
        "metrics": {name: _numbers(column) for name, column in run.metrics.items()},
        "facts": _facts(run),
        "schedule": _timeline(schedule, births(run)),
        "staleness": _staleness(schedule, group, lines),
        "waiting": _waiting(schedule, group, lines),
        "groups": names,
        "versions": ", ".join(f"{name} {version}" for name, version in made["versions"].items()),
    }


def _numbers(column: npt.NDArray[Any]) -> list[float | int | None]:
    """JSON has neither NaN nor infinity."""
    return [value if math.isfinite(value) else None for value in column.tolist()]


def _facts(run: Seen) -> dict[str, str]:
    """Return what the head of the page says, in words."""
    made, stale = run.manifest, run.schedule.staleness
    parameters = made["algorithm"]["parameters"] or {}
    shown = ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in parameters.items())
    facts = {
        "problem": _problem(run),
        "algorithm": f"{made['algorithm']['kind']}: {shown}" if shown else made["algorithm"]["kind"],
        "engine": f"{made['engine'].get('kind')}, {run.schedule.workers} workers, seed {made['seed']}",
        "commits": f"{run.schedule.commits:,}, and {run.schedule.dropped:,} updates dropped",
        "objective": f"{run.fun:.6g}",
    }
    if stale.size:
        facts["staleness"] = f"mean {stale.mean():.2f}, largest {stale.max()} commits"
    return facts


def _timeline(schedule: Schedule, born: Mapping[int, float]) -> dict[str, Any]:
    """The first computations, with their beginnings."""
    rows = min(len(schedule), MOST_ROWS)
    worker, time = schedule.worker[:rows].tolist(), schedule.time[:rows].tolist()
    start = starts(worker, time, born)
    took = np.array(time) - np.array(start)
    opening = min(rows, OPENING * max(schedule.workers, 1))
    return {
        "workers": schedule.workers,
        "worker": worker,
        "read": schedule.read[:rows].tolist(),
        "commit": [0 if c == DROPPED else c for c in schedule.commit[:rows].tolist()],
        "time": [float(f"{t:.7g}") for t in time],
        "start": [float(f"{t:.7g}") for t in start],
        "median": float(np.median(took)) if rows else 0.0,
        "end": time[-1] if rows else 0.0,
        "opening": time[opening - 1] if rows else 0.0,
        "note": "Scroll or pinch to zoom, drag to move, point at a box to read it."
        + (f" The first {rows:,} of {len(schedule):,} computations." if len(schedule) > rows else ""),
    }


def _staleness(schedule: Schedule, group: int, lines: int) -> dict[str, Any]:
    """Return how many answers of each worker were 0, 1, 2-3, 4-7, ... commits stale."""
    kept = schedule.commit != DROPPED
    stale, line = schedule.staleness.astype(np.int64), schedule.worker[kept] // group
    place = np.where(stale > 0, np.floor(np.log2(np.maximum(stale, 1))).astype(np.int64) + 1, 0)
    columns = int(place.max(initial=0)) + 1
    table = np.zeros((lines, columns), np.int64)
    np.add.at(table, (line, place), 1)
    names = ["0", "1", *(f"{2**k}-{2 ** (k + 1) - 1}" for k in range(1, columns))]
    return {"table": table.tolist(), "columns": names[:columns]}


def _waiting(schedule: Schedule, group: int, lines: int) -> dict[str, Any]:
    """Where commits have several answers: who waited for the last.  Else: whose commits came between."""
    kept = schedule.commit != DROPPED
    worker, commit, read = (a[kept] for a in (schedule.worker, schedule.commit, schedule.read))
    table = np.zeros((lines, lines), np.int64)
    rounds = bool(commit.size) and commit.size > schedule.commits
    if rounds:
        last = worker[np.searchsorted(commit, commit, "right") - 1]  # rows are in order of commits
        early = worker != last
        np.add.at(table, (worker[early] // group, last[early] // group), 1)
    elif commit.size:
        # How many commits each line had made by each version: a difference of two rows is what came between.
        made = np.zeros((schedule.commits + 1, lines), np.int32)
        made[commit, worker // group] = 1
        made = np.cumsum(made, axis=0, dtype=np.int32)
        between = made[commit - 1] - made[read]
        for line in range(lines):
            table[line] = between[worker // group == line].sum(axis=0)
    return {"rounds": rounds, "table": table.tolist()}
