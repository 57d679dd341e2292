"""Cells: the pieces in which the experiments are computed; each is computed once and stored.

A cell is a frozen dataclass whose `measure` returns records; its key is the hash of its class and fields.  A
`Store` is a folder with one Parquet table per kind of cell (`TABLE.parquet`), which can be published, and a
journal (`cells.jsonl`) of the cells that were finished since.  So a long computation can be stopped at any
cell, and the next call continues from the journal or from the published tables.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from asyncqn.errors import BadInput, WorkerFailed
from asyncqn.storage import check_output, to_json
from asyncqn_paper.records import Record, read_table, write_table

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}
"""Several processes with several threads each would compete for the processors."""


class Cell:
    """Base of the cells: a frozen dataclass with `measure`."""

    table: ClassVar[str]
    """The name of the published table that its records are rows of."""

    def measure(self) -> list[Record]:
        """Compute the records."""
        raise NotImplementedError

    @property
    def key(self) -> str:
        """The name under which its records are kept."""
        # The name of the class and not its module: cells keep their keys when code moves between files.
        text = json.dumps(
            [type(self).__name__, to_json(self)], sort_keys=True, allow_nan=False
        )
        # 64 bits: among a few thousand cells two equal keys are out of the question.
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def columns(self) -> Record:
        """Its fields, as columns of the published table."""
        columns = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            # A column of a table has one type; nested fields are readable as text.
            plain = isinstance(value, (int, float, str))
            columns[f"cell {field.name}"] = value if plain else str(value)
        return columns


class CellResult(NamedTuple):
    """The records of a cell, and the processor seconds that they took."""

    records: list[Record]
    seconds: float


class Missing(LookupError):
    """A cell has not been computed."""


class Store:
    """The finished cells of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal = folder / "cells.jsonl"
        self._finished: dict[str, CellResult] = {}
        for path in sorted(folder.glob("*.parquet")):
            self._read_table(path)
        # The journal comes second: a cell that was computed again replaces the published one.
        self._read_journal()

    def __len__(self) -> int:
        return len(self._finished)

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self._finished

    def get(self, cell: Cell) -> list[Record]:
        """Return the records of a cell; raise `Missing` where it is not finished."""
        return self.finished(cell).records

    def finished(self, cell: Cell) -> CellResult:
        """Return records and seconds of a cell."""
        try:
            return self._finished[cell.key]
        except KeyError:
            raise Missing(f"{cell} has not been computed") from None

    def add(self, cell: Cell, finished: CellResult) -> None:
        """Keep a cell, in memory and in the journal."""
        self._finished[cell.key] = finished
        # One line of JSON per cell, written at once: what is lost in a crash is at most the cell under way.
        line = {"key": cell.key, **finished._asdict()}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            check_output(self._journal)
            with self._journal.open("a", encoding="utf-8") as file:
                # The first break ends a line that an interruption may have cut off.
                file.write("\n" + json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise BadInput(
                f"{self._journal} cannot be written: {error.strerror or error}."
            ) from None

    def publish(self, cells: Iterable[Cell]) -> None:
        """Write the tables of these cells, as far as they are finished, and end the journal."""
        tables: dict[str, list[Record]] = {}
        for cell in dict.fromkeys(cells):
            if cell not in self:
                continue
            records, seconds = self.finished(cell)
            # Seconds are spread over the rows of a cell: their sum over the table is the time it took.
            head = {"key": cell.key, "seconds": seconds / max(1, len(records))}
            for record in records:
                rows = tables.setdefault(cell.table, [])
                rows.append({**head, **cell.columns(), **record})
        for name, rows in tables.items():
            write_table(rows, self._folder / name)
        # Only after the tables are written; a crash in between leaves cells in both, which does no harm.
        self._journal.unlink(missing_ok=True)

    def _read_table(self, path: Path) -> None:
        for row in read_table(path.with_suffix("")):
            key = row.pop("key")
            seconds = row.pop("seconds")
            record = {k: v for k, v in row.items() if not k.startswith("cell ")}
            # Rows of one cell follow each other; their seconds add up to what the cell took.
            before = self._finished.get(key, CellResult([], 0.0))
            before.records.append(record)
            self._finished[key] = CellResult(before.records, before.seconds + seconds)

    def _read_journal(self) -> None:
        """Read the cells of the journal; a line that was cut off is ignored."""
        if not self._journal.is_file():
            return
        for line in self._journal.read_text("utf-8", "replace").splitlines():
            try:
                entry = json.loads(line)
                finished = CellResult(entry["records"], entry["seconds"])
                self._finished[entry["key"]] = finished
            except (ValueError, KeyError, TypeError):
                continue


def compute(
    cells: Sequence[Cell],
    store: Store,
    processes: int = 1,
    tell: Callable[[int, str], object] = lambda done, note: None,
) -> None:
    """Compute the cells that are not in the store, in their order."""
    # Experiments share cells; each is computed once.
    cells = list(dict.fromkeys(cells))
    missing = [cell for cell in cells if cell not in store]
    done = len(cells) - len(missing)
    tell(done, "")
    began = time.monotonic()
    for count, (cell, finished) in enumerate(_computed(missing, processes), 1):
        store.add(cell, finished)
        left = len(missing) - count
        # Cells differ in length, so this is a rough estimate that improves.
        minutes = (time.monotonic() - began) / count * left / 60.0
        tell(done + count, f"about {minutes:.0f} min left" if left else "")


def _computed(
    cells: Sequence[Cell], processes: int
) -> Iterator[tuple[Any, CellResult]]:
    if processes <= 1:
        yield from ((cell, _timed(cell)) for cell in cells)
        return
    before = dict(os.environ)
    # A user's own setting stays.
    os.environ.update(ONE_THREAD | before)
    executor = ProcessPoolExecutor(
        processes,
        # A forked process would inherit the locks that threads of this process hold.
        multiprocessing.get_context("spawn"),
        initializer=_end_with_parent,
    )
    try:
        # Cells are recorded in the order in which they end, so that a stop loses only those under way.
        waiting = {executor.submit(_timed, cell): cell for cell in cells}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BrokenProcessPool:
        raise WorkerFailed(
            "a process of the pool was killed, perhaps because memory ran out: run the command again, which "
            "continues from what is saved, or use fewer processes."
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)
        # The environment belongs to the caller, who may start other processes later.
        for name in ONE_THREAD.keys() - before.keys():
            del os.environ[name]


def _end_with_parent() -> None:
    """End this process when its parent ends: a killed parent cannot send a message."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="asyncqn parent", daemon=True).start()


def _timed(cell: Cell) -> CellResult:
    # User and system time of this process and its children: a busy machine does not lengthen it.
    before = sum(os.times()[:4])
    records = cell.measure()
    return CellResult(records, round(sum(os.times()[:4]) - before, 3))
