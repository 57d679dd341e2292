"""What the settings of Fig. 2 say about its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from asyncqn_paper.claim_list import CLAIMS
from asyncqn_paper.claims import Outcome, outcome
from asyncqn_paper.controls import control_words
from asyncqn_paper.experiment import Tables
from asyncqn_paper.figures.fig2_cases import CASES, TUNED_CASES, Case
from asyncqn_paper.figures.times import Curve, curve
from asyncqn_paper.records import Record, where
from asyncqn_paper.settings import NAMES

SLOWER, SIMILAR, RISING, ROBUST = 1.05, 2.0, 1.15, 1.25
"""Slower: by this factor; similar: within it; rising: the last over the first time; robust: at most so much
longer than with workers alike."""


STAYS = 2.0
"""A run stays if its median error from 2 to 3 times its time to epsilon is at most this multiple of it."""
ORDER = ("fig2-sgd", "fig2-alike", "fig2-mb", "fig2-robust", "fig2-best")


def outcomes(tables: Tables) -> list[Outcome]:
    """Five claims and a check for every case, once for the same choices on its axes; whether pairs act."""
    found, seen = [], set()
    for name, case in {**CASES, **TUNED_CASES}.items():
        rows = where(tables["times"], setting=name)
        controls = where(tables["controls"], setting=name)
        of_order = order_outcomes(rows, case.words, case.choices, control_words(rows, controls))
        for one in [*of_order, _stays(tables, name, case)]:
            key = (one.claim, *(case.choices.get(axis) for axis in CLAIMS[one.claim].open))
            if key not in seen:
                seen.add(key)
                found.append(one)
    return [*found, _pairs_act(tables)]


class Staying(NamedTuple):
    """Of the runs that arrive at epsilon: how many, the share that stays, and their median error later."""

    arrived: int
    share: float
    later: float
    """In multiples of epsilon, from 2 to 3 times the time to it."""

    def __str__(self) -> str:
        if not self.arrived:
            return "none arrives"
        return f"{100 * self.share:.0f} % stay (median {self.later:.2g} ε)"


def staying(tables: Tables, name: str, kind: str, control: bool = False) -> Staying:
    """What becomes of one method's runs in a setting."""
    rows = where(tables["staying"], setting=name, algorithm=kind, control=control)
    later = np.array([row["later"] for row in rows if row["later"] is not None])
    if not later.size:
        return Staying(0, np.nan, np.nan)
    return Staying(later.size, float((later <= STAYS).mean()), float(np.median(later)))


def _stays(tables: Tables, name: str, case: Case) -> Outcome:
    """as-L-BFGS in one setting, and its control and the others beside it."""
    mine, without = (staying(tables, name, "as-lbfgs", control) for control in (False, True))
    others = "; ".join(f"{NAMES[k]} {staying(tables, name, k)}" for k in NAMES if k != "as-lbfgs")
    because = f"as-L-BFGS {mine}; with M = 0 {without}; {others}"
    return outcome("stays", case.words, mine.share >= 0.5 if mine.arrived else None, because, case.choices)


def order_outcomes(
    rows: Sequence[Record], words: str, choices: Mapping[str, str], controls: str = ""
) -> list[Outcome]:
    """What one setting says about the five claims of Fig. 2; `controls`: whether curvature pairs acted."""
    curves = {kind: curve(where(rows, algorithm=kind)) for kind in NAMES}
    sgd, mb, langevin = (curves[kind] for kind in NAMES)
    first = "σ_w² = 1: " + _times(curves, 0)
    last = f"σ_w² = {sgd.x[-1]:g}: " + _times(curves, -1)
    asynchronous = _growth({"async-sgd": sgd, "as-lbfgs": langevin})
    told = {
        "fig2-sgd": (_sgd_is_slow(sgd, mb, langevin), first),
        "fig2-alike": (_similar(mb, langevin), first + controls),
        "fig2-mb": (_rises(mb), _growth({"mb-lbfgs": mb})),
        "fig2-robust": (_robust(sgd, langevin), asynchronous + controls),
        "fig2-best": (_best(sgd, mb, langevin), f"{first}; {last}{controls}"),
    }
    return [outcome(claim, words, holds, because, choices) for claim, (holds, because) in told.items()]


def _sgd_is_slow(sgd: Curve, mb: Curve, langevin: Curve) -> bool | None:
    """None where no method arrives, or all are there from the start."""
    rivals = max(mb.mean[0], langevin.mean[0])
    if min(sgd.mean[0], rivals) == np.inf or max(sgd.mean[0], rivals) <= 0:
        return None
    return bool(sgd.mean[0] > SLOWER * rivals)


def _similar(mb: Curve, langevin: Curve) -> bool | None:
    a, b = mb.mean[0], langevin.mean[0]
    if min(a, b) == np.inf or max(a, b) <= 0:
        return None
    return bool(max(a, b) <= SIMILAR * min(a, b))


def _rises(mb: Curve) -> bool | None:
    return None if not 0 < mb.mean[0] < np.inf else bool(mb.mean[-1] > RISING * mb.mean[0])


def _robust(sgd: Curve, langevin: Curve) -> bool | None:
    if not all(0 < c.mean[0] < np.inf for c in (sgd, langevin)):
        return None
    return all(bool(c.mean.max() <= ROBUST * c.mean[0]) for c in (sgd, langevin))


def _best(sgd: Curve, mb: Curve, langevin: Curve) -> bool | None:
    """Before a-SGD everywhere, and before both at the largest spread."""
    rivals = np.minimum(sgd.mean, mb.mean)
    if not np.isfinite(np.minimum(rivals, langevin.mean)).all() or langevin.mean.max() <= 0:
        return None
    return bool((langevin.mean < sgd.mean).all() and langevin.mean[-1] < rivals[-1])


def _times(curves: Mapping[str, Curve], k: int) -> str:
    return ", ".join(f"{NAMES[kind]} {number(c.mean[k])}" for kind, c in curves.items())


def _growth(curves: Mapping[str, Curve]) -> str:
    """The times of a method, from workers alike to workers that differ."""
    words = [
        f"{NAMES[kind]} {', '.join(number(t) for t in c.mean)}" + _missed(c) for kind, c in curves.items()
    ]
    x = next(iter(curves.values())).x
    return f"at σ_w² = {', '.join(f'{v:g}' for v in x)}: {'; '.join(words)}"


def _missed(found: Curve) -> str:
    worst = float(found.share.min())
    return f" (at worst {100 * worst:.0f} % of the runs arrive)" if 0 < worst < 1 else ""


def number(value: float) -> str:
    """A time in words."""
    return f"{value:.0f}" if np.isfinite(value) else "not reached"


def _pairs_act(tables: Tables) -> Outcome:
    """The base case with and without pairs."""
    rows = where(tables["times"], setting="base", algorithm="as-lbfgs")
    with_, without = curve(rows), curve(where(tables["controls"], setting="base"))
    holds = bool((SLOWER * with_.mean < without.mean).all())
    because = f"M = 3: {', '.join(map(number, with_.mean))}; M = 0: {', '.join(map(number, without.mean))}"
    share = control_words(rows, [])
    return outcome("pairs-act", CASES["base"].words, holds, because + share, CASES["base"].choices)
