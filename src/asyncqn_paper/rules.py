"""The rules of the verdicts: every claim of the paper, its margin, its test, and what counts as a setting.

A *setting* is one combination of values on the open axes of a claim: what the paper leaves to the reader and
what we had to choose.  In every setting a claim `HOLDS`, `FAILS` or is `UNDECIDED`:

- what is compared are runs of the same seed (same data, start and samples); 100 seeds are 5 draws of the
  random problem with 20 seeds each;
- a run that does not arrive counts as the limit of time (it is censored, never dropped);
- the estimate is the mean over the draws of the median over the seeds of the paired difference (of
  logarithms, where the claim is about a ratio);
- its error is the larger of two: the spread of these medians over the square root of their number, and the
  error that the seeds within a draw give;
- the claim holds where the estimate lies above its margin by two errors, fails where it lies as far below,
  and is undecided otherwise, or where in some draw half of the pairs have both runs censored or both at
  the target from the start;
- a claim of several parts holds where all parts do and fails where one does.

The verdict on a claim follows from its three counts.  It is *yes* if the claim holds in at least nine in ten
decided settings, and *no* if it holds in at most one in ten.  Otherwise it *depends on* the axis whose values
best separate the settings in which it holds from the others.  It is *undecided* if no setting is decided, and
*not run* if there is no setting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

HOLDS = "holds"
FAILS = "fails"
UNDECIDED = "undecided"
ENDS = (HOLDS, FAILS, UNDECIDED)
YES = "yes"
NO = "no"
DEPENDS = "depends"
OPEN = "undecided"
NOT_RUN = "not run"
WORDS = (YES, NO, DEPENDS, OPEN, NOT_RUN)
MOST = 0.9
FEWEST = 0.1
# Two standard errors are a test at about 5 %, applied in each setting by itself.
ERRORS = 2.0


class Unit(NamedTuple):
    """The unit of a reader: an estimate e is shown as shift + sign e, or as the exponential of that.

    A rule compares every estimate with a margin that it has to exceed, so rules measure in whatever
    form makes larger better.  A reader wants the ratio, the slope and the difference themselves.
    """

    shift: float = 0.0
    sign: float = 1.0
    ratio: bool = False
    """Whether estimates are logarithms, of a ratio."""

    def of(self, value: float) -> float:
        """Return an estimate in this unit."""
        number = self.shift + self.sign * value
        return math.exp(number) if self.ratio else number


PLAIN = Unit()
RATIO = Unit(ratio=True)
APART = Unit(sign=-1.0, ratio=True)
"""For minus |log| of a ratio."""


class Claim(NamedTuple):
    """A statement of the paper."""

    id: str
    row: str
    """The row of the first table that it belongs to."""
    text: str
    where: str
    rule: str
    """When it holds, in words; # stands for the margin in the unit of a reader."""
    margin: float
    measured: str = ""
    """What was measured, in words; # stands for the number."""
    unit: Unit = PLAIN
    parts: tuple[str, ...] = ()
    """For a claim that is made of others: their ids."""

    def shown_rule(self) -> str:
        """Return when the claim holds, in the units of a reader."""
        margin = f"{self.unit.of(self.margin):.3g}".replace("-", "−")
        return self.rule.replace("#", margin)

    def reading(self, outcome: Outcome) -> str:
        """Return what was measured, the number and its standard error."""
        number = self.unit.of(outcome.value)
        if self.id == "momentum-limit":
            return self.measured.replace("#", f"{10.0**-number:.1e}")
        # The error of a ratio is the ratio times the error of its logarithm, to first order.
        error = outcome.error * (number if self.unit.ratio else 1.0)
        sign = "×" if self.unit.ratio else ""
        words = f"{sign}{number:.2f}".replace("-", "−")
        if outcome.runs:
            # A number that was computed and not measured has no error.
            words += f" ± {error:.2f}" if error >= 0.005 else " ± <0.01"
        return self.measured.replace("#", words)


class Outcome(NamedTuple):
    """The outcome of one claim in one setting."""

    claim: str
    choices: Mapping[str, str]
    """The setting: a value by axis."""
    end: str
    value: float = math.nan
    """The estimate, in the unit of the margin."""
    error: float = math.nan
    runs: int = 0
    because: str = ""
    """Why it is undecided where no number says it."""


class Verdict(NamedTuple):
    """The word, the counts that hold, fail and are undecided, and the axis that separates best."""

    word: str
    counts: tuple[int, int, int]
    axis: str = ""
    holds_at: tuple[str, ...] = ()
    """The values of that axis at which most decided settings hold."""


class Estimate(NamedTuple):
    """A number, its standard error, and the runs behind it."""

    value: float
    error: float
    runs: int


def estimate(
    differences: Sequence[float] | Numbers, draws: Sequence[int] | None = None
) -> Estimate:
    """Return the mean over the draws of the median over the seeds, with its error."""
    values = np.asarray(differences, float)
    groups = np.zeros(values.size, int) if draws is None else np.asarray(draws)
    medians = []
    within = []
    for draw in dict.fromkeys(groups.tolist()):
        mine = values[groups == draw]
        medians.append(float(np.median(mine)))
        # sqrt(pi / 2): the error of a median over that of a mean, for normal values.
        spread = float(mine.std(ddof=1)) if mine.size > 1 else math.inf
        within.append(math.sqrt(math.pi / 2.0) * spread / math.sqrt(mine.size))
    count = len(medians)
    # The larger of the two errors is used: five draws alone may agree by chance, and seeds alone do not see
    # that problems differ.
    inside = math.sqrt(sum(error**2 for error in within)) / count
    between = float(np.std(medians, ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    return Estimate(float(np.mean(medians)), max(inside, between), values.size)


def decide(found: Estimate, margin: float) -> str:
    """Return whether the estimate lies above or below the margin by two errors."""
    if not (math.isfinite(found.value) and math.isfinite(found.error)):
        return UNDECIDED
    if found.value - ERRORS * found.error > margin:
        return HOLDS
    return FAILS if found.value + ERRORS * found.error < margin else UNDECIDED


def above(claim: str, choices: Mapping[str, str], found: Estimate) -> Outcome:
    """Return the outcome of a claim that an estimate exceeds the claim's margin."""
    return Outcome(claim, choices, decide(found, CLAIMS[claim].margin), *found)


def times_apart(
    slow: Sequence[float | None],
    quick: Sequence[float | None],
    draws: Sequence[int],
    limit: float,
) -> Estimate | str:
    """Estimate log(slow / quick) of paired times to a target, or return why there is no estimate.

    None stands for a run that does not arrive.  Times below 1 count as 1: the run starts at the target.
    """
    pairs = [
        tuple(limit if t is None or t > limit else max(t, 1.0) for t in pair)
        for pair in zip(slow, quick, strict=True)
    ]
    groups = np.asarray(draws)
    for word, edge in (("neither arrives", limit), ("both start there", 1.0)):
        tied = np.array([pair == (edge, edge) for pair in pairs])
        if any(tied[groups == draw].mean() >= 0.5 for draw in set(groups.tolist())):
            return word
    return estimate([math.log(a / b) for a, b in pairs], draws)


def all_of(claim: str, choices: Mapping[str, str], parts: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a claim that is made of others; its numbers are those of the part that decides
    it."""
    ends = [part.end for part in parts]
    end = (
        FAILS
        if FAILS in ends
        else HOLDS
        if ends and set(ends) == {HOLDS}
        else UNDECIDED
    )
    if not parts:
        return Outcome(claim, choices, end)
    # The part that lies lowest against its own margin.
    told = min(
        (p for p in parts if p.end == end),
        key=lambda p: p.value - CLAIMS[p.claim].margin,
    )
    return told._replace(claim=claim, choices=choices, end=end)


def verdict_on(outcomes: Sequence[Outcome]) -> Verdict:
    """Return the verdict on a claim from its outcomes in all settings, as the module defines it."""
    counted = Counter(found.end for found in outcomes)
    counts = (counted[HOLDS], counted[FAILS], counted[UNDECIDED])
    decided = counts[0] + counts[1]
    if not decided:
        return Verdict(OPEN if outcomes else NOT_RUN, counts)
    if counts[0] >= MOST * decided:
        return Verdict(YES, counts)
    if counts[0] <= FEWEST * decided:
        return Verdict(NO, counts)
    axis, holds_at = separating([found for found in outcomes if found.end != UNDECIDED])
    return Verdict(DEPENDS, counts, axis, holds_at)


def separating(decided: Sequence[Outcome]) -> tuple[str, tuple[str, ...]]:
    """Return the axis whose values predict most outcomes, and its values at which most settings hold."""
    best: tuple[float, int, str, tuple[str, ...]] = (-1.0, 0, "", ())
    for axis in dict.fromkeys(name for found in decided for name in found.choices):
        ends: dict[str, Counter[str]] = {}
        for found in decided:
            ends.setdefault(found.choices.get(axis, ""), Counter())[found.end] += 1
        # An axis with a single value among the decided settings separates nothing.
        if len(ends) < 2:
            continue
        right = sum(max(count.values()) for count in ends.values()) / len(decided)
        good = tuple(
            value for value, count in ends.items() if count[HOLDS] > count[FAILS]
        )
        # Of axes that predict equally well, the one with fewer values explains more.
        best = max(best, (right, -len(ends), axis, good), key=lambda one: one[:2])
    return best[2], best[3]


def _log(factor: float) -> float:
    return math.log(factor)


_LIST = (
    # Fig. 1
    Claim("fig1", "Fig. 1", "the simulator reflects a real run, fluctuations included", "Fig. 1",
          "errors (in the median of the run) and durations, real and simulated, within a factor of #", -0.25,
          "error or duration apart by #", APART),
    # Fig. 2
    Claim("fig2-sgd", "Fig. 2", "with workers alike, a-SGD takes longer than both quasi-Newton methods",
          "Fig. 2", "time ratio to each of the others at σ_w² = 0 above #", _log(1.05),
          "a-SGD needs # of their time", RATIO),
    Claim("fig2-alike", "Fig. 2", "with workers alike, as-L-BFGS and mb-L-BFGS take similar times", "Fig. 2",
          "times at σ_w² = 0 within a factor of #", -_log(1.5), "times apart by #", APART),
    Claim("fig2-mb", "Fig. 2", "mb-L-BFGS gets slower as σ_w² grows", "Fig. 2",
          "time at σ_w² = 900 over that at 0 above #", _log(1.15), "time at 900 over that at 0 #", RATIO),
    Claim("fig2-robust", "Fig. 2", "both asynchronous methods are robust against σ_w²", "Fig. 2",
          "time at σ_w² = 0 over that at 900 above 1/1.25, for both", -_log(1.25),
          "time at 0 over that at 900 #", RATIO),
    Claim("fig2-best", "Fig. 2", "as-L-BFGS beats a-SGD at every σ_w², and mb-L-BFGS from 200 on", "Fig. 2",
          "time ratio above # at each of these σ_w²", _log(1.05), "as-L-BFGS's least lead #", RATIO),
    Claim("fig2", "Fig. 2", "a-SGD slow, mb-L-BFGS slowed by σ_w², both asynchronous robust, as-L-BFGS best",
          "Fig. 2", "all of its parts", 0.0, parts=("fig2-sgd", "fig2-mb", "fig2-robust", "fig2-best")),
    Claim("table", "Fig. 2", "the table's parameters of as-L-BFGS work at W = 40", "Table S1",
          "share of the runs that arrive above #", 0.0, "share that arrives #", Unit(0.9)),
    Claim("pairs", "Fig. 2", "curvature pairs make as-L-BFGS faster (M = 3 against M = 0)", "§ 5",
          "time ratio of M = 0 to M = 3 at σ_w² = 200 above #", _log(1.05),
          "time without over that with #", RATIO),
    # Fig. 3
    Claim("fig3-iterations", "Fig. 3", "more workers need more iterations", "Fig. 3",
          "iterations at the largest W over those at W = 1 above #", _log(1.1), "iterations rise by #", RATIO),
    Claim("fig3-time", "Fig. 3", "the time to ε falls with W", "Fig. 3",
          "from each W to the next the time ratio is above 1/1.05, from W = 1 to the largest above "
          "2", 0.0, "least fall in time # of that asked", RATIO),
    Claim("fig3", "Fig. 3", "iterations rise with W, time falls gracefully", "Fig. 3", "both parts", 0.0,
          parts=("fig3-iterations", "fig3-time")),
    Claim("fig3-variance", "Fig. 3", "the speedup is more prominent for smaller σ_w²", "Fig. 3",
          "speedup from W = 1 to the largest at σ_w² = 0 over that at 900 above #", 0.0,
          "ratio of speedups #", RATIO),
    # Fig. 4
    Claim("fig4-mb", "Fig. 4", "as-L-BFGS is clearly faster than mb-L-BFGS", "Fig. 4",
          "time of mb-L-BFGS over that of as-L-BFGS to the RMSE at which the slower of them ends above #",
          _log(1.2), "lead over mb #", RATIO),
    Claim("fig4-gain", "Fig. 4", "as-L-BFGS gains slightly on a-SGD", "Fig. 4",
          "time of a-SGD over that of as-L-BFGS to the RMSE at which the slower of them ends above #",
          _log(1.02), "over a-SGD #", RATIO),
    Claim("fig4", "Fig. 4", "as-L-BFGS is clearly faster than mb-L-BFGS and slightly faster than a-SGD",
          "Fig. 4", "both parts", 0.0, parts=("fig4-mb", "fig4-gain")),
    Claim("fig4-rmse", "Fig. 4", "mb-L-BFGS ends with a poorer RMSE than both", "Fig. 4",
          "its last RMSE less each of the others' above # stars", 0.01, "difference # stars"),
    Claim("fig4-fluctuates", "Fig. 4", "as-L-BFGS fluctuates more than a-SGD", "Fig. 4",
          "jitter of the gradient norm around its trend in the second half, ratio above #",
          _log(1.1), "ratio of jitter #", RATIO),
    # Fig. 5
    Claim("fig5-linear", "Fig. 5", "speedup in time is near linear up to W = 10", "Fig. 5",
          "time at W = 1 over time at W = 10 to the RMSE at which the slower ends above #",
          _log(8.0), "speedup #", RATIO),
    Claim("fig5-unstable", "Fig. 5", "W = 20 is unstable with the parameters that serve W = 10", "Fig. 5",
          "share of stable runs at W = 10 less that at W = 20 above #", 0.5, "stable share falls by #"),
    Claim("fig5", "Fig. 5", "near-linear speedup up to W = 10, unstable at W = 20", "Fig. 5", "both parts",
          0.0, parts=("fig5-linear", "fig5-unstable")),
    Claim("fig5-step", "Fig. 5", "a smaller step cures W = 20", "Fig. 5",
          "share of stable runs at W = 20 with half the step h (h'/4, γ'/2) above #", 0.9,
          "share of stable runs #"),
    # Fig. S1
    Claim("s1", "Fig. S1", "speedup in iterations is linear: W = 10 needs no more iterations than W = 1",
          "Fig. S1", "iterations at W = 1 over those at W = 10, to the same RMSE, above 1/1.25",
          -_log(1.25), "iterations, W = 1 over 10, #", RATIO),
    # Theory
    Claim("law", "theory", "the stationary law of as-L-BFGS is exp(−βU(θ)), up to O(max(1, l) h)", "Prop. 1",
          "every variance within a factor of # of that of the law, at the smallest h", -0.1,
          "worst variance off by #", APART),
    Claim("bias", "theory", "the bias is O(h) as h → 0", "Thm. 1",
          "slope of log bias over log h above #", 0.9, "slope in h #"),
    Claim("ergodic", "theory", "the ergodic error falls as 1/(N h)", "Thm. 1",
          "slope of log error over log N below #", 0.9, "slope in N #", Unit(sign=-1.0)),
    Claim("temperature", "theory", "the error of the temperature is O(1/β)", "Thm. 1",
          "slope of log(E U − U*) over log β below #", 0.9, "slope in β #", Unit(sign=-1.0)),
    Claim("staleness", "theory", "staleness multiplies the bias by at most l_max", "Thm. 1",
          "slope of log bias over log W below #", 0.0, "slope in W #", Unit(1.1, -1.0)),
    Claim("theory", "theory", "the bound O(1/(N h) + max(1, l_max) h + 1/β) on the ergodic error", "Thm. 1",
          "all of its parts", 0.0, parts=("ergodic", "bias", "staleness", "temperature")),
    Claim("gamma", "theory", "the correction Γ is negligible", "§ 4",
          "E U − U* with Γ and without within a factor of #", -0.05, "E U − U* changes by #", APART),
    Claim("momentum-limit", "theory", "with β = ∞, l = 0, H = I it coincides with SGD with momentum", "§ 3",
          "largest difference of iterates over 200 steps below 1e-#", 9.0, "largest difference #"),
    Claim("cost", "theory", "a step costs O(M d)", "§ 3",
          "slope of log time over log M d below #", 0.0, "slope in M d #", Unit(1.2, -1.0)),
    Claim("momentum", "theory", "momentum repairs instabilities of asynchronous updates", "§ 3",
          "share of runs that arrive at equal drift, with momentum less without, above #", 0.05,
          "share that arrives rises by #"),
    Claim("rho", "theory", "H + ρI in the place of H is numerically more stable", "§ 5",
          "share of stable runs at equal drift, with ρ = 3 less without, above #", 0.05,
          "share of stable runs rises by #"),
    Claim("overlap", "theory", "the extra gradient on the overlap costs little", "§ 3",
          "its share of the rows that a worker's gradients read below #", 0.0,
          "share of rows #", Unit(0.1, -1.0)),
    # Title
    Claim("title", "title", "noise helps to find better minima", "title, § 4",
          "share of starts that end in the best minimum, with noise less without, above #", 0.05,
          "successes rise by #"),
)  # fmt: skip

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in _LIST}
ROWS = ("Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5", "Fig. S1", "theory", "title")
MAIN = dict(
    zip(
        ROWS,
        ("fig1", "fig2", "fig3", "fig4", "fig5", "s1", "theory", "title"),
        strict=True,
    )
)
"""The claim that stands for each row of the first table."""
