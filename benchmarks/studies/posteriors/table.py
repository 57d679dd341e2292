"""python -m benchmarks.studies.posteriors.table: the table of `rows` in Markdown, judged by its rules."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

TABLE = Path(__file__).parents[3] / "docs" / "results" / "hard-posteriors.csv"
SILENT = 0.1
"""Errors of a mean, in sd, from which a run has to warn."""
Row = dict[str, str]


def lines(rows: list[Row]) -> list[dict[str, str]]:
    """Return a line for each target: errors and effective draws of all methods, and whether the line is met."""
    return [
        _line(target, [row for row in rows if row["target"] == target])
        for target in dict.fromkeys(
            row["target"] for row in rows if row["method"] == "sample"
        )
    ]


def _line(target: str, rows: list[Row]) -> dict[str, str]:
    by_method = {
        method: [row for row in rows if row["method"] == method and not row["error"]]
        for method in ("sample", "nuts", "gist")
    }
    missed = []
    for quantity in ("mean", "sd"):
        ours = _errors(by_method["sample"], quantity)
        rival = min(
            (_errors(by_method[name], quantity) for name in ("nuts", "gist")),
            key=lambda errors: float(errors.mean()),
        )
        # A single run shows no spread.
        spread = rival.std(ddof=1) if rival.size > 1 else 0.0
        if ours.mean() > rival.mean() + 2.0 * spread / np.sqrt(rival.size):
            missed.append(quantity)
    failed = sum(row["method"] == "sample" and bool(row["error"]) for row in rows)
    silent = sum(
        float(row["mean"]) > SILENT and row["warned"] != "True"
        for row in by_method["sample"]
    )
    missed += [f"{failed} failed"] * (failed > 0) + [f"{silent} silent"] * (silent > 0)
    return {
        "posterior": target,
        "seeds": str(len(by_method["sample"])),
        **{f"`{name}`": _cell(found) for name, found in by_method.items()},
        "line": f"missed: {', '.join(missed)}" if missed else "met",
    }


def markdown(rows: list[dict[str, str]]) -> str:
    """Return rows with the same columns as a table."""
    head = [list(rows[0]), ["---"] * len(rows[0])]
    cells = head + [list(row.values()) for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _errors(rows: list[Row], quantity: str) -> np.ndarray:
    return np.array([float(row[quantity]) for row in rows] or [np.inf])


def _cell(rows: list[Row]) -> str:
    if not rows:
        return "none"
    mean, sd, ess = (_errors(rows, name) for name in ("mean", "sd", "ess"))
    return f"{mean.mean():.2f}, {sd.mean():.2f}; {np.median(ess):.0f}"


def main() -> None:
    """Print the table."""
    with TABLE.open() as file:
        print(markdown(lines(list(csv.DictReader(file)))))


if __name__ == "__main__":
    main()
