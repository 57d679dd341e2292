"""What must be true for the paper's order of Fig. 2 to appear: two settings in which it does.

The settings were found by searching, so they show existence and predict nothing.  The table's numbers stand;
where the table is silent (H0, the cautious constant or a floor on the cosine, quorum 1, the data), a
setting says what it takes.  `INDEPENDENT` are the times of another program for the same settings (its own
event loop, dense BFGS, its own draw of the data).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn_paper.claim_list import PROBLEM
from asyncqn_paper.claims import Outcome, outcome
from asyncqn_paper.controls import control_words, without_pairs
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.figures.fig2_cases import BY_PAIRS, EVERY_PAIR, SOME_PAIRS, case
from asyncqn_paper.figures.fig2_drawing import times_figure
from asyncqn_paper.figures.fig2_outcomes import order_outcomes
from asyncqn_paper.figures.times import run_named
from asyncqn_paper.records import summary, where

_LINK = "a serial link at the master (2 of 10 units), rows alike"
SETTINGS = {
    "serial link": case(PROBLEM, "rows-alike-8", 0.3, SOME_PAIRS)._replace(
        words=f"{_LINK}, λ = 8, H₀ = 0.3 I, ε = 1.2"
    ),
    "serial link, H0 by pairs": case(PROBLEM, "rows-alike-2", BY_PAIRS, EVERY_PAIR)._replace(
        words=f"{_LINK}, λ = 2, H₀ by pairs"
    ),
    "consistent stiff problem": case(
        PROBLEM, "five-weak-10", 0.1, EVERY_PAIR, serial=0.0, floor=0.4
    )._replace(words="a consistent stiff problem: λ = 10, 5 weak directions, H₀ = 0.1 I, floor 0.4"),
}
VARIANCES = {name: (1.0, 50.0 if "stiff" in name else 25.0, 200.0, 900.0) for name in SETTINGS}
INDEPENDENT: dict[str, dict[str, tuple[int | None, ...]]] = {
    "serial link": {
        "async-sgd": (1179, 1176, 1173, 1171),
        "mb-lbfgs": (715, 894, 1423, 2181),
        "as-lbfgs": (647, 647, 641, 590),
    },
    "serial link, H0 by pairs": {
        "async-sgd": (1164, None, None, 1158),
        "mb-lbfgs": (637, 798, 1282, 1996),
        "as-lbfgs": (421, 421, 412, 376),
    },
    "consistent stiff problem": {
        "async-sgd": (5996, 4993, 3469, 2702),
        "mb-lbfgs": (2084, 2917, 4053, 5963),
        "as-lbfgs": (2701, 2739, 2648, 2634),
    },
}
RUNS, LIMIT = 12, 12_000.0


def compute(context: Context) -> Tables:
    """Tables `times`, `controls` and `parameters`."""
    seeds = range(context.seed, context.seed + RUNS)
    times, controls, used = [], [], []
    for name, setting in SETTINGS.items():
        variances = VARIANCES[name]
        for kind, own in setting.parameters.items():
            times += [(name, job) for job in setting.jobs(kind, own, variances, seeds, LIMIT)]
            found = "the paper's table" + ("" if kind == "async-sgd" else "; the rest is ours")
            used.append({"setting": name, "algorithm": kind, "found by": found, "parameters": str(own)})
        plain = without_pairs(setting.parameters["as-lbfgs"])
        ends = variances[:: len(variances) - 1]
        controls += [(name, job) for job in setting.jobs("as-lbfgs", plain, ends, seeds, LIMIT)]
    return {
        "times": run_named(context, "the order of Fig. 2", times),
        "controls": run_named(context, "the order of Fig. 2, without pairs", controls),
        "parameters": used,
    }


def draw(tables: Tables) -> dict[str, Any]:
    """One panel per setting."""
    return {"order": times_figure(tables["times"], {name: s.words for name, s in SETTINGS.items()})}


def outcomes(tables: Tables) -> list[Outcome]:
    """The claims of Fig. 2 in each setting, and whether an independent program agrees."""
    found = []
    for name, setting in SETTINGS.items():
        rows = where(tables["times"], setting=name)
        controls = control_words(rows, where(tables["controls"], setting=name))
        found += order_outcomes(rows, f"order: {setting.words}", setting.choices, controls)
        found.append(_agreement(name, tables))
    return found


def _agreement(name: str, tables: Tables) -> Outcome:
    """Means of twelve runs against those of the other program, where both have them."""
    ratios = []
    for kind, times in INDEPENDENT[name].items():
        rows = where(tables["times"], setting=name, algorithm=kind)
        for variance, other in zip(VARIANCES[name], times, strict=True):
            if other is not None:
                ratios.append(summary(where(rows, variance=variance), "time")[0] / other)
    low, high = float(np.min(ratios)), float(np.max(ratios))
    because = f"our times are {low:.3f} to {high:.3f} of the other program's"
    return outcome("independent", SETTINGS[name].words, low > 0.9 and high < 1.1, because)


EXPERIMENT = Experiment(
    "order",
    "Settings in which the paper's order appears",
    "The table's own numbers, with what it leaves open chosen so that the order of Fig. 2 appears. The "
    "settings were found by searching: they show that it can, not that it must.",
    compute,
    draw,
    outcomes,
    quick=f"{RUNS} runs of each point",
    full=f"{RUNS} runs of each point",
    minutes=(0.4, 0.4),
)
