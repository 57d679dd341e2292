"""Read a folder of checkpoints: the newest complete generation (`runs.checkpoint` describes the folder).

`load_checkpoint` is the entry point.  Everything read is checked against `SCHEMA` and `CheckpointDocument`
before a kernel sees it, because a crash, a full disk or another program may have damaged it.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.core.schedule import ROW, Schedule
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.runs.checkpoint import (
    CHECKPOINT,
    FINGERPRINT,
    GENERATIONS,
    Arrays,
    CheckpointWarning,
    Saved,
    documents_in,
    metrics_of,
)
from asyncqn.runs.manifest import Count, Manifest
from asyncqn.storage import Document, Spec, read_folder
from asyncqn.storage.logs import LogEntry
from asyncqn.storage.opening import require_real_folder
from asyncqn.storage.reading import ATTEMPTS

_NUMBERS = ("f", "i", "u", "b")
FLOATS = ("<f8", "<f4")

SCHEMA = {
    "theta0": Spec(FLOATS, ("dim",)),
    "iterate.*": Spec(_NUMBERS, None),
    "worker.*": Spec(_NUMBERS, None),
    "pending.*": Spec(_NUMBERS, None),
    "under_way.*": Spec(_NUMBERS, ("under way",)),
    "fingerprints": Spec(("<u4",), ("commits",), optional=True),
    "schedule.*": Spec(_NUMBERS, ("rows",)),
    "metrics.*": Spec(_NUMBERS, ("evaluations",)),
    "best": Spec(("<f8",), ("numbers of the best row",), optional=True),
    "best_theta": Spec(FLOATS, ("dim",), optional=True),
}


class CheckpointDocument(msgspec.Struct):
    """The entries that checkpoint.json must have; `workers` holds the number of steps of each worker."""

    commit: Count
    serial: Count
    generation: Literal["a", "b"]
    manifest: Manifest
    last_time: float
    rejected: Count
    rejected_in_a_row: Count
    rows: Count
    workers: dict[Annotated[str, msgspec.Meta(pattern="^[0-9]{1,9}$")], Count]
    run: str = ""
    time: float = 0.0
    next: Count = 0
    lost: Count = 0
    joined: Count = 0
    pending: list[Count] = []
    rejected_pending: list[Count] = []
    logs: dict[Literal["schedule", "fingerprints", "metrics", "draws"], LogEntry] = {}


def load_checkpoint(folder: str | Path) -> Saved:
    """Return the newest complete checkpoint in `folder`; warn about a damaged one and use the other."""
    folder = Path(folder)
    # A writer may be replacing a generation at this moment, which is not damage: look again.
    for _ in range(ATTEMPTS):
        whole, troubles = _read_all(folder)
        if not troubles:
            break
    if not whole:
        raise DamagedFile(
            f"no checkpoint in {folder} can be used: {' '.join(troubles)}"
        )
    # The serial number counts checkpoints; commit numbers can be equal after an immediate resume.
    newest = max(whole, key=lambda saved: int(saved.document["serial"]))
    # Beside the first one, the other generation was being written for the first time: no loss.
    if troubles and newest.document["serial"] > 1:
        words = f"{' '.join(troubles)} The run continues from commit {newest.commit}."
        warnings.warn(words, CheckpointWarning, stacklevel=2)
    return newest


def _read_all(folder: Path) -> tuple[list[Saved], list[str]]:
    """Return the complete generations, and sentences about what is wrong with the others."""
    seen = documents_in(folder)
    if not seen:
        raise BadInput(
            f"{folder} holds no checkpoint: give the folder that minimize(checkpoint=...) wrote."
        )
    whole: list[Saved] = []
    troubles: list[str] = []
    for name in GENERATIONS:
        # A dangling symbolic link is suspicious, not absent: `exists` would overlook it.
        if os.path.lexists(folder / name):
            try:
                require_real_folder(folder / name)
                whole.append(
                    read_folder(
                        folder / name,
                        CHECKPOINT,
                        lambda document: _read(document, seen),
                    )
                )
            except (DamagedFile, BadInput) as damage:
                troubles.append(str(damage))
    return whole, troubles


def _read(document: Document, seen: dict[str, bytes]) -> Saved:
    path = document.folder
    typed = document.typed(CheckpointDocument)
    # All arrays named after `dim` must fit the problem of the manifest.
    sizes = {"dim": typed.manifest.problem.dim}
    arrays = document.arrays("arrays.npz", SCHEMA, sizes)
    for name, entry in typed.logs.items():
        unpack_log(name, entry.read(path.parent), arrays)
    # Computations under way are part of the schedule now, as dropped rows.
    arrays = {
        name: a for name, a in arrays.items() if not name.startswith("under_way.")
    }
    # Only for its check of the columns.
    metrics_of(path, arrays)
    _check_lengths(path, typed.commit, arrays)
    plain = msgspec.to_builtins(typed) | document.plain
    return Saved(
        plain,
        arrays,
        files={str(name): entry for name, entry in typed.logs.items()},
        seen=seen,
    )


def unpack_log(name: str, records: npt.NDArray[Any], arrays: Arrays) -> None:
    """Convert the records of a log to named columns, as the arrays of a run have them."""
    if name == "fingerprints" and records.dtype == FINGERPRINT:
        arrays["fingerprints"] = records["fingerprint"].copy()
    elif name == "draws" and records.dtype.names == ("theta",):
        arrays["draws"] = records["theta"].copy()
    elif name == "metrics":
        for column in records.dtype.names or ():
            # A log stores all metrics as float64; commits are integers in a table.
            kind = np.int64 if column == "commit" else np.float64
            arrays[f"metrics.{column}"] = records[column].astype(kind)
    elif name == "schedule" and records.dtype == ROW:
        under_way = np.empty(arrays["under_way.worker"].size, records.dtype)
        for column in (records.dtype.names or ()) if under_way.size else ():
            under_way[column] = arrays[f"under_way.{column}"]
        schedule = Schedule.from_rows(np.concatenate([records, under_way]))
        arrays |= {f"schedule.{column}": a for column, a in schedule.arrays().items()}
    else:
        raise DamagedFile(f"the log '{name}' was not written by asyncqn.")


def _check_lengths(path: Path, commit: int, arrays: Arrays) -> None:
    """Check that the fingerprints and the schedule, where there is one, end at the checkpoint's commit."""
    # Before the first commit there is no log of fingerprints.
    arrays.setdefault("fingerprints", np.empty(0, np.uint32))
    schedule = arrays.get("schedule.commit")
    if arrays["fingerprints"].size != commit or (
        schedule is not None and int(schedule.max(initial=0)) != commit
    ):
        raise DamagedFile(
            f"the checkpoint {path} is damaged: its parts end at different commits."
        )
