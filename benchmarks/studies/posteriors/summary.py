"""python -m benchmarks.studies.posteriors.summary: tables in Markdown of what was measured so far."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.studies.posteriors import table
from benchmarks.studies.posteriors.densities import DENSITIES

ENOUGH = 400
"""Effective draws below which an error within three Monte-Carlo errors says nothing."""
Row = dict[str, Any]
METHODS = (
    ("sample", 1, "`aq.sample`, 1 worker (4 chains)"),
    ("sample", 4, "`aq.sample`, 4 uneven workers"),
    ("sample", 16, "`aq.sample`, 16 uneven workers"),
    ("nuts-dense", 4, "NUTS, dense metric (blackjax, 4 chains)"),
    ("nuts-diagonal", 4, "NUTS, diagonal metric"),
    ("nutpie", 4, "nutpie (NUTS, diagonal metric)"),
    ("sgld", 4, "SGLD"),
    ("as-lbfgs", 4, "as-L-BFGS"),
)


def right(row: Row) -> bool:
    """Within the margins; by Monte-Carlo errors only where there are draws enough to know them."""
    return bool(row["right_strictly"] or (row["right"] and row["ess"] >= ENOUGH))


def kolmogorov_smirnov(z: list[float]) -> tuple[float, float]:
    """Return the distance of z from a unit normal, and the probability of a larger one."""
    x = np.sort(z)
    n = x.size
    cdf = 0.5 * np.array([math.erfc(-v / math.sqrt(2.0)) for v in x])
    D = float(
        max((np.arange(1, n + 1) / n - cdf).max(), (cdf - np.arange(n) / n).max())
    )
    t = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * D
    p = 2.0 * sum(
        (-1) ** (k - 1) * math.exp(-2.0 * (k * t) ** 2) for k in range(1, 101)
    )
    return D, min(max(p, 0.0), 1.0)


def efficiency(rows: list[Row]) -> float:
    """Return the median of effective draws per gradient after the warm-up; NaN without rows."""
    return (
        float(np.median([row["ess"] / row["gradients"] for row in rows]))
        if rows
        else math.nan
    )


def markdown(rows: list[Row]) -> str:
    """Return rows with the same columns as a table."""
    head = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    return "\n".join(
        head + ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    )


def by_method(rows: list[Row]) -> list[Row]:
    """Return a line per method: runs within the margins, errors, effective draws, z-scores."""
    lines = []
    for method, workers, title in METHODS:
        mine = [
            row for row in rows if (row["method"], row["workers"]) == (method, workers)
        ]
        if not mine:
            continue
        scores = [z for row in mine if row["ess"] >= ENOUGH for z in row["z"]]
        line = {
            "method": title,
            "within the margins": f"{sum(map(right, mine))} of {len(mine)}",
        }
        line["largest error of a mean, median run"] = (
            f"{np.median([row['mean'] for row in mine]):.3f} sd"
        )
        line["ESS per gradient"] = f"{efficiency(mine):.3g}"
        line["Kolmogorov-Smirnov p of z"] = (
            f"{kolmogorov_smirnov(scores)[1]:.2g}" if scores else ""
        )
        lines.append(line)
    return lines


def by_posterior(rows: list[Row]) -> list[Row]:
    """Return a line per posterior: `aq.sample` on all numbers of workers beside dense NUTS."""
    lines = []
    for name in DENSITIES:
        line: Row = {"posterior": name}
        here = [row for row in rows if row["posterior"] == name]
        for method, title in (("sample", "`aq.sample`"), ("nuts-dense", "dense NUTS")):
            mine = [row for row in here if row["method"] == method]
            line[f"{title} within the margins"] = (
                f"{sum(map(right, mine))} of {len(mine)}"
            )
            line[f"{title}, error of a mean"] = (
                f"{max((row['mean'] for row in mine), default=math.nan):.3f}"
            )
        four = [row for row in here if row["workers"] == 4]
        ours, dense = (
            efficiency([row for row in four if row["method"] == method])
            for method in ("sample", "nuts-dense")
        )
        line["ESS per gradient over dense NUTS"] = f"{ours / dense:.3g}"
        lines.append(line)
    return lines


if __name__ == "__main__":
    finished = [row for row in table.read() if not row["error"]]
    print(markdown(by_method(finished)))
    print()
    print(markdown(by_posterior(finished)))
