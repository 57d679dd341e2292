"""From the tables of `tempering` to intervals, verdicts and the figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncqn_paper.claims import FAILS, HOLDS, Outcome
from asyncqn_paper.drawing import STYLES, panels
from asyncqn_paper.experiment import Tables
from asyncqn_paper.records import Record, distinct, where

NAMES = {"sgld": "SGLD", "as-lbfgs": "as-L-BFGS"}
WORDS = {"mixture": "mixture of 8 clusters", "phase-retrieval": "phase retrieval, 40 of 20"}
ARMS = ("none", "constant", "annealed", "restarts")
_Z = 1.959963984540054


def wilson(successes: int, starts: int) -> tuple[float, float]:
    """The 95 % interval of Wilson (1927) for a binomial share."""
    share, z2 = successes / starts, _Z * _Z
    middle = (share + z2 / (2 * starts)) / (1 + z2 / starts)
    half = _Z / (1 + z2 / starts) * math.sqrt(share * (1 - share) / starts + z2 / (4 * starts * starts))
    return max(0.0, middle - half), min(1.0, middle + half)


def sign_test(wins: int, losses: int) -> float:
    """The two-sided probability that so uneven wins and losses come from a fair coin."""
    n = wins + losses
    tail = sum(math.comb(n, i) for i in range(min(wins, losses) + 1)) / 2.0**n
    return min(1.0, 2.0 * tail)


def score(rows: Sequence[Record]) -> tuple[int, float]:
    """What tuning maximises: successes, then minus the mean log of the excess (1e6 for failed runs)."""
    excess = [1e6 if r["excess"] is None else max(r["excess"], 1e-3) for r in rows]
    return sum(bool(r["success"]) for r in rows), -float(np.mean(np.log(excess)))


def compare(first: Sequence[Record], second: Sequence[Record]) -> tuple[int, int, float]:
    """Starts on which only the first arm succeeded, only the second, and the sign test."""
    other = {r["start"]: bool(r["success"]) for r in second}
    wins = sum(bool(r["success"]) and not other[r["start"]] for r in first)
    losses = sum(not r["success"] and other[r["start"]] for r in first)
    return wins, losses, sign_test(wins, losses)


def draw(tables: Tables) -> dict[str, Any]:
    """Success against beta, a row for each problem, a column for each method; then the arms."""
    runs = tables["runs"]
    problems = distinct(runs, "problem")
    figure, axes = panels(len(problems), 2, width=4.4, height=3.0, sharey=True)
    for problem, line in zip(problems, axes, strict=True):
        for (method, name), axis in zip(NAMES.items(), line, strict=True):
            rows = where(runs, problem=problem, method=method)
            axis.set(title=f"{name}, {WORDS[problem]}", xscale="log", ylim=(-0.03, 1.03))
            for workers, look in zip(distinct(rows, "workers"), STYLES, strict=False):
                _curve(axis, where(rows, workers=workers), f"W = {workers}", look)
            exact = where(runs, problem=problem, method="block-lbfgs", arm="restarts")
            dashed = {"color": "black", "linewidth": 1, "linestyle": (0, (6, 2))}
            axis.axhline(_share(exact), label="Block L-BFGS, restarts", **dashed)
    for axis in axes[-1]:
        axis.set_xlabel("inverse temperature β; annealed; restarts at β = ∞")
    for axis in axes[:, 0]:
        axis.set_ylabel("share of successful starts")
    axes[-1][-1].legend(loc="upper left")
    return {"tempering": figure}


def _share(rows: Sequence[Record]) -> float:
    return sum(bool(r["success"]) for r in rows) / len(rows)


def _curve(axis: Any, rows: Sequence[Record], label: str, look: dict[str, Any]) -> None:
    """Constant beta as a line, the other arms as single marks to its right, all with their intervals."""
    constant = where(rows, arm="constant")
    betas = sorted(distinct(constant, "beta"))
    shift = 1.0 if label == "W = 1" else 1.12
    points = [(beta, where(constant, beta=beta)) for beta in betas]
    points = [(beta * shift, _one_setting(group)) for beta, group in points]
    _marks(axis, points, {**look, "label": label})
    places = {"none": (1.5, look["marker"]), "annealed": (3.5, "s"), "restarts": (8.0, "P")}
    for arm, (place, marker) in places.items():
        mark = {**look, "linestyle": "none", "marker": marker}
        hollow = {"markerfacecolor": "white"} if arm == "annealed" else {}
        _marks(axis, [(place * shift, where(rows, arm=arm, best=True))], {**mark, **hollow})
    axis.set_xticks([*betas, 1.5, 3.5, 8.0], [*(f"{b:g}" for b in betas), "∞", "ann.", "rest."])
    axis.minorticks_off()


def _one_setting(rows: Sequence[Record]) -> list[Record]:
    """One run per start: the curve has one setting for every beta."""
    return list({r["start"]: r for r in rows}.values())


def _marks(axis: Any, points: Sequence[tuple[float, Sequence[Record]]], look: dict[str, Any]) -> None:
    x = [place for place, _ in points]
    shares = np.array([_share(rows) for _, rows in points])
    ends = np.array([wilson(sum(bool(r["success"]) for r in rows), len(rows)) for _, rows in points])
    spread = np.maximum(np.abs(ends.T - shares), 0.0)
    axis.errorbar(x, shares, yerr=spread, capsize=2, elinewidth=0.8, **look)


def outcomes(tables: Tables) -> list[Outcome]:
    """Constant noise, annealing and restarts against no noise, and all against restarted Block L-BFGS."""
    found = []
    for problem in distinct(tables["runs"], "problem"):
        runs = where(tables["runs"], problem=problem, best=True)
        exact = where(runs, method="block-lbfgs", arm="restarts")
        for method, name in NAMES.items():
            for workers in distinct(where(runs, method=method), "workers"):
                mine = where(runs, method=method, workers=workers)
                arms = {arm: where(mine, arm=arm) for arm in ARMS}
                wins, losses, p = compare(arms["constant"], arms["none"])
                shares = ", ".join(f"{a} {_share(rows):.2f}" for a, rows in arms.items())
                found.append(
                    Outcome(
                        f"{name} finds better minima with constant noise than without",
                        f"{WORDS[problem]}, W = {workers}, {len(exact)} starts",
                        FAILS if wins <= losses else HOLDS if p < 0.05 else "holds partly",
                        f"{shares}, Block L-BFGS restarts {_share(exact):.2f}; with noise against without: "
                        f"{wins} starts won, {losses} lost (sign test p = {p:.2g})",
                    )
                )
    return found
