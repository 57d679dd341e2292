"""The page docs/results/laboratory.md, made of the saved lines alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from asyncqn.storage import write_whole
from benchmarks.studies.laboratory.cells import CONVEX, GAPS, LAWS
from benchmarks.studies.laboratory.tuned import PER_PARAMETER, RIVALS
from benchmarks.studies.tables import RESULTS, read

Cell = tuple[str, str, int]
Times = dict[Cell, dict[str, list[float]]]

HEAD = Path(__file__).with_suffix(".md")


def geometric(numbers: Iterable[float]) -> float:
    logs = [math.log(number) for number in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def times_of(lines: list[dict[str, Any]]) -> Times:
    found: Times = {}
    for line in lines:
        if not line["method"].startswith("tuning"):
            cell = (line["problem"], line["law"], line["workers"])
            found.setdefault(cell, {})[line["method"]] = [
                math.inf if t is None else t for t in line["passes"]
            ]
    order = {name: k for k, name in enumerate([*CONVEX, "network", "factorization"])}
    return dict(
        sorted(found.items(), key=lambda item: (order[item[0][0]], item[0][2], LAWS.index(item[0][1])))
    )


def _words(times: list[float] | None) -> str:
    if times is None:
        return ""
    return " / ".join("–" if math.isinf(t) else f"{t:.2f}" for t in times)


def _table(times: Times, columns: list[str]) -> list[str]:
    rows = ["| problem | W | law | " + " | ".join(columns) + " |", "|---" * (3 + len(columns)) + "|"]
    for (name, law, workers), methods in times.items():
        if any(column in methods for column in columns[1:]):
            shown = " | ".join(_words(methods.get(column)) for column in columns)
            rows.append(f"| {name} | {workers} | {law} | {shown} |")
    return rows


def ratios(times: Times, rivals: bool, gap: int) -> list[float]:
    """The table's time over the least of others, in the convex cells that have both.

    A rival that did not arrive counts as if it had at the end of its time.
    """
    found = []
    for (name, _, _), methods in times.items():
        others = [t for m, t in methods.items() if m != "table" and (m in RIVALS) == rivals]
        if name in CONVEX and "table" in methods and others and math.isfinite(methods["table"][gap]):
            best = min(t[gap] for t in others)
            found.append(methods["table"][gap] / (6.0 if math.isinf(best) and rivals else best))
    return [ratio for ratio in found if ratio > 0.0]


def _summary(times: Times) -> list[str]:
    rows = ["| time of the table over that of | cells | 5 % | 1 % | 0.1 % |", "|---|---|---|---|---|"]
    for words, rivals in (("the best of our other methods", False), ("the best tuned rival", True)):
        each = [ratios(times, rivals, gap) for gap in range(len(GAPS))]
        rows.append(
            f"| {words} | {len(each[-1])} | " + " | ".join(f"{geometric(r):.2f}" for r in each) + " |"
        )
    return rows


def _losses(times: Times) -> list[str]:
    found = []
    for (name, law, workers), methods in times.items():
        for gap, percent in enumerate(GAPS):
            others = {m: t[gap] for m, t in methods.items() if m != "table"}
            if "table" in methods and others:
                best = min(others, key=lambda m: others[m])
                if others[best] < methods["table"][gap]:
                    said = (
                        "not reached" if math.isinf(methods["table"][gap]) else f"{methods['table'][gap]:.2f}"
                    )
                    where = f"{name}, W = {workers}, {law}, to {percent:.1%}"
                    found.append(f"- {where}: {best} {others[best]:.2f}, table {said}.")
    return found or ["None in the cells above."]


def write_page(lines: list[dict[str, Any]]) -> None:
    times = times_of(lines)
    own = [
        m
        for m in ("table", "metric", "difference", "growing by scatter", "growing", "block")
        if any(m in c for c in times.values())
    ]
    safety = read("laboratory/safety")
    text = [HEAD.read_text(encoding="utf-8").format(trials=PER_PARAMETER, each=PER_PARAMETER * 4)]
    text += ["## In short", "", *_summary(times), "", "Geometric means over the convex cells measured."]
    text += ["A rival that did not arrive counts as if it had after 6 passes.", ""]
    text += ["## Our methods", "", *_table(times, own), ""]
    text += ["## Tuned rivals", "", *_table(times, ["table", *RIVALS]), ""]
    text += ["## Where the table loses", "", *_losses(times), ""]
    if safety:
        total = sum(int(row["runs"]) for row in safety)
        text += [
            "## Safety",
            "",
            "`python -m benchmarks.studies.laboratory.safety`: " + f"{total} runs on small problems,",
        ]
        text += ["features ×0.01, ×1 and ×100, wild starts, W = 1 to 1000, the four laws; `completed`: left"]
        text += [
            "after 400 exact passes without an end.",
            "",
            "| " + " | ".join(safety[0]) + " |",
            "|---" * len(safety[0]) + "|",
        ]
        text += ["| " + " | ".join(str(v) for v in row.values()) + " |" for row in safety] + [""]
    write_whole(RESULTS / "laboratory.md", "\n".join(text))
