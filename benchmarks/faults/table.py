"""Tables of faults: a CSV file that is added to, and a page of Markdown made from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from asyncqn.storage import write_whole

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "results"


def write_table(
    stem: Path,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    keys: int,
    words: str,
    hidden: Sequence[str] = (),
    answer: Callable[[Sequence[Mapping[str, str]]], str] | None = None,
) -> None:
    """Put rows into stem.csv, each in place of the one with the same first `keys` columns; make stem.md.

    words: the title and what stands above the table.  hidden: columns that only the file has.
    answer: what the rows say in all, for the paragraph below the title.
    """
    file, page = stem.with_suffix(".csv"), stem.with_suffix(".md")
    table: dict[tuple[str, ...], Mapping[str, str]] = {}
    if file.exists():
        with file.open(newline="", encoding="utf-8") as stored:
            table = {
                tuple(row[c] for c in columns[:keys]): row
                for row in csv.DictReader(stored)
            }
    table |= {tuple(row[c] for c in columns[:keys]): row for row in rows}
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.values())
    write_whole(file, text.getvalue())
    shown = _shown([c for c in columns if c not in hidden], list(table.values()))
    if answer is not None:
        title, _, rest = words.strip().partition("\n")
        words = f"{title}\n\n{answer(list(table.values()))}\n{rest}"
    write_whole(page, f"{words.strip()}\n\n{shown}\n")


def _shown(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> str:
    """Return the rows in Markdown; a column that says the same in all of them is a remark above the table."""
    found = {c: [row.get(c) or "" for row in rows] for c in columns}
    same = {
        c: cells[0]
        for c, cells in found.items()
        if len(rows) > 1 and len(set(cells)) == 1
    }
    kept = [c for c in columns if c not in same]
    remark = "; ".join(
        f"{column}: {cell or 'nothing'}" for column, cell in same.items()
    )
    lines = [f"In every row: {remark}.", ""] if same else []
    lines += [_line(kept), _line(["---"] * len(kept))]
    return "\n".join(
        [*lines, *(_line([found[c][i] for c in kept]) for i in range(len(rows)))]
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
