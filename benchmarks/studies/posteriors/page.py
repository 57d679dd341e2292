"""python -m benchmarks.studies.posteriors.page: docs/results/posteriors.md and its figure, from the table."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.posteriors import table
from benchmarks.studies.posteriors.compare import ERRORS
from benchmarks.studies.posteriors.densities import DENSITIES

PAGE = table.TABLE.with_suffix(".md")
FIGURE = table.TABLE.parent / "figures" / "posteriors.png"
ENOUGH = 400
"""Effective draws below which an error within three Monte-Carlo errors says nothing."""
Row = dict[str, Any]
METHODS = (
    ("sample", 1, "`aq.sample`, 1 worker (4 chains)"),
    ("sample", 4, "`aq.sample`, 4 uneven workers"),
    ("sample", 16, "`aq.sample`, 16 uneven workers"),
    ("nuts-dense", 4, "NUTS, dense metric (blackjax, 4 chains)"),
    ("nuts-diagonal", 4, "NUTS, diagonal metric"),
)
CELLS = len(DENSITIES) * 3 * len(METHODS)
"""Three seeds of each method on each posterior."""
RIVALS = {
    "sgld": "SGLD",
    "as-lbfgs": "as-L-BFGS",
    "momentum-lbfgs": "Momentum L-BFGS",
    "nutpie": "nutpie (NUTS, diagonal metric)",
}
"""Methods of `rivals`, which have a table of their own."""


def right(row: Row) -> bool:
    """Within the margins; by Monte-Carlo errors only where there are draws enough to know them."""
    return bool(row["right_strictly"] or (row["right"] and row["ess"] >= ENOUGH))


def kolmogorov_smirnov(z: list[float]) -> tuple[float, float]:
    """The distance of z from a unit normal, and the chance of a larger one."""
    x = np.sort(z)
    n = x.size
    cdf = 0.5 * np.array([math.erfc(-v / math.sqrt(2.0)) for v in x])
    D = float(max((np.arange(1, n + 1) / n - cdf).max(), (cdf - np.arange(n) / n).max()))
    t = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * D
    p = 2.0 * sum((-1) ** (k - 1) * math.exp(-2.0 * (k * t) ** 2) for k in range(1, 101))
    return D, min(max(p, 0.0), 1.0)


def efficiency(rows: list[Row]) -> float:
    """The median of effective draws per gradient after the warm-up; NaN without rows."""
    return float(np.median([row["ess"] / row["gradients"] for row in rows])) if rows else math.nan


def speed(rows: list[Row]) -> float:
    """The median of effective draws per second of processor time, warm-up included; NaN without rows."""
    # The first seed compiles what the others use.
    later = [row for row in rows if row["seed"] > 0]
    return float(np.median([row["ess"] / row["seconds"] for row in later])) if later else math.nan


def cost(rows: list[Row]) -> float:
    """The median of microseconds per gradient, all else included; NaN without rows."""
    later = [row for row in rows if row["seed"] > 0]
    each = [1e6 * row["seconds"] / (row["gradients"] + row["warm_up_gradients"]) for row in later]
    return float(np.median(each)) if each else math.nan


def spread(values: list[float]) -> str:
    """The median of some ratios, with their range and number."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return "not run"
    return f"{np.median(known):.2f} ({min(known):.2f} to {max(known):.2f}; posteriors: {len(known)})"


class Results:
    """The rows of a table, by posterior, method and workers."""

    def __init__(self, rows: list[Row]) -> None:
        self.failed = [row for row in rows if row["error"]]
        self.rows = [row for row in rows if not row["error"]]
        self.posteriors = [name for name in DENSITIES if any(r["posterior"] == name for r in self.rows)]

    def of(self, method: str, workers: int, posterior: str | None = None) -> list[Row]:
        return [
            row
            for row in self.rows
            if (row["method"], row["workers"]) == (method, workers) and posterior in (None, row["posterior"])
        ]

    def over(
        self, method: str, ours: int = 4, measure: Callable[[list[Row]], float] = efficiency
    ) -> list[float]:
        """A measure of `aq.sample` on `ours` workers over that of a rival with four chains, by posterior."""
        return [
            measure(self.of("sample", ours, name)) / measure(self.of(method, 4, name))
            for name in self.posteriors
        ]

    def scores(self, column: str, method: str = "sample") -> list[float]:
        """The z-scores of all runs of a method whose draws are worth enough."""
        runs = [row for row in self.rows if row["method"] == method and row["ess"] >= ENOUGH]
        return [z for row in runs for z in row[column]]

    def cells(self) -> int:
        """The number of cells of `METHODS`; rivals are not among them."""
        return sum(len(self.of(method, workers)) for method, workers, _ in METHODS)

    def must_hold(self) -> tuple[int, int, list[str]]:
        """Posteriors with all runs of dense NUTS within the margins: those where ours are, too."""
        fair = self.fair()
        tried = [name for name in fair if self.ours(name)]
        missed = [name for name in tried if not all(map(right, self.ours(name)))]
        return len(tried) - len(missed), len(tried), missed

    def fair(self) -> list[str]:
        """Posteriors with all runs of dense NUTS within the margins."""
        dense = {name: self.of("nuts-dense", 4, name) for name in self.posteriors}
        return [name for name, rows in dense.items() if rows and all(map(right, rows))]

    def wrong(self) -> list[Row]:
        """The runs of `aq.sample` outside the margins."""
        return [r for r in self.rows if r["method"] == "sample" and not right(r)]

    def ours(self, posterior: str) -> list[Row]:
        return [r for r in self.rows if r["method"] == "sample" and r["posterior"] == posterior]


def method_table(results: Results) -> str:
    lines = [
        "| method | runs within the margins | largest error of a mean, median run | ESS per gradient |",
        "|---|---|---|---|",
    ]
    for method, workers, title in METHODS:
        rows = results.of(method, workers)
        if not rows:
            lines.append(f"| {title} | not run | | |")
            continue
        off = np.median([row["mean"] for row in rows])
        lines.append(
            f"| {title} | {sum(map(right, rows))} of {len(rows)} | {off:.3f} sd | {efficiency(rows):.3g} |"
        )
    return "\n".join(lines)


def posterior_table(results: Results) -> str:
    lines = [
        "| posterior | d | `aq.sample` | dense NUTS | ESS per gradient | over dense NUTS |",
        "|---|---|---|---|---|---|",
    ]

    def summary(rows: list[Row]) -> str:
        if not rows:
            return ""
        mean = max(row["mean"] for row in rows)
        sd = max((row["sd"] for row in rows), key=lambda ratio: abs(ratio - 1.0))
        return f"{sum(map(right, rows))} of {len(rows)}, {mean:.3f}, {sd:.3f}"

    for name, ratio in zip(results.posteriors, results.over("nuts-dense")):
        ours, dense = results.ours(name), results.of("nuts-dense", 4, name)
        worth = efficiency(results.of("sample", 4, name))
        cells = [f"{value:.3g}" if math.isfinite(value) else "" for value in (worth, ratio)]
        lines.append(
            f"| {name} | {(ours or dense)[0]['dim']} | {summary(ours)} | {summary(dense)} "
            f"| {cells[0]} | {cells[1]} |"
        )
    return "\n".join(lines)


def miss_table(results: Results) -> str:
    """Every run of `aq.sample` outside the margins, with what it says about itself."""
    lines = [
        "| posterior | workers, seed | mean (sd) | standard deviation | effective draws | R-hat | divergent "
        "| dense NUTS |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results.wrong():
        dense = results.of("nuts-dense", 4, row["posterior"])
        lines.append(
            f"| {row['posterior']} | {row['workers']}, {row['seed']} | {row['mean']:.3f} | {row['sd']:.3f} "
            f"| {row['ess']:.0f} | {row['rhat']:.3f} | {row['divergent']} "
            f"| {sum(map(right, dense))} of {len(dense)} |"
        )
    return "\n".join(lines)


def score_table(results: Results) -> str:
    """z-scores by method: standard deviations, the test of Kolmogorov and Smirnov, and large ones."""
    lines = [
        "| method | scores | their sd | Kolmogorov-Smirnov p | beyond 3 (expected) | of these, where dense "
        "NUTS passes |",
        "|---|---|---|---|---|---|",
    ]
    fair, share = set(results.fair()), math.erfc(ERRORS / math.sqrt(2.0))
    for method, workers, title in METHODS:
        runs = [row for row in results.of(method, workers) if row["ess"] >= ENOUGH]
        if not runs:
            continue
        columns = [[z for row in runs for z in row[name]] for name in table.SCORES]
        large = [
            row["posterior"] in fair for row in runs for z in (*row["z"], *row["z_sd"]) if abs(z) > ERRORS
        ]
        sd = ", ".join(f"{np.std(z):.2f}" for z in columns)
        p = ", ".join(f"{kolmogorov_smirnov(z)[1]:.2g}" for z in columns)
        count = sum(map(len, columns))
        lines.append(
            f"| {title} | {count} | {sd} | {p} | {len(large)} ({share * count:.0f}) | {sum(large)} |"
        )
    return "\n".join(lines)


def rival_table(results: Results) -> str:
    """The errors of other methods, by posterior."""
    names = [name for name in DENSITIES if any(results.of(m, 4, name) for m in RIVALS)]
    lines = [
        "| posterior | `aq.sample` | " + " | ".join(RIVALS.values()) + " |",
        "|---|---|" + "---|" * len(RIVALS),
    ]

    def summary(method: str, name: str) -> str:
        rows = results.of(method, 4, name)
        if not rows:
            failed = [r for r in results.failed if (r["method"], r["posterior"]) == (method, name)]
            return "diverged" if failed else ""
        mean = max(row["mean"] for row in rows)
        sd = max((row["sd"] for row in rows), key=lambda ratio: abs(math.log(ratio)))
        return f"{mean:.2f}, {sd:.2f}"

    for name in names:
        cells = [summary(method, name) for method in ("sample", *RIVALS)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def standing(results: Results) -> str:
    """A sentence on which cells there are."""
    cells = results.cells()
    if cells == CELLS:
        return f"All {CELLS} cells are in the [table](posteriors.csv)."
    parts = [
        f"{title} {len(results.of(method, workers))} of {3 * len(DENSITIES)}"
        for method, workers, title in METHODS
        if len(results.of(method, workers)) < 3 * len(DENSITIES)
    ]
    return (
        f"**Partial**: {cells} of {CELLS} cells are in the [table](posteriors.csv). Methods with runs "
        f"missing: {'; '.join(parts)}. A posterior counts as missed or not by the runs that it has."
    )


def by_workers(results: Results) -> str:
    """The runs of `aq.sample` within the margins where all runs of dense NUTS are, by number of workers."""
    parts, fair = [], results.fair()
    for workers in (1, 4, 16):
        rows = [row for name in fair for row in results.of("sample", workers, name)]
        parts.append(f"{sum(map(right, rows))} of {len(rows)} at {workers} worker{'s' * (workers > 1)}")
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def few(results: Results) -> str:
    """The runs that only the clause on effective draws puts outside the margins."""
    runs = [r for r in results.rows if r["right"] and not right(r) and r["method"] not in RIVALS]
    names = {"sample": "`aq.sample`", "nuts-dense": "dense NUTS", "nuts-diagonal": "diagonal NUTS"}
    found: dict[tuple[str, str], int] = {}
    for row in runs:
        key = names[row["method"]], row["posterior"]
        found[key] = found.get(key, 0) + 1
    return "\n".join(f"- {method}, {name}: {count}" for (method, name), count in found.items()) or "- none"


def rival_seeds(results: Results) -> str:
    """How many seeds each rival has: one number, or the range over posteriors."""
    counts = [
        len([r for r in (*results.rows, *results.failed) if (r["method"], r["posterior"]) == (method, name)])
        for method in RIVALS
        for name in DENSITIES
    ]
    made = sorted({count for count in counts if count})
    return f"{made[0]}" if len(made) == 1 else f"{made[0]} to {made[-1]}"


def figure(results: Results, path: Path) -> None:
    """Histograms of the z-scores over the unit normal."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(8.0, 3.0), layout="constrained")
    axis = np.linspace(-4.0, 4.0, 200)
    for axes, (column, title) in zip(
        canvas.subplots(1, 2), (("z", "means"), ("z_sd", "standard deviations"))
    ):
        z = results.scores(column)
        D, p = kolmogorov_smirnov(z)
        axes.hist(np.clip(z, -4.0, 4.0), bins=40, range=(-4.0, 4.0), density=True, color="0.75")
        axes.plot(axis, np.exp(-0.5 * axis**2) / math.sqrt(2.0 * math.pi), color="C0")
        axes.set_title(f"{title}: {len(z)} scores, D = {D:.3f}, p = {p:.2g}", fontsize=9)
        axes.set_xlabel("error in Monte-Carlo errors")
        axes.set_yticks([])
    canvas.savefig(path, dpi=120)


def page(results: Results, template: str) -> str:
    """The page: the text of `page.txt` with the measured numbers in their places."""
    good, tried, missed = results.must_hold()
    wrong = results.wrong()
    runs = [r for r in results.rows if r["method"] == "sample"]
    warned = [r for r in runs if r["rhat"] > 1.01 or r["divergent"] or r["ess"] < ENOUGH]

    def agreement(method: str) -> str:
        parts = []
        for column, name in (("z", "means"), ("z_sd", "standard deviations")):
            z = results.scores(column, method)
            D, p = kolmogorov_smirnov(z)
            parts.append(f"{name} D = {D:.3f}, p = {p:.2g}")
        return f"{'; '.join(parts)} ({len(z)} scores)"

    numbers = {
        "standing": standing(results),
        "methods": method_table(results),
        "misses": miss_table(results),
        "rivals": rival_table(results),
        "posteriors": posterior_table(results),
        "fair": f"{good} of {tried}",
        "missed": ", ".join(missed) or "none",
        "dense": spread(results.over("nuts-dense")),
        "dense_1": spread(results.over("nuts-dense", ours=1)),
        "dense_16": spread(results.over("nuts-dense", ours=16)),
        "per_second": spread(results.over("nuts-dense", measure=speed)),
        "cost": f"{cost(results.of('sample', 4)):.0f}",
        "cost_dense": f"{cost(results.of('nuts-dense', 4)):.1f}",
        "by_workers": by_workers(results),
        "few": few(results),
        "seeds": rival_seeds(results),
        "diagonal": spread(results.over("nuts-diagonal")),
        "wrong": str(len(wrong)),
        "runs": str(len(runs)),
        "told": str(sum(not right(r) for r in warned)),
        "also": f"{sum(map(right, warned))} of the other {len(runs) - len(wrong)}",
        "z": agreement("sample"),
        "scores": score_table(results),
        "z_dense": agreement("nuts-dense"),
        "count": str(len(DENSITIES)),
        "enough": str(ENOUGH),
    }
    for name, text in numbers.items():
        template = template.replace("{" + name + "}", text)
    return template


def main() -> None:
    """Write the page and the figure."""
    results = Results(table.read())
    template = Path(__file__).with_name("page.txt").read_text(encoding="utf-8")
    PAGE.write_text(page(results, template), encoding="utf-8")
    figure(results, FIGURE)


if __name__ == "__main__":
    main()
