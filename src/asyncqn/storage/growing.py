"""GrowingRows: a table that grows row by row, first in memory and later in an unnamed temporary file.

A sampler may store more draws than fit into memory, and how many is not known in advance.
"""

from __future__ import annotations

import tempfile
from typing import IO, Any

import numpy as np
import numpy.typing as npt

IN_MEMORY = 1 << 28
"""Largest size, in bytes, of rows that stay in memory."""


class GrowingRows:
    """A table of `width` columns; its file has no name, so nothing is left behind however a run ends."""

    def __init__(
        self, width: int, dtype: npt.DTypeLike, in_memory: int = IN_MEMORY
    ) -> None:
        # Also after the switch to a file: it holds dtype and width.
        self._rows = np.empty((0, width), dtype)
        self._count, self._most = 0, in_memory
        self._file: IO[bytes] | None = None

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()  # memory maps of it remain valid

    def __len__(self) -> int:
        return self._count

    def append(self, row: npt.NDArray[Any]) -> None:
        """Add a copy of a row."""
        if self._file is None and (self._count + 1) * row.nbytes > self._most:
            self._file = tempfile.TemporaryFile(prefix="asyncqn-")  # noqa: SIM115 - open as long as this is
            # From here on rows go to the file alone; memory stays bounded for runs of any length.
            self._file.write(self._rows[: self._count].tobytes())
            self._rows = self._rows[:0].copy()
        if self._file is not None:
            self._file.write(np.ascontiguousarray(row, self._rows.dtype).tobytes())
        else:
            # Doubling makes the cost of an append constant on average.
            if self._count == len(self._rows):
                self._rows = np.resize(
                    self._rows, (max(16, 2 * self._count), self._rows.shape[1])
                )
            self._rows[self._count] = row
        self._count += 1

    def truncate(self, count: int) -> None:
        """Keep only the first `count` rows."""
        if self._file is not None:
            self._file.flush()
            self._file.seek(count * self._rows.shape[1] * self._rows.itemsize)
            self._file.truncate()
        self._count = count

    def between(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return numbers `start` to `stop` of all rows, concatenated, as a copy."""
        rows, file = (
            self._rows,
            self._file,
        )  # in this order, because another thread may append in between
        if file is None:
            return rows.reshape(-1)[start:stop].copy()
        file.flush()
        return np.array(np.memmap(file, rows.dtype, "r", shape=(stop,))[start:])

    def table(self) -> npt.NDArray[Any]:
        """Return all rows, read-only; they are a memory map if they are in the file."""
        if self._file is None:
            rows = self._rows[: self._count].copy()
            rows.flags.writeable = False
            return rows
        self._file.flush()
        shape = (self._count, self._rows.shape[1])
        return np.memmap(self._file, self._rows.dtype, "r", shape=shape)
