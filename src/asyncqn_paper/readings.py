"""Estimates and margins in the units of a reader.

A rule compares every estimate with a margin that it has to exceed, so `rules` measures in whatever form
makes larger better: minus |log| of a ratio, 1.2 less a slope, minus log10 of a difference.  A reader wants
the ratio, the slope and the difference themselves, and the margin in the same unit.
"""

from __future__ import annotations

import math
import re

from asyncqn_paper.rules import Claim, Outcome

APART = {
    "fig1": (
        "error or duration apart by #",
        "errors (in the median of the run) and durations, real and simulated, within a factor of #",
    ),
    "fig2-alike": ("times apart by #", ""),
    "law": (
        "worst variance off by #",
        "every variance within a factor of # of that of the law, at the smallest h",
    ),
    "gamma": (
        "E U − U* changes by #",
        "E U − U* with Γ and without within a factor of #",
    ),
}
"""Estimates that are minus |log| of a ratio: what was measured, and the rule where its own words show
logarithms; # is the number."""
SHIFTED = {
    "table": (
        0.9,
        1.0,
        "share that arrives #",
        "share of the runs that arrive above #",
    ),
    "staleness": (1.1, -1.0, "slope in W #", "slope of log bias over log W below #"),
    "cost": (1.2, -1.0, "slope in M d #", "slope of log time over log M d below #"),
    "ergodic": (0.0, -1.0, "slope in N #", "slope of log error over log N below #"),
    "temperature": (
        0.0,
        -1.0,
        "slope in β #",
        "slope of log(E U − U*) over log β below #",
    ),
    "overlap": (
        0.1,
        -1.0,
        "share of rows #",
        "its share of the rows that a worker's gradients read below #",
    ),
}
"""Estimates e that stand for shift + sign e: shift, sign, what was measured, and the rule."""
PLAIN = {
    "fig2-sgd": "a-SGD needs # of their time",
    "fig2-mb": "time at 900 over that at 0 #",
    "fig2-robust": "time at 0 over that at 900 #",
    "fig2-best": "as-L-BFGS's least lead #",
    "pairs": "time without over that with #",
    "fig3-iterations": "iterations rise by #",
    "fig3-time": "least fall in time # of that asked",
    "fig3-variance": "ratio of speedups #",
    "fig4-mb": "lead over mb #",
    "fig4-gain": "over a-SGD #",
    "fig4-rmse": "difference # stars",
    "fig4-fluctuates": "ratio of jitter #",
    "fig5-linear": "speedup #",
    "fig5-unstable": "stable share falls by #",
    "fig5-step": "share of stable runs #",
    "s1": "iterations, W = 1 over 10, #",
    "bias": "slope in h #",
    "title": "successes rise by #",
    "momentum": "share that arrives rises by #",
    "rho": "share of stable runs rises by #",
}
"""What the other estimates are: differences, or ratios where the claim says so."""


def reading(claim: Claim, outcome: Outcome) -> str:
    """Return what was measured, the number and its standard error."""
    value, error = outcome.value, outcome.error
    if claim.id == "momentum-limit":
        return f"largest difference {10.0**-value:.1e}"
    if claim.id in APART:
        ratio = math.exp(-value)
        # The error of a ratio is the ratio times the error of its logarithm, to first order.
        return _filled(APART[claim.id][0], f"×{ratio:.2f}", ratio * error, outcome)
    if claim.id in SHIFTED:
        shift, sign, words, _ = SHIFTED[claim.id]
        return _filled(words, f"{shift + sign * value:.2f}", error, outcome)
    if claim.ratio:
        ratio = math.exp(value)
        return _filled(PLAIN[claim.id], f"×{ratio:.2f}", ratio * error, outcome)
    return _filled(PLAIN[claim.id], f"{value:.2f}", error, outcome)


def _filled(words: str, number: str, error: float, outcome: Outcome) -> str:
    """Return the words with the number; without an error where it was computed and not measured."""
    wide = f"± {error:.2f}" if error >= 0.005 else "± <0.01"
    told = f"{number} {wide}" if outcome.runs else number
    return words.replace("#", told.replace("-", "−"))


def rule(claim: Claim) -> str:
    """Return when the claim holds, in a reader's units."""
    if claim.id == "momentum-limit":
        return (
            f"largest difference of iterates over 200 steps below 1e-{claim.margin:.0f}"
        )
    if claim.id in APART and APART[claim.id][1]:
        return APART[claim.id][1].replace("#", f"{math.exp(-claim.margin):.2f}")
    if claim.id in SHIFTED:
        shift, sign, _, words = SHIFTED[claim.id]
        return words.replace(
            "#", f"{shift + sign * claim.margin:.4g}".replace("-", "−")
        )
    # Long brackets are explained in the caption of the figure.
    return re.sub(r" \([^)]{40,}\)", "", claim.rule)
