"""The table of results: one row per cell, in a CSV file that is committed and to which a study adds."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parents[3] / "docs" / "results" / "posteriors.csv"
KEY = ("posterior", "method", "workers", "seed")
COUNTS = (
    "workers",
    "seed",
    "dim",
    "gradients",
    "warm_up_gradients",
    "divergent",
    "right",
    "right_strictly",
)
SCORES = ("z", "z_sd")
COLUMNS = (*KEY, "dim", "mean", "sd", "right", "right_strictly", "rhat", "ess", "gradients",
           "warm_up_gradients", "accept", "step", "divergent", "seconds", "over_lockstep", *SCORES,
           "error")  # fmt: skip
"""z and z_sd are z-scores of all means and standard deviations, separated by spaces."""


def read(path: Path = TABLE) -> list[dict[str, Any]]:
    """All rows of a table; none where there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [_parsed(row) for row in csv.DictReader(file)]


def append(row: dict[str, Any], path: Path = TABLE) -> None:
    """Add a row at the end."""
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        writer.writerow([_text(row.get(name, "")) for name in COLUMNS])


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Posterior, method, workers and seed, of which a table has each combination once."""
    return tuple(row[name] for name in KEY)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(f"{x:.2f}" for x in value)
    return (
        f"{value:.4g}"
        if isinstance(value, float)
        else str(int(value) if value in (True, False) else value)
    )


def _parsed(row: dict[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, text in row.items():
        if name in SCORES:
            out[name] = [float(x) for x in text.split()]
        elif name in ("posterior", "method", "error"):
            out[name] = text
        elif name in COUNTS:
            out[name] = int(text) if text else 0
        else:
            out[name] = float(text) if text else math.nan
    return out
