"""Logs: files of records that only grow, so that storing them again costs only what is new.

A log is a raw file of records of one dtype.  A document that refers to it states a length and the checksum of
that beginning: later appends do not change it, and bytes that a killed writer left beyond it are overwritten.
"""

from __future__ import annotations

import os
import re
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import DamagedFile
from asyncqn.storage.opening import open_own
from asyncqn.storage.writing import force_folder

LOG_NAME = re.compile(r"[a-z]+-[0-9a-f]{12}\.log")
_KINDS = ("<i4", "<u4", "<f4", "<f8", "<i8")
"""The dtypes of a record's fields."""


@dataclass(frozen=True)
class Log:
    """The first `length` records of a growing sequence; `between(start, stop)` copies some of them."""

    dtype: np.dtype[Any]
    length: int
    between: Callable[[int, int], npt.NDArray[Any]]


class LogEntry(msgspec.Struct, frozen=True):
    """A document's entry for a log: file, number of records, their CRC-32, and their fields."""

    name: str
    records: int
    crc32: int
    fields: list[tuple[str, str]]

    @classmethod
    def new(cls, stem: str, dtype: np.dtype[Any]) -> LogEntry:
        """Return the entry of a new log, without records."""
        fields = [(name, dtype[name].str) for name in dtype.names or ()]
        return cls(f"{stem}-{uuid.uuid4().hex[:12]}.log", 0, 0, fields)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of a record."""
        return np.dtype([(str(name), str(kind)) for name, kind in self.fields])

    def extended(self, folder: Path, log: Log) -> LogEntry:
        """Append the records of `log` beyond this length, and return the entry of the longer log."""
        records = np.ascontiguousarray(log.between(self.records, log.length), log.dtype)
        content = records.tobytes()
        path = folder / self.name
        # A new log is created exclusively, so that nobody can plant a file of that name.
        fresh = self.records == 0
        handle = open_own(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if fresh else 0))
        with os.fdopen(handle, "r+b") as file:
            place = self.records * log.dtype.itemsize
            if os.fstat(handle).st_size < place:
                raise DamagedFile(
                    f"{path} is damaged: it is shorter than what was written to it."
                )
            file.seek(place)
            file.write(content)
            file.flush()
            os.fsync(handle)
        # The name of a new file is durable only after its folder is forced to disk.
        if fresh:
            force_folder(folder)
        crc32 = zlib.crc32(content, self.crc32)
        return LogEntry(self.name, log.length, crc32, self.fields)

    def read(self, folder: Path) -> npt.NDArray[Any]:
        """Return the records that the entry describes."""
        kinds = {kind for _, kind in self.fields}
        # A name from a file must not lead out of the folder, and a dtype must not contain objects.
        if LOG_NAME.fullmatch(self.name) is None or not kinds <= set(_KINDS):
            raise DamagedFile(
                f"{folder} is damaged: the log {self.name[:80]!r} was not written by asyncqn."
            )
        path, dtype = folder / self.name, self.dtype
        length = self.records * dtype.itemsize
        with os.fdopen(open_own(path), "rb") as file:
            if not 0 <= length <= os.fstat(file.fileno()).st_size:
                raise DamagedFile(
                    f"{path} is damaged: it is shorter than its checkpoint states."
                )
            content = file.read(length)
        if zlib.crc32(content) != self.crc32:
            raise DamagedFile(f"{path} is damaged: it does not match its checksum.")
        return np.frombuffer(content, dtype)
