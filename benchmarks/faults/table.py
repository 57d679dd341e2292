"""Tables of faults: a CSV file that is added to, and a page of Markdown made from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from asyncqn.storage import write_whole

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "results"


def write_table(
    stem: Path, columns: Sequence[str], rows: Sequence[Mapping[str, str]], keys: int, words: str
) -> None:
    """Put rows into stem.csv, each in place of the one with the same first `keys` columns; make stem.md.

    words: what stands above the table.
    """
    file, page = stem.with_suffix(".csv"), stem.with_suffix(".md")
    table: dict[tuple[str, ...], Mapping[str, str]] = {}
    if file.exists():
        with file.open(newline="", encoding="utf-8") as stored:
            table = {tuple(row[c] for c in columns[:keys]): row for row in csv.DictReader(stored)}
    table |= {tuple(row[c] for c in columns[:keys]): row for row in rows}
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.values())
    write_whole(file, text.getvalue())
    lines = [_line(columns), _line(["---"] * len(columns))]
    lines += [_line([row.get(c) or "" for c in columns]) for row in table.values()]
    write_whole(page, f"{words.strip()}\n\n" + "\n".join(lines) + "\n")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
