"""The page docs/results/laboratory.md, made of the saved lines alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from asyncqn.storage import write_whole
from benchmarks.studies.laboratory.cells import CONVEX, GAPS, LAWS, PROBLEMS
from benchmarks.studies.laboratory.tuned import PER_PARAMETER, RIVALS, longest
from benchmarks.studies.tables import RESULTS, read

Cell = tuple[str, str, int]
Times = dict[Cell, dict[str, list[float]]]

HEAD = Path(__file__).with_suffix(".md")
DEFAULT = HEAD.with_name("default.md")
SHOWN, CHOSEN_ON = 1, 0
WORDS = {"fresh": "that is fresh", "chosen on": "that choices were made on"}
"""Draws of the data: the one that is shown, and the one on which rivals and our constants were chosen."""
PERCENT = [f"{100 * gap:g} %" for gap in GAPS]
LOSSES = ("## Where a rival is before all of ours", "## Where another of ours is before the table")


def geometric(numbers: Iterable[float]) -> float:
    logs = [math.log(number) for number in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def times_of(lines: list[dict[str, Any]], draw: int) -> Times:
    found: Times = {}
    for line in lines:
        if line["draw"] == draw and not line["method"].startswith("tuning"):
            cell = (line["problem"], line["law"], line["workers"])
            found.setdefault(cell, {})[line["method"]] = [
                math.inf if t is None else t for t in line["passes"]
            ]
    order = {name: k for k, name in enumerate(PROBLEMS)}
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


def _group(methods: dict[str, list[float]], which: str) -> list[str]:
    """The methods of a cell: "table", the "others" of ours, "ours" or "rivals"."""
    if which == "rivals":
        return [m for m in methods if m in RIVALS]
    return [
        m for m in methods if m not in RIVALS and (which == "ours" or (m == "table") == (which == "table"))
    ]


def _least(name: str, methods: dict[str, list[float]], which: str, gap: int) -> float:
    """The least time of a group; who did not arrive counts as if he had at the end of his time."""
    ends = {
        m: longest("rivals" if m in RIVALS else "table" if m == "table" else "ours", name) for m in methods
    }
    return min(min(methods[m][gap], ends[m]) for m in _group(methods, which))


def ratios(times: Times, names: Iterable[str], first: str, second: str, gap: int) -> list[float]:
    """The least time of a group over that of another, in the cells of some problems that have both."""
    return [
        _least(name, methods, first, gap) / _least(name, methods, second, gap)
        for (name, _, _), methods in times.items()
        if name in names and _group(methods, first) and _group(methods, second)
    ]


def _whole(methods: dict[str, list[float]]) -> bool:
    """Whether the table, the rivals and others of ours were measured in a cell."""
    return "table" in methods and set(RIVALS) < set(methods) and len(methods) > 1 + len(RIVALS)


def _first(methods: dict[str, list[float]], gap: int) -> str:
    best = min(methods, key=lambda m: methods[m][gap])
    return "nobody" if math.isinf(methods[best][gap]) else best


def _winners(times: Times) -> list[str]:
    """How often each method is the first, by problem."""
    rows = ["| problem | cells | " + " | ".join(PERCENT) + " |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(cell[0] for cell in times):
        cells = [methods for cell, methods in times.items() if cell[0] == name and _whole(methods)]
        if not cells:
            continue
        said = []
        for gap in range(len(GAPS)):
            firsts = Counter(_first(c, gap) for c in cells)
            said.append(", ".join(f"{m} {n}" for m, n in firsts.most_common()))
        rows.append(f"| {name} | {len(cells)} | " + " | ".join(said) + " |")
    return rows


def _plain(table: str) -> list[str]:
    """A published table as it is."""
    rows = read(table)
    if not rows:
        return []
    head = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    return head + ["| " + " | ".join(str(v) for v in row.values()) + " |" for row in rows]


def _summary(draws: dict[str, Times]) -> list[str]:
    rows = ["| time of the table over that of | draw | cells | 5 % | 1 % | 0.1 % |", "|---" * 6 + "|"]
    for words, group in (("the best of our other methods", "others"), ("the best tuned rival", "rivals")):
        for draw, times in draws.items():
            each = [ratios(times, CONVEX, "table", group, gap) for gap in range(len(GAPS))]
            if each[-1]:
                shown = " | ".join(f"{geometric(r):.2f}" for r in each)
                rows.append(f"| {words} | {draw} | {len(each[-1])} | {shown} |")
    return rows


def _mean(times: Times, name: str, pair: tuple[str, str], gap: int) -> str:
    """Of the ratios; "?" where one has none: the second did not arrive, and had less time than the first."""
    first, second = pair
    for methods in times.values():
        arrived = any(methods[m][gap] < math.inf for m in _group(methods, second))
        if not arrived and _least(name, methods, first, gap) > _least(name, methods, second, gap):
            return "?"
    return f"{geometric(ratios(times, [name], first, second, gap)):.2f}"


def _by_problem(times: Times) -> list[str]:
    """The same means by problem and W, of the cells that are whole."""
    pairs = (("table", "others"), ("table", "rivals"), ("ours", "rivals"))
    heads = ("table / others of ours", "table / rivals", "best of ours / rivals")
    rows = ["| problem | W | cells | " + " | ".join(heads) + " |", "|---" * 6 + "|"]
    for name, workers in dict.fromkeys((name, workers) for name, _, workers in times):
        whole = {c: m for c, m in times.items() if c[0] == name and c[2] == workers and _whole(m)}
        if whole:
            means = [" / ".join(_mean(whole, name, pair, gap) for gap in range(len(GAPS))) for pair in pairs]
            rows.append(f"| {name} | {workers} | {len(whole)} | {' | '.join(means)} |")
    return rows


def _more_draws(lines: list[dict[str, Any]]) -> list[str]:
    """The table beside the best of our others, on draws besides the two."""
    rows = ["| problem | W | law | draw | table | best of our others | ratio |", "|---" * 7 + "|"]
    for draw in sorted({line["draw"] for line in lines} - {SHOWN, CHOSEN_ON}):
        for (name, law, workers), methods in times_of(lines, draw).items():
            if "table" in methods and _group(methods, "others"):
                times = {m: methods[m][-1] for m in _group(methods, "others")}
                best = min(times, key=times.__getitem__)
                table, other = methods["table"][-1], methods[best][-1]
                ratio = f"{other:.2f} ({best}) | {table / other:.2f}"
                rows.append(f"| {name} | {workers} | {law} | {draw} | {table:.2f} | {ratio} |")
    return rows if len(rows) > 2 else []


def _default() -> list[str]:
    """The default beside the table, both draws."""
    rows = read("laboratory/default")
    if not rows:
        return []
    cells: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for row in rows:
        if row["law"] != "lognormal":  # as the text says
            continue
        where = (row["problem"], row["workers"], row["slower"], row["draw"])
        cells.setdefault(where, {})[row["method"]] = row
    shown = ["| problem | W | × message, commit | draw | default | its time | table |", "|---" * 7 + "|"]
    gaps = ("1 %", "0.1 %", "converged")
    for where, methods in sorted(cells.items(), key=lambda c: (c[0][0], int(c[0][2]), int(c[0][1]), c[0][3])):
        for name, row in methods.items():
            if name != "table":
                kind = row["algorithm"] + (" (former)" if name == "former" else "")
                each = [_words([float(r[gap]) for gap in gaps]) for r in (row, methods["table"])]
                shown.append(f"| {' | '.join(where)} | {kind} | {each[0]} | {each[1]} |")
    return shown


def _losses(times: Times, rivals: bool) -> list[str]:
    """The cells in which a rival is before all of ours, or else another of ours before the table."""
    found = []
    for (name, law, workers), methods in times.items():
        ours = [m for m in methods if (m not in RIVALS if rivals else m == "table")]
        theirs = [m for m in methods if (m in RIVALS) == rivals and m != "table"]
        said = []
        for gap, percent in enumerate(PERCENT if ours and theirs else ()):
            at = {m: times[gap] for m, times in methods.items()}
            mine, other = min(ours, key=at.__getitem__), min(theirs, key=at.__getitem__)
            if at[other] < at[mine]:
                reached = "none of ours" if rivals else "table not"
                reached = reached if math.isinf(at[mine]) else f"{mine} {at[mine]:.2f}"
                said.append(f"to {percent} {other} {at[other]:.2f} ({reached})")
        if said:
            found.append(f"- {name}, W = {workers}, {law}: {'; '.join(said)}.")
    return found or ["None."]


def write_page(lines: list[dict[str, Any]]) -> None:
    times = times_of(lines, SHOWN)
    draws = {"fresh": times, "chosen on": times_of(lines, CHOSEN_ON)}
    own = [
        m
        for m in ("table", "metric", "difference", "growing by scatter", "growing", "block")
        if any(m in c for c in times.values())
    ]
    text = [HEAD.read_text(encoding="utf-8").format(trials=PER_PARAMETER, each=PER_PARAMETER * 4)]
    text += [
        "## In short",
        "",
        *_summary(draws),
        "",
        "Geometric means over the convex cells. Who did not arrive counts as if he had at the end of his",
        "time, which is shortest for rivals and favours them. By problem, to 5 / 1 / 0.1 %, on the fresh",
        "draw, where all were measured (?: in some cell no rival arrived, and ours took longer than he had):",
        "",
        *_by_problem(times),
        "",
    ]
    for draw, found in draws.items():
        if any(_whole(methods) for methods in found.values()):
            text += [
                f"Who is first on the draw {WORDS[draw]}, and in how many cells:",
                "",
                *_winners(found),
                "",
            ]
    text += ["## Our methods, on the fresh draw", "", *_table(times, own), ""]
    for draw, found in draws.items():
        if any(set(RIVALS) & set(methods) for methods in found.values()):
            text += [
                f"## Tuned rivals, on the draw {WORDS[draw]}",
                "",
                *_table(found, ["table", *RIVALS]),
                "",
            ]
    for title, rivals in zip(LOSSES, (True, False), strict=True):
        text += [title, ""]
        for draw, found in draws.items():
            text += [f"On the draw {WORDS[draw]}:", "", *_losses(found, rivals), ""]
    if rows := _more_draws(lines):
        text += [
            "## Other draws",
            "",
            "One fresh draw says little of *rotated*. Passes to 0.1 % on further ones (seed: draw + 1):",
            "",
            *rows,
            "",
        ]
    if rows := _default():
        text += ["## The default", "", DEFAULT.read_text(encoding="utf-8"), *rows, ""]
    if rows := _plain("laboratory/safety"):
        text += [
            "## Safety",
            "",
            "`python -m benchmarks.studies.laboratory.safety`: runs on small problems, features",
        ]
        text += ["×0.01, ×1 and ×100, wild starts, W = 1 to 1000, the four laws; every run is a line of"]
        text += [
            "laboratory/safety.jsonl. `completed`: left after 100 exact passes without an end; *turns*: the"
        ]
        text += ["table's safeguard turned back at least once.", "", *rows, ""]
    if rows := _plain("laboratory/plan"):
        text += [
            "## Plan against real runs",
            "",
            "`python -m benchmarks.studies.laboratory.plan_check`: logistic regression, 60,000 rows of 50",
            "numbers, to 1 %; two quiet cores, nothing slowed; predicted from a recorded run, real the",
            "median of five runs.",
            "",
            *rows,
            "",
        ]
    write_whole(RESULTS / "laboratory.md", "\n".join(text))
