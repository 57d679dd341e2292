"""A file system that dies, or refuses, at a chosen call."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CALLS = (
    "open",
    "replace",
    "fsync",
    "unlink",
    "mkdir",
    "rmdir",
    "pwrite",
    "ftruncate",
    "rename",
)


class Killed(BaseException):
    """The process is gone: nothing that follows has any effect."""


class Disk:
    """Counts the calls that reach the file system and dies at the `last`-th, as do all after it.

    error: what a call raises instead, where an ordinary refusal at one call is to be tried.
    """

    def __init__(self, last: float, error: BaseException | None = None) -> None:
        self.last, self.error, self.calls, self.bytes = last, error, 0, 0

    def count(self) -> None:
        self.calls += 1
        if self.error is not None:
            if self.calls == self.last:
                raise self.error
        elif self.calls >= self.last:
            raise Killed

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            self.count()
            return call(*arguments, **more)

        return counted


class File:
    """A file of which every eighth write is counted; one that is killed leaves half of what it was given."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk, self._writes = file, disk, 0

    def write(self, data: Any) -> int:
        self._writes += 1
        try:
            if self._writes % 8 == 1:
                self._disk.count()
        except BaseException:
            self._file.write(bytes(data)[: len(bytes(data)) // 2])
            self._file.flush()
            raise
        self._disk.bytes += len(data)
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *details: Any) -> None:
        self._file.close()


@contextmanager
def on(disk: Disk) -> Iterator[Disk]:
    """The file system as `disk` lets it through."""
    plain = io.open

    def opened(path: Any, mode: str = "r", *arguments: Any, **more: Any) -> Any:
        if not set(mode) & set("wxa+"):
            return plain(path, mode, *arguments, **more)
        disk.count()
        return File(plain(path, mode, *arguments, **more), disk)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "open", opened)
        patch.setattr(builtins, "open", opened)
        patch.setattr(os, "fsync", lambda handle: None)  # nobody pulls the plug here
        for name in CALLS:
            patch.setattr(os, name, disk.wrapped(getattr(os, name)))
        yield disk
