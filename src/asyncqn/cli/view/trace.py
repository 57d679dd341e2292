"""A schedule as a trace that chrome://tracing and ui.perfetto.dev draw: one row of slices per worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.storage import write_whole

MICROSECONDS_PER_SECOND = 1e6
MICROSECONDS_PER_UNIT = 1e3
"""Simulated time has no unit; viewers do, so that one unit is shown as a millisecond."""


def trace_events(
    schedule: Schedule, scale: float = MICROSECONDS_PER_UNIT, births: Mapping[int, float] | None = None
) -> list[dict[str, Any]]:
    """One complete event ("ph": "X") per computation, named for its commit.

    A schedule knows when computations ended.  A worker starts anew the moment its previous one is
    committed, so a slice begins at the worker's previous end (at first: at its birth, or 0) and
    includes messages and waiting.
    """
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "asyncqn"}},
        *(
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": worker, "args": {"name": f"worker {worker}"}}
            for worker in sorted(set(schedule.worker.tolist()))
        ),
    ]
    ends = dict(births or {})
    columns = (schedule.worker, schedule.read, schedule.commit, schedule.time)
    for worker, read, commit, time in zip(*(column.tolist() for column in columns), strict=True):
        start = min(ends.get(worker, 0.0), time)
        ends[worker] = time
        name, about = "dropped", {"read": read}
        if commit != DROPPED:
            name, about = f"commit {commit}", {"read": read, "commit": commit, "staleness": commit - 1 - read}
        span = {"ts": start * scale, "dur": (time - start) * scale}
        events.append(
            {"name": name, "cat": "computation", "ph": "X", "pid": 0, "tid": worker, **span, "args": about}
        )
    return events


def write_trace(
    path: str | Path,
    schedule: Schedule,
    scale: float = MICROSECONDS_PER_UNIT,
    births: Mapping[int, float] | None = None,
) -> Path:
    """Write the trace-event file, whole or not at all."""
    document = {"traceEvents": trace_events(schedule, scale, births), "displayTimeUnit": "ms"}
    return write_whole(path, json.dumps(document, allow_nan=False))
