"""A schedule as a trace for chrome://tracing and ui.perfetto.dev: one row of slices per worker.

A schedule knows when computations end; `starts` reconstructs when they began.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.errors import DamagedFile
from asyncqn.storage import write_whole

MICROSECONDS_PER_SECOND = 1e6
MICROSECONDS_PER_UNIT = 1e3
"""Simulated time has no unit, but the viewers need one; a unit is shown as a millisecond."""


def starts(
    workers: Iterable[int], times: Iterable[float], births: Mapping[int, float]
) -> list[float]:
    """Return the start of each computation of a schedule, which stores only its end.

    A worker starts a computation when its previous one has ended; its first one starts when it joins, or at
    0.  A computation therefore includes messages and waiting.
    """
    begins: list[float] = []
    ends = dict(births)
    for worker, time in zip(workers, times, strict=True):
        # `min`: a dropped computation may be recorded before its worker's previous end.
        begins.append(min(ends.get(worker, 0.0), time))
        ends[worker] = time
    return begins


def trace_events(
    schedule: Schedule, scale: float, births: Mapping[int, float]
) -> list[dict[str, Any]]:
    """Return one complete event ("ph": "X") per computation, named after its commit."""
    events: list[dict[str, Any]] = []

    def name(kind: str, tid: int, text: str) -> None:
        event = {"name": kind, "ph": "M", "pid": 0, "tid": tid, "args": {"name": text}}
        events.append(event)

    name("process_name", 0, "asyncqn")
    for worker in np.unique(schedule.worker).tolist():
        name("thread_name", worker, f"worker {worker}")
    columns = (schedule.worker, schedule.read, schedule.commit, schedule.time)
    workers, reads, commits, times = (column.tolist() for column in columns)
    begins = starts(workers, times, births)
    for worker, read, commit, time, start in zip(
        workers, reads, commits, times, begins
    ):
        facts = {"read": read}
        if commit != DROPPED:
            # Commit n makes version n from version n - 1: an update that read version n - 1 is not stale.
            facts.update(commit=commit, staleness=commit - 1 - read)
        event = {
            "name": "dropped" if commit == DROPPED else f"commit {commit}",
            "cat": "computation",
            "ph": "X",
            "pid": 0,
            "tid": worker,
            # The format counts in microseconds.
            "ts": start * scale,
            "dur": (time - start) * scale,
            "args": facts,
        }
        events.append(event)
    return events


def write_trace(
    path: str | Path, schedule: Schedule, scale: float, births: Mapping[int, float]
) -> Path:
    """Write the trace-event file, completely or not at all."""
    events = trace_events(schedule, scale, births)
    document = {"traceEvents": events, "displayTimeUnit": "ms"}
    try:
        text = json.dumps(document, allow_nan=False)
    except ValueError:
        sentence = "the times of this run are too large for a trace."
        raise DamagedFile(sentence) from None
    return write_whole(path, text)
