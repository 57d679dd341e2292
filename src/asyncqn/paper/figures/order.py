"""What must be true for the paper's order of Fig. 2 to appear: two settings in which it does.

The settings were found by searching, so they show existence and predict nothing.  The table's numbers stand;
where the table is silent (H0, the cautious constant or a floor on the cosine, quorum 1, the data), a
setting says what it takes.  `INDEPENDENT` are the times of another program for the same settings (its own
event loop, dense BFGS, its own draw of the data).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asyncqn.paper.controls import control_words, without_pairs
from asyncqn.paper.drawing import ALGORITHM_LOOKS, band, few_decades, panels
from asyncqn.paper.experiment import Claim, Context, Experiment, Tables, verdict
from asyncqn.paper.figures.fig2 import curve, jobs_of, measure, order_claims
from asyncqn.paper.records import where
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


def compute(context: Context) -> Tables:
    """Tables `times`, `controls` and `parameters`."""
    seeds = range(context.seed, context.seed + RUNS)
    times, controls, used = [], [], []
    for name, setting in SETTINGS.items():
        open_choices = {"mb-lbfgs": {"quorum": 1.0}, "as-lbfgs": setting.choices}
        for kind in NAMES:
            given = {**PAPER[kind], **open_choices.get(kind, {})}
            times += jobs_of(name, setting.problem, kind, given, setting.variances, seeds, setting.serial)
            found = "the paper's table" + ("; the rest is ours" if kind in open_choices else "")
            used.append({"setting": name, "algorithm": kind, "found by": found, "parameters": str(given)})
        plain = without_pairs({**PAPER["as-lbfgs"], **setting.choices})
        ends = setting.variances[:: len(setting.variances) - 1]
        controls += jobs_of(name, setting.problem, "as-lbfgs", plain, ends, seeds, setting.serial)
    return {
        "times": context.jobs("the order of Fig. 2", measure, times),
        "controls": context.jobs("the order of Fig. 2, without pairs", measure, controls),
        "parameters": used,
    }


def draw(tables: Tables) -> dict[str, Any]:
    """One panel per setting."""
    figure, axes = panels(1, len(SETTINGS), width=3.9)
    for axis, (name, setting) in zip(axes[0], SETTINGS.items(), strict=True):
        for kind, title in NAMES.items():
            x, mean, spread, _ = curve(where(tables["times"], setting=name, algorithm=kind))
            band(axis, x, mean, spread, title, ALGORITHM_LOOKS[kind])
        axis.set(title=setting.words.replace(", ", ",\n", 1), yscale="log")
        axis.set_xlabel(r"$\sigma_w^2$ (squared time units)")
        few_decades(axis)
    axes[0][0].set_ylabel(r"time to $\varepsilon$ = 0.05 (time units)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return {"order": figure}


def claims(tables: Tables) -> list[Claim]:
    """The four statements in each setting, and whether an independent program agrees."""
    found = []
    for name, setting in SETTINGS.items():
        rows = where(tables["times"], setting=name)
        controls = where(tables["controls"], setting=name)
        found += order_claims(rows, setting.words, control_words(rows, controls))
        found.append(_agreement(name, tables))
    return found


def _agreement(name: str, tables: Tables) -> Claim:
    ratios = []
    for kind, times in INDEPENDENT[name].items():
        _, mean, *_ = curve(where(tables["times"], setting=name, algorithm=kind))
        ratios += [ours / other for ours, other in zip(mean, times, strict=True) if other is not None]
    low, high = float(np.min(ratios)), float(np.max(ratios))
    because = f"our times are {low:.3f} to {high:.3f} of the other program's"
    word = verdict(low > 0.9 and high < 1.1, low > 0.8 and high < 1.25)
    text = "an independent program gives the same times within 10 % (our own check)"
    return Claim(text, SETTINGS[name].words, word, because)


EXPERIMENT = Experiment(
    "order",
    "Settings in which the paper's order appears",
    "The table's own numbers, with what it leaves open chosen so that the order of Fig. 2 appears. The "
    "settings were found by searching: they show that it can, not that it must.",
    compute,
    draw,
    claims,
    quick=f"{RUNS} runs of each point",
    full=f"{RUNS} runs of each point",
)
