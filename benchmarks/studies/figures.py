"""The figures at the top of results pages, drawn from their saved tables alone.

python -m benchmarks.studies.figures
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.studies.tables import RESULTS, read

OURS, THEIRS = "#1f77b4", "#b0b0b0"


def bars(name: str, title: str, axis: str, groups: Mapping[str, Sequence[tuple[str, float, str]]]) -> None:
    """Horizontal bars by group on a logarithmic axis: (label, value, colour)."""
    lines = [(group, *bar) for group, of in groups.items() for bar in of]
    figure, axes = plt.subplots(figsize=(8, 0.8 + 0.24 * len(lines)), layout="constrained")
    axes.barh(range(len(lines)), [line[2] for line in lines], color=[line[3] for line in lines])
    axes.set_yticks(range(len(lines)), [f"{group}: {label}" for group, label, *_ in lines], fontsize=7)
    for row, line in enumerate(lines):
        axes.annotate(
            f" {line[2]:.3g}",
            (line[2], row),
            va="center",
            fontsize=7,
            xytext=(1, 0),
            textcoords="offset points",
        )
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_xlabel(axis)
    axes.set_title(title, fontsize=10)
    figure.savefig(RESULTS / "figures" / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)


def blocks() -> None:
    """Time to error 0.05 at the middle spread, Block L-BFGS beside the best tuned rival."""
    rows = [row for row in read("beyond/summary") if 10 < float(row["sigma_w"]) < 20]
    groups = {
        row["spectrum"]: [
            ("Block L-BFGS", float(row["block_lbfgs"]), OURS),
            (row["best_rival"], float(row["rival"]), THEIRS),
        ]
        for row in rows
    }
    bars("blocks", "40 simulated workers, σ_w² = 200", "simulated time to error 0.05", groups)


def models() -> None:
    """Seconds to within 0.01 % of the minimum, ours and the best other library that arrived."""
    groups = {}
    for problem in dict.fromkeys(row["problem"] for row in read("models/speed")):
        at = [r for r in read("models/speed") if r["problem"] == problem and float(r["gap"]) == 1e-4]
        ours = next(float(r["seconds"]) for r in at if r["method"] == "asyncqn")
        others = [
            (float(r["seconds"]), r["method"]) for r in at if not r["method"].startswith(("asyncqn", "our"))
        ]
        best, name = min(others, default=(math.inf, ""))
        line = [("asyncqn", ours, OURS)]
        groups[problem] = line + ([(name, best, THEIRS)] if math.isfinite(best) else [])
    bars("models", "no grey bar: no other library arrived in time", "processor seconds to 0.01 %", groups)


def growing() -> None:
    """Seconds to within 1 % of the minimum on large data, one worker."""
    shown = ("growing L-BFGS, W = 1", "Block L-BFGS, W = 1", "SciPy L-BFGS-B")
    groups: dict[str, list[tuple[str, float, str]]] = {}
    for row in read("large_data/speed"):
        if (
            row["method"] in shown
            and float(row["target"]) == 0.01
            and math.isfinite(float(row["seconds"] or "inf"))
        ):
            colour = OURS if row["method"].startswith("growing") else THEIRS
            groups.setdefault(row["problem"], []).append((row["method"], float(row["seconds"]), colour))
    bars("growing", "growing samples on 2·10⁵ to 10⁶ rows", "seconds to within 1 % of the minimum", groups)


def recommender() -> None:
    """Seconds of a fit beside other libraries."""
    groups: dict[str, list[tuple[str, float, str]]] = {}
    for row in read("recommender/peers"):
        if row["fit_seconds"]:
            quality = f"RMSE {row['rmse']}" if row["rmse"] else f"NDCG@10 {row['ndcg']}"
            colour = OURS if row["library"] == "asyncqn" else THEIRS
            label = f"{row['library']}, {quality}"
            groups.setdefault(f"{row['data']}, rank {row['rank']}", []).append(
                (label, float(row["fit_seconds"]), colour)
            )
    bars("recommender", "a fit, one thread", "processor seconds", groups)


if __name__ == "__main__":
    for draw in (blocks, models, growing, recommender):
        draw()
