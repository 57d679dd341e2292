"""The map: for which problems, overlaps and initial scalings the paper's parameters work at W = 40."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncqn_paper.claim_list import CAUTIOUS, H0, PROBLEM
from asyncqn_paper.claims import Outcome, outcome
from asyncqn_paper.consistency import consistency
from asyncqn_paper.drawing import panels
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.figures.fig2_cases import BY_PAIRS, problem_words
from asyncqn_paper.figures.times import jobs_of, run_labelled
from asyncqn_paper.records import Record, distinct, summary, where
from asyncqn_paper.settings import NAMES, PAPER

ON = (
    "rows-alike-2",
    "rows-alike-8",
    "rows-alike-20",
    "five-directions-20",
    "fifty-directions-8",
    "five-weak-10",
    "linear-gaussian",
)
"""Problems that are consistent with the paper's table, and one that is not, the last."""
BATCHES = ((6, 2), (600, 200))
SCALES: tuple[float | str, ...] = ("pair", 0.3, 0.1, 0.05)
RULES = {"every pair": {}, "floor 0.4": {"cosine_floor": 0.4}, "ε = 10 λ": {"epsilon": 10.0}}
"""Which pairs are admitted; epsilon is in units of the largest eigenvalue λ, and our default of 1e-4 admits
every pair."""
OUTCOMES = ("reached", "too slow", "diverged")
VARIANCE, LIMIT = 200.0, 9000.0


def cell(labels: Record, runs: Sequence[Record]) -> Record:
    """One record of the runs of a cell: shares of those that reached epsilon, were too slow, diverged."""
    shares = {word: len(where(runs, status=word)) / len(runs) for word in OUTCOMES}
    return {**labels, "pairs": _mean(runs, "pairs"), "runs": len(runs), **shares, "time": _mean(runs, "time")}


def _mean(runs: Sequence[Record], name: str) -> float | None:
    mean, _, share = summary(runs, name)
    return mean if share else None


def admitted(rule: str, problem: str) -> dict[str, float]:
    """The parameters of a rule on a problem."""
    open_choices = dict(RULES[rule])
    if "epsilon" in open_choices:
        open_choices["epsilon"] *= round(consistency(problem).largest, 3)
    return open_choices


def compute(context: Context) -> Tables:
    """Tables `cells` (as-L-BFGS) and `rivals` (the other two with the table's numbers)."""
    seeds = range(context.seed, context.seed + (20 if context.full else 3))

    def cells(label: str, tried: list[tuple[Record, dict[str, Any]]]) -> list[Record]:
        jobs = [
            (told, jobs_of(told["problem"], told["algorithm"], of, [VARIANCE], seeds, limit=LIMIT)[0])
            for told, of in tried
        ]
        runs = run_labelled(context, label, jobs)
        size = len(seeds)
        return [cell(told, runs[k * size : (k + 1) * size]) for k, (told, _) in enumerate(tried)]

    langevin = [
        (
            {"problem": problem, "algorithm": "as-lbfgs", "rule": rule, "scale": str(scale), **sizes},
            {**PAPER["as-lbfgs"], **sizes, "initial_scale": scale, **admitted(rule, problem)},
        )
        for problem in ON
        for sizes in ({"batch": batch, "overlap": overlap} for batch, overlap in BATCHES)
        for scale in SCALES
        for rule in RULES
    ]
    rivals = [
        ({"problem": problem, "algorithm": kind}, PAPER[kind])
        for problem in ON
        for kind in ("async-sgd", "mb-lbfgs")
    ]
    return {
        "cells": cells("map of parameters", langevin),
        "rivals": cells("map, the other two", rivals),
        "parameters": [
            {"algorithm": kind, "parameters": str(of), "found by": "the paper's table"}
            for kind, of in PAPER.items()
        ],
    }


def draw(tables: Tables) -> dict[str, Any]:
    """One panel per overlap: share of runs that reach epsilon, with the mean time in the cell."""
    cells, rivals = tables["cells"], tables["rivals"]
    problems = distinct(cells, "problem")
    figure, axes = panels(1, 2, width=4.6, height=4.4, sharey=True)
    for axis, (batch, overlap) in zip(axes[0], BATCHES, strict=True):
        variants = [
            (f"H₀ {'by pairs' if s == 'pair' else f'= {s} I'}, {rule}", {"scale": str(s), "rule": rule})
            for s in SCALES
            for rule in RULES
        ]
        columns = [(name, where(cells, batch=batch, **v)) for name, v in variants]
        if batch == BATCHES[0][0]:
            columns += [
                (f"{NAMES[k]}, the table", where(rivals, algorithm=k)) for k in ("async-sgd", "mb-lbfgs")
            ]
        shares = np.array([[where(rows, problem=s)[0]["reached"] for _, rows in columns] for s in problems])
        axis.imshow(shares, cmap="Greys", vmin=0, vmax=1.3, aspect="auto")
        for (i, j), share in np.ndenumerate(shares):
            row = where(columns[j][1], problem=problems[i])[0]
            word = f"{row['time']:.0f}" if share > 0 else "×" if row["diverged"] > 0.5 else "slow"
            axis.text(
                j, i, word, ha="center", va="center", fontsize=6, color="white" if share > 0.7 else "black"
            )
        titles = [name for name, _ in columns]
        axis.set_xticks(
            range(len(columns)), titles, rotation=75, ha="right", fontsize=7, rotation_mode="anchor"
        )
        axis.set_yticks(range(len(problems)), [problem_words(name) for name in problems], fontsize=7)
        axis.grid(False)
        axis.set_title(f"$N_Ω$ = {batch}, $N_O$ = {overlap}")
    axes[0][0].set_ylabel("problem")
    figure.supxlabel(
        "as-L-BFGS, h = 4e-4, γ = 0.03, β = 500, M = 3, W = 40; shade: share of runs that reach ε = 0.05; "
        "number: mean time (units); ×: diverged",
        fontsize=7,
    )
    return {"map": figure}


def outcomes(tables: Tables) -> list[Outcome]:
    """Whether the table's parameters of as-L-BFGS work, for every problem, H0 and rule for pairs."""
    found = []
    for row in where(tables["cells"], batch=BATCHES[0][0]):
        scale = BY_PAIRS if row["scale"] == "pair" else f"H₀ = {row['scale']} I"
        choices = {PROBLEM: problem_words(row["problem"]), H0: scale, CAUTIOUS: str(row["rule"])}
        told = ", ".join(f"{100 * row[word]:.0f} % {word}" for word in OUTCOMES)
        told += f"; {100 * row['pairs']:.2g} % of its pairs are accepted" if row["pairs"] is not None else ""
        found.append(outcome("table", ", ".join(choices.values()), row["reached"] == 1.0, told, choices))
    return found


EXPERIMENT = Experiment(
    "map",
    "Where the paper's parameters work",
    "The paper does not publish its a_i, its H₀ or the constant of its cautious rule; the map tries them.",
    compute,
    draw,
    outcomes,
    quick="3 runs per cell",
    full="20 runs per cell",
    minutes=(0.9, 6.0),
)
