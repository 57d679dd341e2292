"""What must be true for the paper's order of Fig. 2 to appear: two settings in which it does.

The settings were found by searching, so they show existence and predict nothing.  The table's numbers stand;
where the table is silent (H0, the cautious constant or a floor on the cosine, quorum 1, the data), a
setting says what it takes.  `INDEPENDENT` are the times of another program for the same settings (its own
event loop, dense BFGS, its own draw of the data).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asyncqn.paper.claim_list import CAUTIOUS, H0, LINK, NUMBERS, PROBLEM, QUORUM, START, TARGET, TIMEOUT
from asyncqn.paper.claims import Outcome, outcome
from asyncqn.paper.controls import control_words, without_pairs
from asyncqn.paper.experiment import Context, Experiment, Tables
from asyncqn.paper.figures.fig2_cases import BY_PAIRS, PRINTED, START_WORDS, problem_words
from asyncqn.paper.figures.fig2_drawing import times_figure
from asyncqn.paper.figures.fig2_outcomes import order_outcomes
from asyncqn.paper.figures.times import jobs_of, run_named
from asyncqn.paper.records import summary, where
from asyncqn.paper.settings import NAMES, PAPER


class Setting(NamedTuple):
    """A problem, what of a message's time occupies the master, and as-L-BFGS's open choices."""

    words: str
    problem: str
    serial: float
    choices: dict[str, Any]
    variances: tuple[float, ...]


SETTINGS = {
    "serial link": Setting(
        "a serial link at the master (2 of 10 units), rows alike, λ = 8, H₀ = 0.3 I, ε = 1.2",
        "rows-alike-8",
        2.0,
        {"initial_scale": 0.3, "epsilon": 1.2},
        (1.0, 25.0, 200.0, 900.0),
    ),
    "serial link, H0 by pairs": Setting(
        "a serial link at the master (2 of 10 units), rows alike, λ = 2, H₀ by pairs",
        "rows-alike-2",
        2.0,
        {"epsilon": 1e-4},
        (1.0, 25.0, 200.0, 900.0),
    ),
    "consistent stiff problem": Setting(
        "a consistent stiff problem: λ = 10, 5 weak directions, H₀ = 0.1 I, floor 0.4",
        "five-weak-10",
        0.0,
        {"initial_scale": 0.1, "cosine_floor": 0.4, "epsilon": 1e-4},
        (1.0, 50.0, 200.0, 900.0),
    ),
}
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
RUNS = 12


def choices_of(setting: Setting) -> dict[str, str]:
    """What a setting chooses of all that the paper leaves open."""
    given = setting.choices
    scale = given.get("initial_scale")
    floor = f" and cosine floor {given['cosine_floor']:g}" if "cosine_floor" in given else ""
    return {
        PROBLEM: problem_words(setting.problem),
        H0: BY_PAIRS if scale is None else f"H₀ = {scale:g} I",
        CAUTIOUS: f"cautious constant {given['epsilon']:g}{floor}",
        QUORUM: "quorum 1",
        TIMEOUT: "timeout of computation and messages",
        LINK: f"b = {setting.serial:g}",
        TARGET: "ε = 0.05",
        START: START_WORDS["prior"],
        NUMBERS: PRINTED,
    }


def compute(context: Context) -> Tables:
    """Tables `times`, `controls` and `parameters`."""
    seeds = range(context.seed, context.seed + RUNS)
    times, controls, used = [], [], []
    for name, setting in SETTINGS.items():
        open_choices = {"mb-lbfgs": {"quorum": 1.0}, "as-lbfgs": setting.choices}
        for kind in NAMES:
            given = {**PAPER[kind], **open_choices.get(kind, {})}
            serial = 0.0 if kind == "mb-lbfgs" else setting.serial
            jobs = jobs_of(setting.problem, kind, given, setting.variances, seeds, serial=serial)
            times += [(name, job) for job in jobs]
            found = "the paper's table" + ("; the rest is ours" if kind in open_choices else "")
            used.append({"setting": name, "algorithm": kind, "found by": found, "parameters": str(given)})
        plain = without_pairs({**PAPER["as-lbfgs"], **setting.choices})
        ends = setting.variances[:: len(setting.variances) - 1]
        without = jobs_of(setting.problem, "as-lbfgs", plain, ends, seeds, serial=setting.serial)
        controls += [(name, job) for job in without]
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
        found += order_outcomes(rows, f"order: {setting.words}", choices_of(setting), controls)
        found.append(_agreement(name, tables))
    return found


def _agreement(name: str, tables: Tables) -> Outcome:
    """Means of twelve runs against those of the other program, where both have them."""
    ratios = []
    for kind, times in INDEPENDENT[name].items():
        rows = where(tables["times"], setting=name, algorithm=kind)
        for variance, other in zip(SETTINGS[name].variances, times, strict=True):
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
