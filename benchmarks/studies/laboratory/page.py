"""The page docs/results/laboratory.md: its text from page.md, its tables from the saved lines alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from asyncqn.storage import write_whole
from benchmarks.studies.tables import RESULTS, read

TEXT = Path(__file__).with_suffix(".md")


def geometric(numbers: Iterable[float]) -> float:
    """Return the geometric mean; NaN of nothing."""
    logs = [math.log(number) for number in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _markdown(rows: list[dict[str, Any]]) -> str:
    head = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    return "\n".join(head + ["| " + " | ".join(str(v) for v in row.values()) + " |" for row in rows])


def _verdicts(lines: list[str]) -> str:
    rows = []
    for line in lines:
        word, _, rest = line.partition("  ")
        method, _, words = rest.strip().partition(": ")
        rows.append({"": word.strip(), "method": method, "what must hold": words})
    return _markdown(rows)


def write_page(contest: list[str], safety: list[str]) -> None:
    """Fill the places of page.md with the lines that must hold, and with the tables.

    Parameters
    ----------
    contest, safety : list of str
        The lines, as the two studies print them.
    """
    places = {
        "LINES": _verdicts(contest),
        "FAMILIES": _markdown(read("laboratory/contest")),
        "SAFETY LINES": "\n".join(f"- {line}" for line in safety),
        "SAFETY": _markdown(read("laboratory/safety")),
    }
    text = TEXT.read_text(encoding="utf-8")
    for name, table in places.items():
        text = text.replace(f"<!-- {name} -->", table)
    write_whole(RESULTS / "laboratory.md", text)
