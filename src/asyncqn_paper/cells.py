"""Cells: the pieces in which the experiments are computed; each is computed once and stored.

A cell is a frozen dataclass whose `measure` returns records; its key is the hash of its class and fields.  A
`Store` is a folder with one Parquet table per experiment (`TABLE.parquet`), which can be published, and a
journal (`cells.jsonl`) of the cells that were finished since.  So a long computation can be stopped at any
cell, and the next call continues from the journal or from the published tables.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import fields
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from asyncqn.errors import BadInput
from asyncqn.storage import check_output, open_input, to_json
from asyncqn_paper.pool import pool
from asyncqn_paper.records import Record, read_table, write_table

SOURCES = ("asyncqn", "asyncqn_recommender", "asyncqn_paper")
VERSIONS = ("asyncqn", "numpy", "numba", "llvmlite")
"""Packages whose source files, and those whose versions, may change a number."""


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
        plain = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        # A column of a table has one type; nested fields are readable as text.
        return {
            name: v if isinstance(v, (int, float, str)) else str(v)
            for name, v in plain.items()
        }


class Finished(NamedTuple):
    """The records of a cell, the processor seconds they took, and the code that computed them."""

    records: list[Record]
    seconds: float
    code: str


@cache
def code_digest() -> str:
    """Hash the source files and data of the packages, the versions in use and Python's."""
    # A cell counts as computed by the present code only if nothing that could change a number has changed
    # since, the numerical libraries included.
    digest = hashlib.sha256(platform.python_version().encode())
    for package in SOURCES:
        spec = find_spec(package)
        for root in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
            for path in sorted(
                path for kind in ("*.py", "*.json") for path in root.rglob(kind)
            ):
                digest.update(
                    f"{package} {path.relative_to(root).as_posix()}\n".encode()
                )
                digest.update(path.read_bytes())
    for package in VERSIONS:
        digest.update(f"{package} {version(package)}\n".encode())
    return digest.hexdigest()[:12]


class Store:
    """The finished cells of a folder.

    Parameters
    ----------
    folder : Path
        Where the tables and the journal are.
    any_code : bool
        Whether cells that other code computed count: full runs last longer than a version of the code, and
        tests recompute some of their cells.  Otherwise they are computed again.
    """

    def __init__(self, folder: Path, any_code: bool) -> None:
        self.folder, self._journal = folder, folder / "cells.jsonl"
        self._tables: dict[str, str] = {}
        self._columns: dict[str, Record] = {}
        self._found: dict[str, Finished] = {}
        # Tables first, the journal second: a cell that was computed again after a publication replaces the
        # published one.
        for path in sorted(folder.glob("*.parquet")):
            self._read_table(path)
        self._read_journal()
        if not any_code:
            now = code_digest()
            self._found = {
                key: one for key, one in self._found.items() if one.code == now
            }

    def __len__(self) -> int:
        return len(self._found)

    def get(self, cell: Cell) -> list[Record] | None:
        """Return the records of a cell; None where it is not finished."""
        found = self._found.get(cell.key)
        return None if found is None else found.records

    def finished(self, cells: Sequence[Cell]) -> list[Finished]:
        """Return what is there of these cells."""
        return [self._found[cell.key] for cell in cells if cell.key in self._found]

    def add(self, cell: Cell, finished: Finished) -> None:
        """Keep a cell, in memory and in the journal."""
        self._found[cell.key] = finished
        self._tables[cell.key] = cell.table
        self._columns[cell.key] = cell.columns()
        # One line of JSON per cell, written at once: what is lost in a crash is at most the cell under way.
        line = {
            "key": cell.key,
            "table": cell.table,
            "columns": cell.columns(),
            **finished._asdict(),
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            check_output(self._journal)
            with self._journal.open("a", encoding="utf-8") as file:
                # The first break ends a line that an interruption may have cut off.
                file.write("\n" + json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise BadInput(
                f"{self._journal} cannot be written: {error.strerror or error}."
            ) from None

    def publish(self, cells: Sequence[Cell]) -> None:
        """Write the tables of these cells, as far as they are finished, and end the journal."""
        rows: dict[str, list[Record]] = {}
        for cell in {cell.key: cell for cell in cells}.values():
            if cell.key in self._found:
                records, seconds, code = self._found[cell.key]
                # Seconds are spread over the rows of a cell, so that their sum over the table is the time
                # it took.
                own = {
                    "key": cell.key,
                    "seconds": seconds / max(1, len(records)),
                    "code": code,
                }
                told = {f"cell {name}": value for name, value in cell.columns().items()}
                # The prefix "cell " keeps the fields of a cell apart from the columns of its records.
                rows.setdefault(cell.table, []).extend(
                    {**own, **told, **record} for record in records
                )
        for table, records in rows.items():
            write_table(records, self.folder / table)
        # Only after the tables are written; a crash in between leaves cells in both, which does no harm.
        self._journal.unlink(missing_ok=True)

    def _read_table(self, path: Path) -> None:
        for row in read_table(path.with_suffix("")):
            key = row.pop("key")
            seconds = row.pop("seconds")
            code = row.pop("code")
            record = {
                name: value
                for name, value in row.items()
                if not name.startswith("cell ")
            }
            # Rows of one cell follow each other; their seconds add up to what the cell took.
            before = self._found.get(key, Finished([], 0.0, code))
            before.records.append(record)
            self._found[key] = Finished(before.records, before.seconds + seconds, code)

    def _read_journal(self) -> None:
        """Read the cells of the journal; a line that was cut off is ignored."""
        if not self._journal.is_file():
            return
        with open_input(self._journal) as file:
            text = file.read().decode(errors="replace")
        for line in text.splitlines():
            try:
                entry = json.loads(line)
                self._found[entry["key"]] = Finished(
                    entry["records"], entry["seconds"], entry["code"]
                )
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
    todo = [cell for cell in dict.fromkeys(cells) if store.get(cell) is None]
    done = len(dict.fromkeys(cells)) - len(todo)
    tell(done, "")
    began = time.monotonic()
    for count, (cell, finished) in enumerate(_computed(todo, processes), 1):
        store.add(cell, finished)
        # Cells differ in length, so this is a rough estimate that improves.
        left = (time.monotonic() - began) / count * (len(todo) - count)
        tell(
            done + count, f"about {left / 60:.0f} min left" if count < len(todo) else ""
        )


def _computed(cells: Sequence[Cell], processes: int) -> Iterator[tuple[Any, Finished]]:
    if processes <= 1:
        yield from ((cell, _timed(cell)) for cell in cells)
        return
    with pool(processes) as executor:
        # Cells are recorded in the order in which they end, so that a stop loses only those under way.
        waiting = {executor.submit(_timed, cell): cell for cell in cells}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _timed(cell: Cell) -> Finished:
    # User and system time of this process and its children: a busy machine does not lengthen it.
    before = sum(os.times()[:4])
    records = cell.measure()
    return Finished(records, round(sum(os.times()[:4]) - before, 3), code_digest())
