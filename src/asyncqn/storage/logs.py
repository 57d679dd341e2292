"""Logs: files of records that only grow, so that storing them again costs only what is new.

A log is a raw file of records of one dtype.  A document that refers to it states a length and the checksum of
that beginning: later appends do not change it, and bytes that a killed writer left beyond it are overwritten.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import DamagedFile
from asyncqn.storage.opening import open_folder, open_own, own_handle, require_memory
from asyncqn.storage.writing import force_folder

LOG_NAME = re.compile(r"[a-z]+-[0-9a-f]{12}\.log")


@dataclass(frozen=True)
class Log:
    """The first `length` records of a growing sequence; `between(start, stop)` copies some of them."""

    dtype: np.dtype[Any]
    length: int
    between: Callable[[int, int], npt.NDArray[Any]]


class LogEntry(msgspec.Struct, frozen=True):
    """A document's entry for a log: file, number of records, their fields, and their checksum."""

    name: str
    records: int
    sha256: str
    fields: list[tuple[str, str]]


@dataclass
class LogFile:
    """The state of a log on disk: its name, length and running checksum."""

    name: str
    dtype: np.dtype[Any]
    records: int = 0
    digest: Any = field(default_factory=hashlib.sha256, repr=False)

    @classmethod
    def new(cls, stem: str, dtype: np.dtype[Any]) -> LogFile:
        return cls(f"{stem}-{uuid.uuid4().hex[:12]}.log", dtype)

    def extended(self, folder: Path, log: Log) -> LogFile:
        """Append the records of `log` beyond this length; return the longer log and leave this one
        unchanged."""
        new = np.ascontiguousarray(
            log.between(self.records, log.length), self.dtype
        ).tobytes()
        path, place, rest = (
            folder / self.name,
            self.records * self.dtype.itemsize,
            memoryview(new),
        )
        # A new log is created exclusively, so that nobody can plant a file of that name.
        fresh = self.records == 0
        handle = own_handle(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if fresh else 0))
        try:
            if os.fstat(handle).st_size < place:
                raise DamagedFile(
                    f"{path} is damaged: it is shorter than what was written to it."
                )
            # `pwrite` may write less than it was given.
            while rest:
                written = os.pwrite(handle, rest, place)
                place, rest = place + written, rest[written:]
            os.fsync(handle)
        finally:
            os.close(handle)
        # The name of a new file is durable only after its folder is forced to disk.
        if fresh:
            with open_folder(folder) as opened:
                force_folder(opened)
        # A copy, so that a failed checkpoint can be repeated from the old state.
        digest = self.digest.copy()
        digest.update(new)
        return LogFile(self.name, self.dtype, log.length, digest)

    @property
    def entry(self) -> LogEntry:
        fields = [(name, self.dtype[name].str) for name in self.dtype.names or ()]
        return LogEntry(self.name, self.records, self.digest.hexdigest(), fields)


def read_log(folder: Path, entry: LogEntry) -> tuple[npt.NDArray[Any], LogFile]:
    """Return the records that an entry describes, and the log to append to."""
    # Only the last component: an entry such as "../x" must not leave the folder.
    path = folder / Path(entry.name).name
    dtype = np.dtype([(str(name), str(kind)) for name, kind in entry.fields])
    if (
        # A name from a file must not lead out of the folder, and a dtype must not contain objects.
        path.name != entry.name
        or LOG_NAME.fullmatch(path.name) is None
        or any(
            dtype[name].str not in ("<i4", "<u4", "<f4", "<f8", "<i8")
            for name in dtype.names or ()
        )
    ):
        raise DamagedFile(
            f"{folder} is damaged: the log {entry.name[:80]!r} was not written by asyncqn."
        )
    length = entry.records * dtype.itemsize
    with open_own(path) as file:
        if entry.records < 0 or length > os.fstat(file.fileno()).st_size:
            raise DamagedFile(
                f"{path} is damaged: it is shorter than its checkpoint states."
            )
        require_memory(path, length)
        content = file.read(length)
    # Kept as an object: appends continue it without reading the log again.
    digest = hashlib.sha256(content)
    if digest.hexdigest() != entry.sha256:
        raise DamagedFile(f"{path} is damaged: it does not match its checksum.")
    return np.frombuffer(content, dtype), LogFile(
        entry.name, dtype, entry.records, digest
    )
