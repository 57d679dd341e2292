"""Seen: a saved run, or the newest checkpoint of a run that is active or was interrupted, to be shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncqn.columns import Table
from asyncqn.core.schedule import Schedule
from asyncqn.errors import BadInput
from asyncqn.runs.archive import load_run
from asyncqn.runs.checkpoint import GENERATIONS, Saved, with_prefix
from asyncqn.runs.checkpoint_reading import load_checkpoint


@dataclass(frozen=True, eq=False)
class Seen:
    """The common fields of a run and a checkpoint; a checkpoint's `fun` is from its last evaluation."""

    status: str
    message: str
    fun: float
    schedule: Schedule
    metrics: Table
    counters: dict[str, int]
    manifest: dict[str, Any]
    numbers: dict[str, Any]
    """The first entries of the output of `show --json`."""


def look_at(folder: Path) -> Seen:
    """Return the run or the newest checkpoint in a folder; raise `BadInput` where it holds neither."""
    # A folder may hold both after a run that was saved where its checkpoints are; the run is newer.
    if folder.is_dir() and not (folder / "run.json").exists():
        if any((folder / name).is_dir() for name in GENERATIONS):
            return of_checkpoint(load_checkpoint(folder))
        raise BadInput(
            f"{folder} holds neither a run nor checkpoints: name a folder that --save or --checkpoint wrote."
        )
    run = load_run(folder)
    return Seen(
        status=run.status,
        message=run.message,
        fun=run.fun,
        schedule=run.schedule,
        metrics=run.metrics,
        counters=dict(run.counters),
        manifest=run.manifest,
        numbers=run.summary(),
    )


def of_checkpoint(saved: Saved) -> Seen:
    """Return a checkpoint in the form of a run, as far as it has the same fields."""
    manifest = saved.document["manifest"]
    table = Table(with_prefix("metrics.", saved.arrays))
    schedule = saved.schedule()
    total = int(manifest["commits"])
    fun = float(table["fun"][-1]) if table.rows else math.nan
    # A simulator's checkpoint has no schedule, so that this may be empty.
    staleness = schedule.staleness
    status = "checkpoint"
    message = f"commit {saved.commit:,} of {total:,}; "
    whole = saved.commit >= total
    message += "all that were requested" if whole else "continue with: asyncqn resume"
    numbers = {
        "status": status,
        "message": message,
        "commits": saved.commit,
        "commits_wanted": total,
        "time": float(saved.document["last_time"]),
        "fun": fun,
        "staleness_mean": float(staleness.mean()) if staleness.size else 0.0,
        "staleness_max": int(staleness.max(initial=0)),
        "workers_lost": int(saved.document["lost"]),
        "workers_joined": int(saved.document["joined"]),
    }
    # Both columns are optional: the error needs a known minimum, and the norm an exact method.
    last = table.row(-1) if table.rows else {}
    for name in ("error", "grad_norm"):
        if name in last:
            numbers[name] = last[name]
    return Seen(status, message, fun, schedule, table, {}, manifest, numbers)
