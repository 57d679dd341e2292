"""The log of any asynchronous system as a schedule: one row per update, with its worker, its start and its end.

A log rarely says which version an update was computed from.  If it does not, the version is reconstructed: the
worker read what there was when it started, that is, the number of commits that had ended by then.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.errors import BadInput, require

_ROUNDING = 1e-9
"""Difference of two times, as a share of the duration of the log, that is taken for rounding."""
Times = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def schedule_of_log(table: Any, columns: Mapping[str, str]) -> Schedule:
    """Build the schedule of a log; see `Schedule.from_table` for its columns.

    columns: the name in the table of each of "worker", "start", "end", "version", "commit"; the last two may be
    missing from the table.
    """
    start = _times(table, columns["start"])
    end = _times(table, columns["end"])
    labels = _column(table, columns["worker"])
    n = start.size
    require(n > 0, "the log has no rows, so there is nothing to read.")
    for name, size in ((columns["end"], end.size), (columns["worker"], labels.size)):
        require(
            size == n,
            f"column {name!r} has {size} rows, but {columns['start']!r} has {n}.",
        )
    _refuse_rows(
        end < start, f"ends before it starts ({columns['end']} < {columns['start']})"
    )
    worker = _numbers_of(labels, columns["worker"])
    # Updates are committed in the order in which they ended; ties are settled by the worker.
    order = np.lexsort((start, worker, end))
    start = start[order]
    end = end[order]
    worker = worker[order]
    commit = np.arange(1, n + 1)
    if (versions_made := _optional(table, columns["commit"])) is not None:
        commit = _commits(versions_made, columns["commit"], order)
    last = np.flatnonzero(np.diff(commit[commit != DROPPED], append=0))
    commit_ends = end[commit != DROPPED][last]
    # A start that was computed as end minus duration may lie some roundings before the end of the last one.
    begun = start + _ROUNDING * (end.max() - start.min())
    # A computation that starts at the moment of a commit reads it: its own worker's last one, for instance.
    read = np.searchsorted(commit_ends, begun, "right")
    # Not its own, however short it is.
    read = np.where(commit == DROPPED, read, np.minimum(read, commit - 1))
    if (versions := _optional(table, columns["version"])) is not None:
        read = _versions(versions, columns["version"], commit, order)
    worker = _without_overlaps(worker, begun, end)
    return Schedule(
        worker.astype(np.int32),
        read.astype(np.int32),
        commit.astype(np.int32),
        end - start.min(),
    )


def _column(table: Any, name: str) -> npt.NDArray[Any]:
    """Return a column of a data frame, an Arrow table or a dictionary of arrays."""
    try:
        column = table[name]
    # Structured arrays and frames of other libraries raise errors of their own.
    except Exception:
        raise BadInput(
            f"the log has no column {name!r}: name its columns by worker=, start= and end=, in a "
            "terminal by --worker, --start and --end."
        ) from None
    if hasattr(column, "to_numpy"):
        column = column.to_numpy()
    values = np.asarray(column)
    require(
        values.ndim == 1,
        f"column {name!r} must have one entry per row, not the shape {values.shape}.",
    )
    return values


def _optional(table: Any, name: str) -> npt.NDArray[Any] | None:
    """Return a column, or None where the table does not have it."""
    names = getattr(table, "column_names", None) or getattr(table, "columns", table)
    if isinstance(table, np.ndarray):
        names = table.dtype.names or ()
    return _column(table, name) if name in list(names) else None


def _times(table: Any, name: str) -> Times:
    """Return a column of times in seconds, from numbers or from dates."""
    values = _column(table, name)
    if values.dtype.kind in "mM":
        _refuse_rows(np.isnat(values), f"has no {name}")
        # Seconds since 1970, to a fraction of a microsecond.
        unit = values.dtype.kind + "8[ns]"
        return values.astype(unit).astype(np.int64) / 1e9
    try:
        times = values.astype(np.float64)
    except (TypeError, ValueError):
        raise BadInput(
            f"column {name!r} must hold times: give seconds as numbers, or dates."
        ) from None
    _refuse_rows(~np.isfinite(times), f"has no finite {name}")
    return times


def _refuse_rows(bad: npt.NDArray[np.bool_], fault: str) -> None:
    """Raise `BadInput` that names the first bad row, counted from 1, and how many there are."""
    rows = np.flatnonzero(bad)
    if rows.size:
        more = f", and {rows.size - 1} more rows" if rows.size > 1 else ""
        raise BadInput(
            f"row {rows[0] + 1} of the log {fault}{more}: correct or drop it."
        )


def _numbers_of(labels: npt.NDArray[Any], name: str) -> Integers:
    """Number the workers in the order of their labels."""
    if labels.dtype.kind == "f":
        _refuse_rows(~np.isfinite(labels), f"has no {name}")
    if labels.dtype.kind == "O":
        missing = [label is None or label != label for label in labels.tolist()]
        _refuse_rows(np.array(missing), f"has no {name}")
        labels = labels.astype(str)
    number = np.unique(labels, return_inverse=True)[1]
    return np.asarray(number, np.int64).reshape(-1)


def _whole(values: npt.NDArray[Any], name: str) -> Integers:
    """Return a column of whole numbers."""
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"column {name!r} must hold whole numbers.") from None
    bad = ~np.isfinite(numbers) | (numbers != np.floor(numbers)) | (numbers < 0)
    _refuse_rows(bad, f"has a {name} that is not a whole number of at least 0")
    return numbers.astype(np.int64)


def _commits(values: npt.NDArray[Any], name: str, order: Integers) -> Integers:
    """Return the commits 1, 2, ... of rows in order; 0 stays, for an update that was dropped."""
    made = _whole(values, name)[order]
    used = made != DROPPED
    backwards = np.zeros(made.size, bool)
    backwards[np.flatnonzero(used)[1:]] = np.diff(made[used]) < 0
    if backwards.any():
        row = int(order[np.flatnonzero(backwards)[0]])
        raise BadInput(
            f"row {row + 1} of the log belongs to {name} {int(_whole(values, name)[row])}, but an update that ended "
            "before it belongs to a later one: versions are made in the order in which their updates end."
        )
    commit = np.zeros(made.size, np.int64)
    commit[used] = np.unique(made[used], return_inverse=True)[1].reshape(-1) + 1
    return commit


def _versions(
    values: npt.NDArray[Any], name: str, commit: Integers, order: Integers
) -> Integers:
    """Return the versions that rows read, each before its own commit."""
    read = _whole(values, name)[order]
    late = (commit != DROPPED) & (read >= commit)
    if late.any():
        row = int(np.flatnonzero(late)[0])
        raise BadInput(
            f"row {int(order[row]) + 1} of the log read {name} {int(read[row])}, but it is update number "
            f"{int(commit[row])}: version 0 is the start, and an update can only read a version before its own."
        )
    return read


def _without_overlaps(worker: Integers, start: Times, end: Times) -> Integers:
    """Split a worker whose computations overlap into as many workers as compute at the same time."""
    order = np.lexsort((start, worker))
    same = worker[order][1:] == worker[order][:-1]
    overlapping = same & (start[order][1:] < end[order][:-1])
    if not overlapping.any():
        return worker
    split = worker.copy()
    number = int(worker.max()) + 1
    for one in np.unique(worker[order][1:][overlapping]).tolist():
        rows = order[worker[order] == one]
        busy: list[tuple[float, int]] = []
        free = [one]
        for row in rows.tolist():
            while busy and busy[0][0] <= start[row]:
                heapq.heappush(free, heapq.heappop(busy)[1])
            if not free:
                free.append(number)
                number += 1
            lane = heapq.heappop(free)
            split[row] = lane
            heapq.heappush(busy, (float(end[row]), lane))
    return split
