"""GrowingRows: a table that grows row by row, in an unnamed temporary file.

A sampler may store more draws than fit into memory, and how many is not known in advance.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

IN_MEMORY = 1 << 28
"""Largest size, in bytes, of a table that is read into memory instead of being mapped."""


class GrowingRows:
    """A table of `width` columns; its file has no name, so nothing is left behind however a run ends."""

    def __init__(self, width: int, dtype: npt.DTypeLike) -> None:
        self._width, self._dtype = width, np.dtype(dtype)
        self._count = 0
        self._file = tempfile.TemporaryFile(prefix="asyncqn-")  # noqa: SIM115 - open as long as this is

    def __del__(self) -> None:
        self._file.close()  # memory maps of it remain valid

    def __len__(self) -> int:
        return self._count

    def append(self, row: npt.NDArray[Any]) -> None:
        """Add a copy of a row."""
        self._file.write(np.ascontiguousarray(row, self._dtype).tobytes())
        self._count += 1

    def truncate(self, count: int) -> None:
        """Keep only the first `count` rows."""
        self._file.flush()
        self._file.seek(count * self._width * self._dtype.itemsize)
        self._file.truncate()
        self._count = count

    def between(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return numbers `start` to `stop` of all rows, concatenated, as a copy."""
        return np.array(self._mapped(stop)[start:])

    def table(self, in_memory: int = IN_MEMORY) -> npt.NDArray[Any]:
        """Return all rows, read-only; they are a memory map if they have more than `in_memory` bytes."""
        rows = self._mapped(self._count * self._width).reshape(-1, self._width)
        if rows.nbytes <= in_memory:
            rows = np.array(rows)
        rows.flags.writeable = False
        return rows

    def _mapped(self, count: int) -> npt.NDArray[Any]:
        """Return the first `count` numbers as a memory map."""
        self._file.flush()
        if count == 0:  # an empty file cannot be mapped
            return np.empty(0, self._dtype)
        return np.memmap(self._file, self._dtype, "r", shape=(count,))
