"""The tables of the studies: CSV files in docs/results/FOLDER, rewritten whole while a study runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asyncqn.storage import write_whole

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "results"


def write(table: str, records: Sequence[dict[str, Any]], digits: int = 6) -> None:
    """Write `table` ("folder/name"), with floats to so many significant digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow(
            {
                k: f"{v:.{digits}g}" if isinstance(v, float) else v
                for k, v in record.items()
            }
        )
    write_whole(RESULTS / f"{table}.csv", text.getvalue())


def read(table: str) -> list[dict[str, Any]]:
    """Return the rows of a table, as words; none where it was not written yet."""
    path = RESULTS / f"{table}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
