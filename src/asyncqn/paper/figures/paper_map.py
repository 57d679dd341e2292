"""The map: for which spectra, overlaps and initial scalings the paper's parameters work at W = 40."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.paper.drawing import panels
from asyncqn.paper.experiment import Claim, Context, Experiment, Tables, verdict
from asyncqn.paper.problems import STANDARD, STIFF, Spectrum
from asyncqn.paper.records import Record, distinct, where
from asyncqn.paper.settings import NAMES, PAPER, algorithm, cluster
from asyncqn.tuning.measure import time_to

SPECTRA = (
    Spectrum(low=8.0, high=8.0),
    Spectrum(low=15.0, high=15.0),
    Spectrum(low=30.0, high=30.0),
    STANDARD,
    Spectrum(weak=0, low=1.0, high=1.05, strong=1, top=30.0),
    STIFF,
    Spectrum(weak=0, low=2.0, high=5.0, strong=3, top=1000.0),
    Spectrum(weak=0, low=25.0, high=120.0, strong=5, top=1000.0),
)
BATCHES = ((6, 2), (60, 20), (600, 200))
SCALES: tuple[float | str, ...] = ("pair", 0.3, 0.1, 0.05)
RULES = {"every pair": {}, "floor 0.4": {"cosine_floor": 0.4}, "ε = 10 λ": {"epsilon": 10.0}}
"""Which pairs are admitted; epsilon is in units of the largest eigenvalue λ, and our default of 1e-4 admits
every pair."""
OUTCOMES = ("reached", "too slow", "diverged")


@dataclass(frozen=True)
class Job:
    """One cell: a problem, an algorithm with parameters, some seeds."""

    spectrum: Spectrum
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
    potential = job.spectrum.potential()
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
            "spectrum": job.spectrum.label,
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


def admitted(rule: str, spectrum: Spectrum) -> dict[str, float]:
    """The parameters of a rule on a spectrum."""
    given = dict(RULES[rule])
    return {**given, "epsilon": given["epsilon"] * spectrum.largest} if "epsilon" in given else given


def compute(context: Context) -> Tables:
    """Tables `cells` (as-L-BFGS) and `rivals` (the other two with the table's numbers)."""
    seeds = tuple(range(context.seed, context.seed + (20 if context.full else 4)))
    cells = [
        Job(spectrum, "as-lbfgs", rule, tuple(sorted(given.items())), seeds)
        for spectrum in SPECTRA
        for batch, overlap in BATCHES
        for scale in SCALES
        for rule in RULES
        for open_choices in [{"batch": batch, "overlap": overlap, "initial_scale": scale}]
        for given in [{**PAPER["as-lbfgs"], **open_choices, **admitted(rule, spectrum)}]
    ]
    rivals = [
        Job(spectrum, kind, "", tuple(sorted(PAPER[kind].items())), seeds)
        for spectrum in SPECTRA
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
    spectra = distinct(cells, "spectrum")
    figure, axes = panels(1, 3, width=3.9, height=4.6, sharey=True)
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
        shares = np.array([[where(rows, spectrum=s)[0]["reached"] for _, rows in columns] for s in spectra])
        axis.imshow(shares, cmap="Greys", vmin=0, vmax=1.3, aspect="auto")
        for (i, j), share in np.ndenumerate(shares):
            row = where(columns[j][1], spectrum=spectra[i])[0]
            word = f"{row['time']:.0f}" if share > 0 else "×" if row["diverged"] > 0.5 else "slow"
            axis.text(
                j, i, word, ha="center", va="center", fontsize=6, color="white" if share > 0.7 else "black"
            )
        titles = [name for name, _ in columns]
        axis.set_xticks(
            range(len(columns)), titles, rotation=75, ha="right", fontsize=7, rotation_mode="anchor"
        )
        axis.set_yticks(range(len(spectra)), spectra, fontsize=7)
        axis.grid(False)
        axis.set_title(f"$N_Ω$ = {batch}, $N_O$ = {overlap}")
    axes[0][0].set_ylabel("eigenvalues of the posterior precision")
    figure.supxlabel(
        "as-L-BFGS, h = 4e-4, γ = 0.03, β = 500, M = 3, W = 40; shade: share of runs that reach ε = 0.05; "
        "number: mean time (units); ×: diverged",
        fontsize=7,
    )
    return {"map": figure}


def claims(tables: Tables) -> list[Claim]:
    """Whether the table's parameters work as printed, and with what they need."""
    cells = where(tables["cells"], batch=6)
    plain = where(cells, scale="pair", rule="every pair")
    good = [r for r in plain if r["reached"] == 1.0]
    mended = {r["spectrum"] for r in cells if r["reached"] == 1.0}
    by_rule = {
        rule: {r["spectrum"] for r in where(cells, rule=rule) if r["reached"] == 1.0 and r["scale"] != "pair"}
        for rule in RULES
    }
    large = {r["spectrum"] for r in where(tables["cells"], batch=600) if r["reached"] == 1.0}
    together = [
        r["spectrum"]
        for r in where(tables["rivals"], algorithm="async-sgd")
        if r["reached"] == 1.0 and r["spectrum"] in mended
    ]
    because = (
        f"as printed, with H₀ by pairs: reaches ε in every run on {len(good)} of {len(plain)} spectra; with "
        f"a fixed H₀ and {', '.join(f'{rule}: on {len(found)}' for rule, found in by_rule.items())}; with "
        f"overlaps of a third of all data: on {len(large)}; together with the table's a-SGD: on "
        f"{len(together)}"
    )
    text = "the table's parameters of as-L-BFGS (h, γ, β, M, N_Ω, N_O) work at W = 40"
    return [
        Claim(text, f"{len(plain)} spectra", verdict(len(good) == len(plain), bool(good or mended)), because)
    ]


EXPERIMENT = Experiment(
    "map",
    "Where the paper's parameters work",
    "The paper does not publish its a_i, its H₀ or the constant of its cautious rule; the map tries them.",
    compute,
    draw,
    claims,
    quick="4 runs per cell",
    full="20 runs per cell",
)
