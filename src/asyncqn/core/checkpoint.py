"""States as named arrays, and checkpoints: two generations on disk, each whole, checksummed, without pickle.

What is stored is defined by `engines.core`: the master after some commit n; every worker as it is
after its last computation that began before commit n, wherever it was delivered; the schedule up
to n with the computations that were under way as dropped rows.  So a resumed run is again a
function of its schedule, and replays from theta0 as a whole.

A state is a tree of (named) tuples with arrays, numbers, sets of integers and None as leaves; it
is rebuilt by filling a fresh tree of the same shape, so no file ever says what class to make.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import uuid
import warnings
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, DamagedFile
from asyncqn.storage import check_of, sha256_of

Arrays = dict[str, npt.NDArray[Any]]

FORMAT = 2
"""1 had no checksum of the document; it is still read."""
GENERATIONS = ("a", "b")


class CheckpointWarning(UserWarning):
    """The newest checkpoint could not be used, or one could not be written."""


def flatten(name: str, tree: Any) -> Arrays:
    """The leaves of a state as copies, by path."""
    if isinstance(tree, tuple):
        return {
            key: leaf for i, child in enumerate(tree) for key, leaf in flatten(f"{name}.{i}", child).items()
        }
    if tree is None:
        return {}
    if isinstance(tree, frozenset):
        return {name: np.array(sorted(tree), np.int64)}
    if isinstance(tree, (np.ndarray, np.generic, bool, int, float)):
        leaf = np.array(tree, copy=True)
        if leaf.dtype.kind in "biuf":
            return {name: leaf}
    raise BadInput(
        f"a state cannot be checkpointed: '{name}' is of type {type(tree).__name__}; use tuples of arrays, "
        "numbers and sets of integers."
    )


def unflatten(name: str, template: Any, arrays: Arrays, in_place: bool = True) -> Any:
    """`template` with its leaves replaced; by default its arrays are filled in place, so aliases stay."""
    if isinstance(template, tuple):
        children = [unflatten(f"{name}.{i}", child, arrays, in_place) for i, child in enumerate(template)]
        return template._make(children) if hasattr(template, "_make") else tuple(children)
    if name not in arrays:
        if template is None:
            return None
        raise DamagedFile(f"the checkpoint lacks '{name}': it was written with another algorithm.")
    stored = arrays[name]
    if isinstance(template, frozenset):
        return frozenset(int(v) for v in stored)
    if isinstance(template, np.ndarray):
        same = template.shape == stored.shape and template.dtype == stored.dtype
        if in_place and same and template.flags.writeable:
            template[...] = stored
            return template
        return stored
    return stored[()] if isinstance(template, np.generic) or template is None else type(template)(stored[()])


@dataclass(frozen=True)
class Saved:
    """One checkpoint: numbers and words in `document`, all else in `arrays`."""

    document: dict[str, Any]
    arrays: Arrays = field(repr=False)

    @property
    def commit(self) -> int:
        return int(self.document["commit"])

    def tree(self, name: str, template: Any, in_place: bool = True) -> Any:
        """The state stored as `name`, in the shape of `template`."""
        return unflatten(name, template, self.arrays, in_place)

    def under(self, prefix: str) -> Arrays:
        return {key.removeprefix(prefix): a for key, a in self.arrays.items() if key.startswith(prefix)}


class Checkpoints:
    """A folder of checkpoints, when to write the next, and where to start.

    every: an integer counts commits, a float seconds between two checkpoints.
    The generations a and b are written in turn: at any moment at least one of them is whole.
    """

    def __init__(self, folder: str | Path, every: int | float = 30.0, start: Saved | None = None) -> None:
        if isinstance(every, bool) or not isinstance(every, (int, float)) or not every > 0:
            raise BadInput(
                "checkpoint_every must be a positive integer, a number of commits, or a positive float, "
                f"seconds; not {every!r}."
            )
        self.folder, self.every, self.start = Path(folder).absolute(), every, start
        self._last_commit = start.commit if start is not None else 0
        self._last_time = time.monotonic()
        self._serial = int(start.document["serial"]) if start is not None else 0
        self.interrupted = 0
        """The signal, set by whoever hears it: the engine finishes the current commit, writes, and ends."""
        self.hurry = False
        """Set by a second signal: workers that still compute are not waited for, and not kept."""
        self.writing = False
        self._previous = str(start.document["generation"]) if start is not None else GENERATIONS[1]

    def prepare(self) -> None:
        """Make the folder; refuse one that holds another run's checkpoints, or anything else."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            names = {path.name for path in self.folder.iterdir()}
        except OSError as error:
            reason = error.strerror or error
            raise BadInput(f"no checkpoints can be kept in {self.folder}: {reason}.") from None
        if self.start is None and names & set(GENERATIONS):
            raise BadInput(
                f"{self.folder} holds the checkpoints of another run: resume it, or choose another folder."
            )
        if foreign := sorted(name for name in names - set(GENERATIONS) if not name.startswith(".draft-")):
            raise BadInput(
                f"{self.folder} holds other files ({foreign[0]}): choose a folder for checkpoints only."
            )
        for name in names - set(GENERATIONS):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def due(self, commit: int) -> bool:
        """Whether the next checkpoint is to be taken now; if so, the one after is due `every` later."""
        now = time.monotonic()
        passed = commit - self._last_commit if isinstance(self.every, int) else now - self._last_time
        if passed < self.every:
            return False
        self._last_commit, self._last_time = commit, now
        return True

    def ending(self, commit: int) -> tuple[str, str]:
        """Status and message of a run that a signal ended after `commit`."""
        status = "terminated" if self.interrupted == signal.SIGTERM else "interrupted"
        return status, f"{status} after commit {commit}; go on with: asyncqn resume {self.folder}"

    def write(self, saved: Saved) -> None:
        """Write a checkpoint; a signal does not break into it."""
        self.writing = True
        try:
            self._write(saved)
        finally:
            self.writing = False

    def _write(self, saved: Saved) -> None:
        """Write a generation: draft beside its place, forced to disk, then exchanged."""
        target = GENERATIONS[1 - GENERATIONS.index(self._previous)]
        draft = self.folder / f".draft-{uuid.uuid4().hex[:8]}"
        old = self.folder / f".draft-{uuid.uuid4().hex[:8]}"
        self._serial += 1
        try:
            draft.mkdir()
            with (draft / "arrays.npz").open("wb") as file:
                np.savez(file, **saved.arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            document = {
                **saved.document, "kind": "asyncqn checkpoint", "format": FORMAT, "serial": self._serial,
                "generation": target, "sha256": sha256_of(draft / "arrays.npz"),
            }  # fmt: skip
            document["check"] = check_of(document)
            text = json.dumps(document, allow_nan=False)
            with (draft / "checkpoint.json").open("w") as words:
                words.write(text + "\n")
                words.flush()
                os.fsync(words.fileno())
            if (self.folder / target).exists():
                os.replace(self.folder / target, old)
            os.replace(draft, self.folder / target)
            self._previous = target
        except OSError as error:
            warnings.warn(
                f"the checkpoint of commit {saved.commit} could not be written to {self.folder}: "
                f"{error.strerror or error}; the run goes on.", CheckpointWarning, stacklevel=2,
            )  # fmt: skip
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: str | Path) -> Saved:
    """The newest whole checkpoint in `folder`; a damaged one is passed over with a warning."""
    folder = Path(folder)
    found = [folder / name for name in GENERATIONS if (folder / name).is_dir()]
    if not found:
        raise BadInput(f"{folder} holds no checkpoint.")
    whole: list[Saved] = []
    troubles: list[str] = []
    for path in found:
        try:
            whole.append(_read(path))
        except DamagedFile as damage:
            troubles.append(str(damage))
    if not whole:
        raise DamagedFile(f"no checkpoint in {folder} can be used: {' '.join(troubles)}")
    newest = max(whole, key=lambda saved: int(saved.document["serial"]))
    for trouble in troubles:
        warnings.warn(
            f"{trouble} The run goes on from commit {newest.commit}.", CheckpointWarning, stacklevel=2
        )
    return newest


def _read(path: Path) -> Saved:
    try:
        document = json.loads((path / "checkpoint.json").read_text())
        if document["kind"] != "asyncqn checkpoint" or document["format"] not in (1, FORMAT):
            raise DamagedFile(f"the checkpoint {path} was written by another version of asyncqn.")
        if document["format"] != 1 and check_of(document) != document["check"]:
            raise DamagedFile(f"the checkpoint {path} is damaged: checkpoint.json was altered.")
        if sha256_of(path / "arrays.npz") != document["sha256"]:
            raise DamagedFile(f"the checkpoint {path} does not match its checksum.")
        with np.load(path / "arrays.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        for key in ("commit", "serial", "generation", "manifest"):
            document[key]
        return Saved(document, arrays)
    except (LookupError, ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DamagedFile(f"the checkpoint {path} is damaged ({type(error).__name__}).") from None
