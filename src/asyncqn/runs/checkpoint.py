"""Checkpoints: two generations on disk, each complete, checksummed, and without pickle.

`engines.coordinator` defines what is stored: the master after some commit n; every worker as it is after its
last computation that began before commit n, wherever that was delivered; and the schedule up to n, with the
computations that were under way as dropped rows.  A resumed run is therefore a function of its schedule
again, and replays from theta0 as a whole.

A state is a tree of (named) tuples with arrays, numbers, sets of integers and None as leaves (`flatten`).  It
is rebuilt by filling a new tree of the same shape (`unflatten`), so no file ever names a class to create.

A folder of checkpoints (`Checkpoints`) holds the generations `a` and `b`, each a document and the states,
written in turn; logs of what only grows (the schedule's rows, fingerprints, metrics), of which each
generation names a length; and `lock`, which the writing run holds.  A log is appended to and never rewritten,
so a checkpoint costs as much as what is new, not as much as the run is long.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
import uuid
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.columns import Table
from asyncqn.core.outcome import Outcome
from asyncqn.core.schedule import Schedule
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.storage import FolderKind, write_folder
from asyncqn.storage.locks import FolderLock
from asyncqn.storage.logs import Log, LogEntry
from asyncqn.storage.opening import read_own, require_real_folder
from asyncqn.storage.writing import LONGEST_DOCUMENT, in_words

Arrays = dict[str, npt.NDArray[Any]]
_log = logging.getLogger("asyncqn.runs")

CHECKPOINT = FolderKind(
    "asyncqn checkpoint", "checkpoint", "checkpoint.json", 4, ("arrays.npz",)
)
GENERATIONS = ("a", "b")
FINGERPRINT = np.dtype([("fingerprint", "<u4")])
_LOG_NAME = re.compile(r"(schedule|fingerprints|metrics|draws)-[0-9a-f]{12}\.log")


class CheckpointWarning(UserWarning):
    """The newest checkpoint cannot be used, a checkpoint cannot be written, or the folder cannot be
    locked."""


def with_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Return the arrays whose names have the prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): a
        for name, a in arrays.items()
        if name.startswith(prefix)
    }


def metrics_of(place: str | Path, arrays: Arrays) -> Table:
    """Return the stored metric table; it is empty, or has the columns that every evaluation writes."""
    columns = with_prefix("metrics.", arrays)
    missing = {"commit", "time", "fun"} - set(columns)
    if columns and missing:
        column = min(missing)
        raise DamagedFile(f"{place} is damaged: its metrics lack {column!r}.")
    return Table(columns)


def flatten(name: str, tree: Any) -> Arrays:
    """Return copies of the leaves of a state, by path."""
    if isinstance(tree, tuple):
        return {
            key: leaf
            for i, child in enumerate(tree)
            for key, leaf in flatten(f"{name}.{i}", child).items()
        }
    if tree is None:
        return {}
    if isinstance(tree, frozenset):
        # Sorted, so that equal states give equal bytes.
        return {name: np.array(sorted(tree), np.int64)}
    if isinstance(tree, (np.ndarray, np.generic, bool, int, float)):
        leaf = np.array(tree, copy=True)
        # Only plain numbers are stored: an object would need pickle to come back.
        if leaf.dtype.kind in "biuf":
            return {name: leaf}
    raise BadInput(
        f"a state cannot be checkpointed: '{name}' is of type {type(tree).__name__}; use tuples of arrays, "
        "numbers and sets of integers."
    )


def unflatten(
    name: str, template: Any, arrays: Arrays, *, in_place: bool = True
) -> Any:
    """Return `template` with its leaves replaced.

    With `in_place` the arrays of the template are filled, so that other references to them stay valid.
    """
    if isinstance(template, tuple):
        children = [
            unflatten(f"{name}.{i}", child, arrays, in_place=in_place)
            for i, child in enumerate(template)
        ]
        make = getattr(template, "_make", tuple)
        tree = make(children)
        # The shape alone does not protect: a kernel would read beyond its arrays.
        # A state may define `sound` to test values that its kernels use as indices.
        if not getattr(tree, "sound", lambda: True)():
            raise DamagedFile(
                f"the checkpoint is damaged: '{name}' holds impossible numbers."
            )
        return tree
    stored = arrays.get(name)
    if stored is None:
        if template is None:
            return None
        raise DamagedFile(
            f"the checkpoint lacks '{name}': it was written with another algorithm."
        )
    if template is None:
        return stored[()]
    # Kernels rely on shapes and dtypes without a check.
    if not _fits(template, stored):
        raise DamagedFile(
            f"the checkpoint's '{name}' has another shape or type than this run's: it is damaged, or was "
            "written with another algorithm or problem."
        )
    if isinstance(template, np.ndarray):
        if in_place and template.flags.writeable:
            template[...] = stored
            return template
        return np.array(stored, order="C")
    if isinstance(template, frozenset):
        return frozenset(stored.tolist())
    return (
        stored[()] if isinstance(template, np.generic) else type(template)(stored[()])
    )


def _fits(template: Any, stored: npt.NDArray[Any]) -> bool:
    """Return whether a stored leaf has the shape and type of a template's leaf."""
    if isinstance(template, frozenset):
        return stored.ndim == 1 and stored.dtype == np.int64
    like = np.asarray(template)
    if isinstance(template, np.ndarray):
        return like.shape == stored.shape and like.dtype == stored.dtype
    # An integer may have been stored where a float is expected, but not the reverse.
    kinds = "fiu" if like.dtype.kind == "f" else like.dtype.kind
    return stored.shape == () and stored.dtype.kind in kinds


@dataclass(frozen=True)
class Saved:
    """One checkpoint: plain data in `document`, arrays, and `logs` of what only grows.

    In a loaded checkpoint `arrays` has the content of the logs as well, `files` are those logs, to append to,
    and `seen` holds the folder's documents at the time.
    """

    document: dict[str, Any]
    arrays: Arrays = field(repr=False)
    logs: dict[str, Log] = field(default_factory=dict, repr=False)
    files: dict[str, LogEntry] = field(default_factory=dict, repr=False)
    seen: dict[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def commit(self) -> int:
        return int(self.document["commit"])

    def tree(self, name: str, template: Any, *, in_place: bool = True) -> Any:
        """Return the state stored as `name`, shaped like `template`; `in_place` fills the template's
        arrays."""
        return unflatten(name, template, self.arrays, in_place=in_place)

    def schedule(self) -> Schedule:
        """Return the recorded schedule so far; computations under way count as dropped."""
        columns = with_prefix("schedule.", self.arrays)
        # There is none before the first commit.
        return Schedule.from_arrays(columns) if columns else Schedule.serial(0)


class Checkpoints:
    """A folder of checkpoints: when the next one is due, how it is written, and where a run starts.

    The generations a and b are written in turn, so that at any moment at least one of them is complete.
    From `prepare` to `close` no other process can write to the folder.

    Parameters
    ----------
    folder : str or path
        The folder; it is created, and must hold nothing else.
    every : int or float, default 30.0
        Interval between two checkpoints: an integer counts commits, a float counts seconds.
    start : Saved, optional
        The checkpoint that the run continues from.
    imports : bool, default False
        Whether the run has classes of the user's own, which `resume` must be allowed to import.
    """

    def __init__(
        self,
        folder: str | Path,
        every: int | float = 30.0,
        start: Saved | None = None,
        imports: bool = False,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.every = every
        self.start = start
        self.command = f"asyncqn resume {self.folder}{' --allow-imports' * imports}"
        """The command that continues the run."""
        about = start.document if start is not None else {}
        self.run = str(about.get("run") or uuid.uuid4().hex)
        """Identifier of the run, stored in each of its checkpoints."""
        self._last_commit = start.commit if start is not None else 0
        # A monotonic clock, because the system's clock may be set while a run lasts.
        self._last_time = time.monotonic()
        self._serial = int(about.get("serial", 0))
        self.interrupted = 0
        """The signal number, set by the signal handler: the engine finishes the commit, writes, and ends."""
        self.hurry = False
        """Set by a second signal: the engine does not wait for workers that still compute, nor save them."""
        self.writing = False
        # The older generation is overwritten next; a new folder begins with a.
        self._previous = str(about.get("generation", GENERATIONS[1]))
        self._files: dict[str, LogEntry] = {} if start is None else dict(start.files)
        self._lock = FolderLock(self.folder, self.run)

    def prepare(self) -> None:
        """Create and lock the folder; refuse one with another run's checkpoints or any other file.

        A run never overwrites the checkpoints of another.  A new run needs an empty folder; a resumed one
        needs the folder unchanged since its checkpoint was loaded.
        """
        with in_words(f"checkpoints cannot be written to {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._refuse_other_files()
            # The system releases the lock when the process dies, so a crash never blocks a resume.
            locked = self._lock.take()
            now = documents_in(self.folder)
        if not locked:
            warnings.warn(
                f"{self.folder} cannot be locked: make sure that no other run writes there.",
                CheckpointWarning,
                stacklevel=2,
            )
        # Never overwrite the checkpoints of another run.
        if self.start is None and now:
            self.close()
            raise BadInput(
                f"{self.folder} holds the checkpoints of another run: resume it, or choose another folder."
            )
        # Between loading and locking, somebody else may have resumed the same run.
        if self.start is not None and self.start.seen not in ({}, now):
            self.close()
            raise BadInput(
                f"another process has continued the run in {self.folder}: resume it again."
            )

    def close(self) -> None:
        """Release the lock on the folder."""
        self._lock.release()

    def _refuse_other_files(self) -> None:
        for name in GENERATIONS:
            require_real_folder(self.folder / name)
        for name in sorted(os.listdir(self.folder)):
            # Refusing anything else keeps a mistyped folder of the user's safe from being written to.
            ours = name in (*GENERATIONS, FolderLock.NAME)
            if not ours and _LOG_NAME.fullmatch(name) is None:
                raise BadInput(
                    f"{self.folder} holds other files ({name}): choose a folder for checkpoints alone."
                )

    def due(self, commit: int) -> bool:
        """Return whether a checkpoint is due now; if it is, the next one is due `every` later."""
        now = time.monotonic()
        # An int counts commits and a float counts seconds.
        passed = (
            commit - self._last_commit
            if isinstance(self.every, int)
            else now - self._last_time
        )
        if passed < self.every:
            return False
        self._last_commit, self._last_time = commit, now
        return True

    def ending(self, commit: int) -> tuple[Outcome, str]:
        """Return outcome and message of a run that a signal ended after `commit`."""
        terminated = self.interrupted == signal.SIGTERM
        outcome = Outcome.TERMINATED if terminated else Outcome.INTERRUPTED
        words = f"{outcome} after commit {commit}; continue with: {self.command}"
        return outcome, words

    def write(self, saved: Saved) -> None:
        """Write a generation, beside the older one: first the new records of the logs, then the states.

        Signal handlers only set a flag, so a signal does not interrupt the write.
        """
        self.writing = True
        # The generation that was not written last; the newer one stays untouched until this one is complete.
        target = GENERATIONS[1 - GENERATIONS.index(self._previous)]
        self._serial += 1
        try:
            # Logs first: a document must never name records that are not on disk yet.
            logs = {
                name: msgspec.to_builtins(self._append(name, log))
                for name, log in saved.logs.items()
                if log.length
            }
            # The serial number decides which generation is newer.
            about = {"serial": self._serial, "generation": target, "run": self.run}
            document = {**saved.document, **about, "logs": logs}
            files = {"arrays.npz": saved.arrays}
            write_folder(self.folder, CHECKPOINT, document, files, inside=target)
            self._previous = target
            words = "checkpoint of commit %d written to %s"
            _log.info(words, saved.commit, self.folder)
        # A full disk must not end a run that computes well; the older generation is still complete.
        except (OSError, BadInput, DamagedFile) as error:
            warnings.warn(
                f"the checkpoint of commit {saved.commit} could not be written ({error}); the run continues, "
                "and its older checkpoint is intact.",
                CheckpointWarning,
                stacklevel=2,
            )
        finally:
            self.writing = False

    def _append(self, name: str, log: Log) -> LogEntry:
        """Append the new records to a log; records with other columns start a new log."""
        file = self._files.get(name)
        if file is None or file.dtype != log.dtype:
            # A table that gains a column needs other records; the old log stays for the older generation.
            file = LogEntry.new(name, log.dtype)
        self._files[name] = file.extended(self.folder, log)
        return self._files[name]


def documents_in(folder: Path) -> dict[str, bytes]:
    """Return the documents of all generations: they change with every checkpoint."""
    contents = {}
    for name in GENERATIONS:
        try:
            require_real_folder(folder / name)
            path = folder / name / CHECKPOINT.document
            contents[name] = read_own(path, LONGEST_DOCUMENT)
        except DamagedFile as planted:
            contents[name] = str(planted).encode()
        except OSError:
            continue
    return contents
