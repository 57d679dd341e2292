"""The rules: every claim of the paper, its margin, its test, and what the words of the page mean.

A *setting* is one combination of what the paper leaves open.  It is *plausible* if it is consistent with
everything that the paper prints: its table of parameters arrives there, its assumptions are met.  Any other
setting is grey: it is drawn, and it is in no count.  In a plausible setting a claim holds, fails or is
undecided:

- runs of the same seed are compared (same data, start and samples); a run that does not arrive counts as
  the limit of time;
- the estimate is the mean over the draws of the problem of the median over the seeds of what is compared
  (differences of logarithms where a claim is about a ratio), its error the larger of the spread between
  draws and the spread within them;
- a statement about a curve is one test, seed by seed, and not one for each of its points: the trend is the
  slope of the logarithm over the logarithm of W (least squares), a lead the mean of the logarithms' difference;
- the claim holds where the estimate lies above its margin by two errors, fails where it lies as far below,
  and is undecided otherwise;
- a claim of several parts holds where all parts do and fails where one does.

Each figure is drawn in one *stated setting*.  A rule finds it on tuning seeds: of the plausible settings the
one in which the weakest part of the claim is farthest above its margin, in errors (`strongest`).  It is then
measured on fresh seeds, and the word of the figure is

- *reproduced* if it holds there and in at least nine in ten decided plausible settings, which are at least
  half of all;
- *reproduced where ...* if it holds there;
- *not reproduced: ...* if a part fails there and the claim holds in no plausible setting;
- *undecided* in all other cases.

Claims without a stated setting, as those of the theory, get these words from their plausible settings alone.

Every claim has a `truth`: the least effect with which a reader would say what the paper says.  The *power* of
its test is the probability that a claim which is true to that extent passes.  `python -m asyncqn_paper.power`
computes it from the errors of the published runs; it has to be 0.8.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

HOLDS = "holds"
FAILS = "fails"
UNDECIDED = "undecided"
GREY = "not plausible"
ENDS = (HOLDS, FAILS, UNDECIDED, GREY)
REPRODUCED = "reproduced"
WHERE = "reproduced where"
NOT = "not reproduced"
NOT_RUN = "not run"
MOST = 0.9
"""Share of the decided plausible settings that a claim without a condition needs."""
ERRORS = 2.0
"""Standard errors on either side of a margin: a one-sided test at about 2.5 %."""
POWER = 0.8


class Unit(NamedTuple):
    """The unit of a reader: an estimate e is shown as sign e, or as a function of that.

    Rules measure in whatever form makes larger better; a reader wants the ratio, the slope or the
    difference itself.
    """

    sign: float = 1.0
    form: str = ""
    """"ratio" for logarithms of ratios, "square" for squares."""

    def of(self, value: float) -> float:
        """Return an estimate in this unit."""
        number = self.sign * value
        if self.form == "ratio":
            return math.exp(number)
        return math.sqrt(max(0.0, number)) if self.form == "square" else number

    def back(self, number: float) -> float:
        """Return the estimate that is shown as this number."""
        if self.form == "ratio":
            number = math.log(number)
        elif self.form == "square":
            number = number**2
        return self.sign * number

    def error(self, value: float, error: float) -> float:
        """Return a standard error in this unit, to first order."""
        if self.form == "ratio":
            return error * self.of(value)
        if self.form == "square":
            return abs(self.of(value - error) - self.of(value + error)) / 2.0
        return error


UNITS = {
    "plain": Unit(),
    "fall": Unit(sign=-1.0),
    "ratio": Unit(form="ratio"),
    "apart": Unit(sign=-1.0, form="ratio"),
    "square": Unit(sign=-1.0, form="square"),
}
"""By their names in claims.toml: "fall" for what has to be small, "apart" for minus |log| of a ratio, "square" for
minus a square."""


class Claim(NamedTuple):
    """A statement of the paper."""

    id: str
    row: str
    """The figure that it belongs to."""
    text: str
    where: str
    rule: str
    """When it holds, in words; # stands for the margin in the unit of a reader."""
    margin: float
    truth: float
    """The least effect with which a reader would say so, in the unit of the margin."""
    measured: str = ""
    """What was measured, in words; # stands for the number."""
    unit: Unit = UNITS["plain"]
    parts: tuple[str, ...] = ()
    """For a claim that is made of others: their ids."""

    def shown_rule(self) -> str:
        """Return when the claim holds, in the units of a reader."""
        margin = f"{self.unit.of(self.margin):.3g}".replace("-", "−")
        return self.rule.replace("#", margin)

    def reading(self, outcome: Verdict) -> str:
        """Return what was measured, the number and its standard error."""
        if self.id == "momentum-limit":
            return self.measured.replace("#", f"{10.0**-outcome.value:.1e}")
        number = self.unit.of(outcome.value)
        error = self.unit.error(outcome.value, outcome.error)
        sign = "×" if self.unit.form == "ratio" else ""
        words = f"{sign}{number:.2f}".replace("-", "−")
        if outcome.runs:
            # A number that was computed and not measured has no error.
            words += f" ± {error:.2f}" if error >= 0.005 else " ± <0.01"
        return self.measured.replace("#", words)


class Verdict(NamedTuple):
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
    """Why it is undecided, or which part of the claim decides."""

    @property
    def distance(self) -> float:
        """Return by how many errors the estimate lies above its margin; minus infinity without one."""
        if not math.isfinite(self.value) or not math.isfinite(self.error):
            return -math.inf
        return (self.value - CLAIMS[self.claim].margin) / max(self.error, 1e-9)


class Word(NamedTuple):
    """The word on a claim, what belongs to it, and the numbers of settings that hold, fail, are undecided."""

    word: str
    where: str = ""
    counts: tuple[int, int, int] = (0, 0, 0)

    def __str__(self) -> str:
        if not self.where:
            return f"**{self.word}**"
        stop = ":" if self.word == NOT else ""
        return f"**{self.word}{stop}** {self.where}"


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


def share_of(values: Sequence[float]) -> Estimate:
    """Return the mean of numbers with its error, which is positive even for a share of exactly 0 or 1."""
    count = len(values)
    # Ten successes of ten do not prove a share of 1: the spread is at least that of half a run.
    spread = float(np.std(values, ddof=1)) if count > 1 else math.inf
    error = max(spread, 0.5 / math.sqrt(count)) / math.sqrt(count)
    return Estimate(float(np.mean(values)), error, count)


def decide(number: Estimate, margin: float) -> str:
    """Return whether the estimate lies above or below the margin by two errors."""
    if not (math.isfinite(number.value) and math.isfinite(number.error)):
        return UNDECIDED
    wide = ERRORS * number.error
    if number.value - wide > margin:
        return HOLDS
    return FAILS if number.value + wide < margin else UNDECIDED


def above(claim: str, choices: Mapping[str, str], value: Estimate | str) -> Verdict:
    """Return the outcome of a claim that an estimate exceeds its margin; a text says why there is none."""
    if isinstance(value, str):
        return Verdict(claim, choices, UNDECIDED, because=value)
    return Verdict(claim, choices, decide(value, CLAIMS[claim].margin), *value)


def not_plausible(
    claim: str, choices: Mapping[str, str], because: str
) -> list[Verdict]:
    """Return the outcomes of a claim's parts and of the claim where its setting is not plausible."""
    names = (*CLAIMS[claim].parts, claim)
    return [Verdict(name, choices, GREY, because=because) for name in names]


def times_apart(
    slow: Sequence[float | None],
    quick: Sequence[float | None],
    draws: Sequence[int],
    limit: float,
) -> Estimate | str:
    """Estimate log(slow / quick) of paired times to a target, or return why there is no estimate.

    None stands for a run that does not arrive.  Times below 1 count as 1: the run starts at the target.
    """
    pairs = list(zip(_within(slow, limit), _within(quick, limit), strict=True))
    groups = np.asarray(draws)
    for word, edge in (("neither arrives", limit), ("both start there", 1.0)):
        tied = np.array([pair == (edge, edge) for pair in pairs])
        if any(tied[groups == draw].mean() >= 0.5 for draw in set(groups.tolist())):
            return word
    return estimate([math.log(a / b) for a, b in pairs], draws)


def curves_apart(
    slow: Sequence[Sequence[float | None]],
    quick: Sequence[Sequence[float | None]],
    draws: Sequence[int],
    limit: float,
) -> Estimate:
    """Estimate the mean of log(slow / quick) along two curves, one sequence of times per point of the axis."""
    late = np.array([_within(times, limit) for times in slow])
    early = np.array([_within(times, limit) for times in quick])
    return estimate(np.log(late / early).mean(axis=0), draws)


def _within(times: Sequence[float | None], limit: float) -> list[float]:
    """Return the times between 1 and the limit, which stands for a run that does not arrive."""
    return [limit if t is None else min(max(t, 1.0), limit) for t in times]


def slopes(x: Sequence[float], y: npt.ArrayLike) -> Numbers:
    """Return the least-squares slope of log y over log x for every line of `y`."""
    lx = np.log(np.asarray(x, float))
    lx = lx - lx.mean()
    ly = np.log(np.atleast_2d(np.asarray(y, float)))
    return np.asarray(ly @ lx / (lx @ lx))


def trend(
    x: Sequence[float], y: npt.ArrayLike, draws: Sequence[int] | None = None
) -> Estimate:
    """Return the slope of log y over log x, one curve per seed, as `estimate` of the slopes."""
    return estimate(slopes(x, y), draws)


def all_of(claim: str, choices: Mapping[str, str], parts: Sequence[Verdict]) -> Verdict:
    """Return the outcome of a claim that is made of others, with the numbers of the part that decides it."""
    ends = {part.end for part in parts}
    end = UNDECIDED
    if GREY in ends:
        end = GREY
    elif FAILS in ends:
        end = FAILS
    elif ends == {HOLDS}:
        end = HOLDS
    if not parts:
        return Verdict(claim, choices, end)
    decider = min(
        (part for part in parts if part.end == end), key=lambda part: part.distance
    )
    because = decider.because or CLAIMS[decider.claim].text
    return decider._replace(claim=claim, choices=choices, end=end, because=because)


def strongest(
    settings: Mapping[str, Sequence[Verdict]], parts: Sequence[str]
) -> str | None:
    """Return the plausible setting in which the weakest of these parts is farthest above its margin."""
    best = None
    least = -math.inf
    for name, outcomes in settings.items():
        mine = [found for found in outcomes if found.claim in parts]
        if len({found.claim for found in mine}) < len(parts):
            continue
        if any(found.end == GREY for found in mine):
            continue
        distance = min(found.distance for found in mine)
        if distance > least:
            best = name
            least = distance
    return best


def word_on(outcomes: Sequence[Verdict], stated: Verdict | None = None) -> Word:
    """Return the word on a claim, from its outcomes on the map and its outcome in the stated setting."""
    counted = Counter(found.end for found in outcomes)
    counts = (counted[HOLDS], counted[FAILS], counted[UNDECIDED])
    decided = counts[0] + counts[1]
    most = counts[0] >= MOST * decided and 2 * decided >= sum(counts)
    everywhere = decided > 0 and most
    if stated is not None:
        if stated.end == HOLDS:
            # A stated setting without others on its map holds where it says, no more.
            if everywhere and sum(counts) > 1:
                return Word(REPRODUCED, "", counts)
            return Word(WHERE, ", ".join(stated.choices.values()), counts)
        if stated.end == FAILS and not counts[0]:
            return Word(NOT, stated.because, counts)
        return Word(UNDECIDED, "", counts)
    if not outcomes:
        return Word(NOT_RUN)
    if not decided:
        return Word(UNDECIDED, "", counts)
    if everywhere:
        return Word(REPRODUCED, "", counts)
    if counts[0]:
        return Word(WHERE, _where(outcomes), counts)
    if counts[1] > counts[2]:
        worst = min((o for o in outcomes if o.end == FAILS), key=lambda o: o.distance)
        return Word(NOT, worst.because or CLAIMS[worst.claim].text, counts)
    return Word(UNDECIDED, "", counts)


def _where(outcomes: Sequence[Verdict]) -> str:
    """Return the values of the axis that separates best at which most decided settings hold."""
    decided = [found for found in outcomes if found.end in (HOLDS, FAILS)]
    best = (-1.0, "")
    for axis in dict.fromkeys(name for found in decided for name in found.choices):
        ends: dict[str, Counter[str]] = {}
        for found in decided:
            ends.setdefault(found.choices.get(axis, ""), Counter())[found.end] += 1
        right = sum(max(count.values()) for count in ends.values()) / len(decided)
        good = [v for v, count in ends.items() if count[HOLDS] > count[FAILS]]
        # Of axes that predict equally well, the one with fewer values explains more.
        score = right - 1e-6 * len(ends)
        if score > best[0] and len(ends) > 1:
            best = (score, f"{axis}: {', '.join(good)}" if good else "in few settings")
    return best[1]


def power_of(claim: Claim, error: float) -> float:
    """Return the probability that the claim passes if its effect is `truth` and the error is `error`."""
    z = (claim.truth - claim.margin) / error - ERRORS
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))


def _claims() -> dict[str, Claim]:
    """Read claims.toml, whose margins and truths are in the unit of a reader."""
    text = Path(__file__).with_name("claims.toml").read_text(encoding="utf-8")
    found = {}
    for name, plain in tomllib.loads(text).items():
        unit = UNITS[plain.pop("unit", "plain")]
        for key in ("margin", "truth"):
            plain[key] = unit.back(plain[key]) if key in plain else 0.0
        plain["parts"] = tuple(plain.get("parts", ()))
        found[name] = Claim(name, **plain, unit=unit)
    return found


CLAIMS = _claims()
FIGURES = {"fig1": "Fig. 1", "fig2": "Fig. 2", "fig3": "Fig. 3", "fig4": "Fig. 4"}
FIGURES |= {"fig5": "Fig. 5", "s1": "Fig. S1"}
"""The claims of the first screen and their figures."""
