"""A page about one or several runs: one HTML file that needs no network, drawn by the script in page.html.

This file computes the data and embeds them as JSON; everything visible is drawn in the browser.
"""

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
from asyncqn.view.axes import EXCESS, excess
from asyncqn.view.plots import births, time_axis
from asyncqn.view.seen import Seen
from asyncqn.view.styles import styles_of_runs
from asyncqn.view.trace import starts

MAX_TIMELINE_ROWS = 20_000
"""Largest number of computations in the timeline of a page; of a longer run the first ones are shown."""
MAX_TABLE_LINES = 40
"""Largest number of lines of the tables by worker; with more workers, a line stands for several."""
INITIAL_COMPUTATIONS = 8
"""Computations per worker that are visible in the timeline when the page opens."""


def write_page(path: str | Path, runs: Mapping[str, Seen]) -> Path:
    """Write the page, completely or not at all."""
    return write_whole(path, page(runs))


def page(runs: Mapping[str, Seen]) -> str:
    """Return the page as text."""
    # Runs of one problem and kind of time are drawn in one chart.
    charts: dict[tuple[str, str], dict[str, Seen]] = {}
    for label, run in runs.items():
        charts.setdefault((_problem(run), time_axis(run)), {})[label] = run
    entries: dict[str, dict[str, Any]] = {}
    for chart in charts.values():
        looks = styles_of_runs({label: _kind(run) for label, run in chart.items()})
        above, _ = excess([run.metrics["fun"] for run in chart.values()])
        for (label, run), values in zip(chart.items(), above, strict=True):
            color = looks[label]["color"]
            entries[label] = {"label": label, "color": color, **_entry(run, values)}
    data = [entries[label] for label in runs]
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    # "<" could close the script element; the other two are line ends to JavaScript, but not to JSON.
    for character in ("<", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    title = escape(f"{', '.join(runs)} - asyncqn")
    template = files("asyncqn.view").joinpath("page.html").read_text("utf-8")
    # The data are replaced last: a title that contains "@DATA@" would otherwise receive them twice.
    return template.replace("@TITLE@", title).replace("@DATA@", text)


def _kind(run: Seen) -> str:
    return str(run.manifest["algorithm"]["kind"])


def _problem(run: Seen) -> str:
    problem = run.manifest["problem"]
    sizes = f"{problem['dim']:,} numbers, {problem['n_data']:,} data points"
    return f"{problem['name']}, {sizes}"


def _entry(run: Seen, above: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the data of a run; `above` is U minus the best value of its chart."""
    schedule, manifest = run.schedule, run.manifest
    # With hundreds of workers a table by worker could not be read, so neighbours share a line.
    group = max(1, math.ceil(schedule.workers / MAX_TABLE_LINES))
    firsts = range(0, schedule.workers, group)
    names = [f"{i}-{min(i + group, schedule.workers) - 1}" for i in firsts]
    columns = dict(run.metrics)
    metric = "error" if "error" in columns else "fun"
    if metric == "fun" and np.isfinite(above).any():
        metric = EXCESS
        columns[EXCESS] = above
    stale = schedule.staleness
    parameters = [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in (manifest["algorithm"]["parameters"] or {}).items()
    ]
    engine = manifest["engine"].get("kind")
    facts = {
        "problem": _problem(run),
        "algorithm": ": ".join([_kind(run), *filter(None, [", ".join(parameters)])]),
        "engine": f"{engine}, {schedule.workers} workers, seed {manifest['seed']}",
        "commits": f"{schedule.commits:,}, and {schedule.dropped:,} updates dropped or under way at the end",
        "objective": f"{run.fun:.6g}",
    }
    if stale.size:
        facts["staleness"] = f"mean {stale.mean():.2f}, largest {stale.max()} commits"
    versions = manifest["versions"].items()
    return {
        "algorithm": _kind(run),
        "status": run.status,
        "message": run.message,
        "problem": _problem(run),
        "axis": time_axis(run),
        "metric": metric,
        # JSON has neither NaN nor infinity.
        "metrics": {
            name: [x if math.isfinite(x) else None for x in column.tolist()]
            for name, column in columns.items()
        },
        "facts": facts,
        "schedule": _timeline(schedule, births(run)),
        "staleness": _staleness(schedule, group, len(firsts)),
        "waiting": _waiting(schedule, group, len(firsts)),
        "groups": [str(i) for i in firsts] if group == 1 else names,
        "versions": ", ".join(f"{name} {version}" for name, version in versions),
    }


def _timeline(schedule: Schedule, born: Mapping[int, float]) -> dict[str, Any]:
    """Return the first computations with their start times, for the timeline."""
    rows = min(len(schedule), MAX_TIMELINE_ROWS)
    worker = schedule.worker[:rows].tolist()
    commit = schedule.commit[:rows].tolist()
    time = schedule.time[:rows].tolist()
    start = starts(worker, time, born)
    took = np.array(time) - np.array(start)
    # At first sight the boxes should be wide enough to see who waits.
    opening = min(rows, INITIAL_COMPUTATIONS * max(schedule.workers, 1))
    note = "Scroll or pinch to zoom, drag to move, point at a box to read it."
    if len(schedule) > rows:
        note += f" The first {rows:,} of {len(schedule):,} computations."
    return {
        "workers": schedule.workers,
        "worker": worker,
        "read": schedule.read[:rows].tolist(),
        # Commits count from 1, so that 0 is free to mark dropped computations in the page.
        "commit": [0 if c == DROPPED else c for c in commit],
        # Seven digits suffice for a drawing and halve the size of the page.
        "time": [float(f"{t:.7g}") for t in time],
        "start": [float(f"{t:.7g}") for t in start],
        "median": float(np.median(took)) if rows else 0.0,
        "end": time[-1] if rows else 0.0,
        "opening": time[opening - 1] if rows else 0.0,
        "note": note,
    }


def _staleness(schedule: Schedule, group: int, lines: int) -> dict[str, Any]:
    """Return the counts of each worker's updates with a staleness of 0, 1, 2-3, 4-7, ... commits."""
    delivered = schedule.commit != DROPPED
    stale = schedule.staleness.astype(np.int64)
    line = schedule.worker[delivered] // group
    # Powers of two: staleness spans orders of magnitude, and its small values matter most.
    power = np.floor(np.log2(np.maximum(stale, 1)))
    place = np.where(stale > 0, power.astype(np.int64) + 1, 0)
    columns = int(place.max(initial=0)) + 1
    table = np.zeros((lines, columns), np.int64)
    # `np.add.at` counts repeated places; `table[line, place] += 1` would count each once.
    np.add.at(table, (line, place), 1)
    names = ["0", "1", *(f"{2**k}-{2 * 2**k - 1}" for k in range(1, columns))]
    return {"table": table.tolist(), "columns": names[:columns]}


def _waiting(schedule: Schedule, group: int, lines: int) -> dict[str, Any]:
    """Return a table by worker: in rounds, whom it waited for; otherwise, whose commits made it stale."""
    delivered = schedule.commit != DROPPED
    columns = (schedule.worker, schedule.commit, schedule.read)
    worker, commit, read = (column[delivered] for column in columns)
    table = np.zeros((lines, lines), np.int64)
    # Several updates per commit: then the question is who was waited for.
    rounds = bool(commit.size) and commit.size > schedule.commits
    if rounds:
        # Rows are in the order of commits.
        last = worker[np.searchsorted(commit, commit, "right") - 1]
        early = worker != last
        waiting = worker[early] // group
        np.add.at(table, (waiting, last[early] // group), 1)
    elif commit.size:
        # How many commits each line had made by each version: a difference of two rows is what came between.
        commits = np.zeros((schedule.commits + 1, lines), np.int32)
        commits[commit, worker // group] = 1
        commits = np.cumsum(commits, axis=0, dtype=np.int32)
        between = commits[commit - 1] - commits[read]
        for line in range(lines):
            # Line by line: all at once would need an array of commits x lines x lines.
            table[line] = between[worker // group == line].sum(axis=0)
    return {"rounds": rounds, "table": table.tolist()}
