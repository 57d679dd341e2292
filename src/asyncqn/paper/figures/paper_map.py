"""The map: for which problems, overlaps and initial scalings the paper's parameters work at W = 40."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.paper.claim_list import CAUTIOUS, H0, PROBLEM
from asyncqn.paper.claims import Outcome, outcome
from asyncqn.paper.consistency import consistency
from asyncqn.paper.drawing import panels
from asyncqn.paper.experiment import Context, Experiment, Tables
from asyncqn.paper.figures.fig2_cases import BY_PAIRS, problem_words
from asyncqn.paper.problems import PROBLEMS
from asyncqn.paper.records import Record, distinct, where
from asyncqn.paper.settings import NAMES, PAPER, algorithm, cluster
from asyncqn.tuning.measure import time_to

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


@dataclass(frozen=True)
class Job:
    """One cell: a problem, an algorithm with parameters, some seeds."""

    problem: str
    kind: str
    rule: str
    parameters: tuple[tuple[str, Any], ...]
    seeds: tuple[int, ...]
    epsilon: float = 0.05
    limit: float = 9000.0
    variance: float = 200.0
    workers: int = 40


def measure(job: Job) -> list[Record]:
    """One record: shares of the runs that reached epsilon, were too slow, diverged."""
    potential = PROBLEMS[job.problem].potential()
    method = algorithm(job.kind, dict(job.parameters))
    timing = cluster(job.kind, job.workers, job.variance)
    runs = [
        time_to(potential, method, timing, target=job.epsilon, limit=job.limit, seed=seed)
        for seed in job.seeds
    ]
    given = dict(job.parameters)
    correlation = potential.posterior_correlation()
    return [
        {
            "problem": job.problem,
            "algorithm": job.kind,
            "batch": given["batch"],
            "overlap": given.get("overlap"),
            "scale": str(given.get("initial_scale", "pair")),
            "rule": job.rule,
            "epsilon": given.get("epsilon"),
            "pairs": _mean([run.pairs for run in runs]),
            "runs": len(runs),
            **{word: sum(run.status == word for run in runs) / len(runs) for word in OUTCOMES},
            "time": _mean([run.time for run in runs]),
            "largest correlation": correlation["largest"],
            "multiple correlation": correlation["multiple"],
            "condition": correlation["condition"],
        }
    ]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def admitted(rule: str, problem: str) -> dict[str, float]:
    """The parameters of a rule on a problem."""
    given = dict(RULES[rule])
    if "epsilon" in given:
        given["epsilon"] *= round(consistency(problem).largest, 3)
    return given


def compute(context: Context) -> Tables:
    """Tables `cells` (as-L-BFGS) and `rivals` (the other two with the table's numbers)."""
    seeds = tuple(range(context.seed, context.seed + (20 if context.full else 3)))
    cells = [
        Job(problem, "as-lbfgs", rule, tuple(sorted(given.items())), seeds)
        for problem in ON
        for batch, overlap in BATCHES
        for scale in SCALES
        for rule in RULES
        for open_choices in [{"batch": batch, "overlap": overlap, "initial_scale": scale}]
        for given in [{**PAPER["as-lbfgs"], **open_choices, **admitted(rule, problem)}]
    ]
    rivals = [
        Job(problem, kind, "", tuple(sorted(PAPER[kind].items())), seeds)
        for problem in ON
        for kind in ("async-sgd", "mb-lbfgs")
    ]
    return {
        "cells": context.jobs("map of parameters", measure, cells),
        "rivals": context.jobs("map, the other two", measure, rivals),
        "parameters": [
            {"algorithm": kind, "parameters": str(given), "found by": "the paper's table"}
            for kind, given in PAPER.items()
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
    for cell in where(tables["cells"], batch=BATCHES[0][0]):
        scale = BY_PAIRS if cell["scale"] == "pair" else f"H₀ = {cell['scale']} I"
        choices = {
            PROBLEM: problem_words(cell["problem"]),
            H0: scale,
            CAUTIOUS: str(cell["rule"]),
        }
        told = ", ".join(f"{100 * cell[word]:.0f} % {word}" for word in OUTCOMES)
        told += (
            f"; {100 * cell['pairs']:.2g} % of its pairs are accepted" if cell["pairs"] is not None else ""
        )
        found.append(outcome("table", ", ".join(choices.values()), cell["reached"] == 1.0, told, choices))
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
