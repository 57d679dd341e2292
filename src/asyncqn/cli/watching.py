"""Follow an active run from another terminal, through its checkpoints."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncqn.cli.output import Output
from asyncqn.core.request import headcount

if TYPE_CHECKING:
    from asyncqn.runs.checkpoint import Saved


def follow(folder: Path, out: Output, every: float, once: bool) -> None:
    """Print a line for every new checkpoint of a run until the run ends or dies; take no lock.

    With --json one object is printed, at the end.

    Parameters
    ----------
    folder : Path
        The folder of checkpoints of the run.
    out : Output
        Output of the command.
    every : float
        The polling interval, in seconds.
    once : bool
        Print the current state and return.
    """
    from asyncqn.errors import BadInput, require
    from asyncqn.runs.checkpoint_reading import load_checkpoint

    require(every > 0, f"--every must be positive, not {every:g}.")
    last, saved = -1, None
    while True:
        # Asked before the checkpoint is read, so that the last one of an ended run is never missed.
        owner = held_by(folder)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # a generation that is being written is not damage
                saved = load_checkpoint(folder)
        except BadInput:
            if owner is None or once:
                raise
            saved = None  # the run is active, and has not written a checkpoint yet
        if saved is not None and int(saved.document["serial"]) != last:
            # Serial numbers, not commits: a run may write twice at one commit, around a resume.
            last = int(saved.document["serial"])
            out.show(line(state(saved, owner is not None)))
        if owner is None or once:
            break
        time.sleep(every)
    # The loop ends only if no process holds the folder, or with `once`; without a checkpoint both raise
    # above.
    assert saved is not None
    if not once:
        out.say(f"no process writes to {folder} any more.")
    out.result(state(saved, owner is not None))


def state(saved: Saved, living: bool) -> dict[str, Any]:
    """Return the facts in a checkpoint about its run."""
    import numpy as np

    from asyncqn.view.seen import of_checkpoint

    seen = of_checkpoint(saved)
    # Of the latest computations alone: the mean over a long run would hide a worker that has just stopped.
    recent = seen.schedule.worker[-RECENT:]
    stale = seen.schedule.staleness[-RECENT:]
    engine, numbers = seen.manifest["engine"], seen.numbers
    # Simulated workers cannot be lost by accident, so their number is that of the cluster.
    wanted, simulated = int(engine.get("workers", 0)), engine.get("kind") == "simulator"
    return {
        **{
            key: value
            for key, value in numbers.items()
            if key not in ("status", "message")
        },
        "living": living,
        "engine": engine.get("kind"),
        "workers": wanted if simulated else len(saved.document["workers"]),
        "workers_wanted": wanted,
        "workers_active": int(np.unique(recent).size),
        "staleness_recent": float(stale.mean()) if stale.size else 0.0,
    }


RECENT = 500
"""Number of latest computations that describe the current state of a run."""


def line(now: dict[str, Any]) -> str:
    """Return the state as one line."""
    share = now["commits"] / max(now["commits_wanted"], 1)
    what = f"error {now['error']:.4g}" if "error" in now else f"U {now['fun']:.6g}"
    slope = f", |grad U| {now['grad_norm']:.3g}" if "grad_norm" in now else ""
    begun = f"commit {now['commits']:,} of {now['commits_wanted']:,} ({share:.0%}), time {now['time']:.5g}: "
    if (
        now["engine"] == "simulator"
    ):  # its checkpoints omit the schedule, which is simulated again
        return f"{begun}{what}{slope}, {now['workers']} simulated workers"
    there = headcount(now["workers"], now["workers_wanted"], now["workers_lost"])
    return f"{begun}{what}{slope}, staleness {now['staleness_recent']:.1f}, {there}"


def held_by(folder: Path) -> bool | None:
    """Return True if a process holds the lock of a folder, else None."""
    import fcntl
    import os

    from asyncqn.storage.locks import FolderLock
    from asyncqn.storage.opening import open_own

    try:
        handle = open_own(folder / FolderLock.NAME)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return None
