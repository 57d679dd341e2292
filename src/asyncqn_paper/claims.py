"""Claims of the paper, outcomes of settings, and the rule that makes one verdict of many outcomes.

A `Claim` is a statement of the paper in our words.  It names the axes that bear on it and that the paper
leaves open: what a reader of the paper would have to choose before running it.  An `Outcome` is what one
setting says about one claim, with the value chosen on every open axis.  `verdict_on` makes the verdict:

- all settings agree that it holds: *holds*;
- they disagree, and the settings in which it holds are exactly those inside some values of at most three
  axes: *holds under* these values;
- they disagree otherwise: *depends on what the paper leaves open*, with the axes that decide: those on which
  two settings differ, alone, and come to different ends;
- it fails in all settings, and every open axis was varied: *does not hold*;
- it fails in all settings, but an axis was not varied, or no setting can tell: *not testable here*.

So a negative verdict never rests on a choice of ours alone.

An experiment supplies outcomes by its function `outcomes(tables)`: one `outcome(claim id, setting in words,
holds, because, choices)` for each claim and setting, where `holds` is None if the setting cannot tell (a
method that never arrives, say).  `choices` are words by axis; an axis of the claim that is not named counts
as one value that was not varied.  Values are phrases that can stand after "holds under", such as
"quorum 1" or "2 of 10 units of a message occupy the master".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

HOLDS, UNDER, DEPENDS = "holds", "holds under …", "depends on what the paper leaves open"
FAILS, UNTESTABLE = "does not hold", "not testable here"
VERDICTS = (HOLDS, UNDER, DEPENDS, FAILS, UNTESTABLE)

NOT_STATED = "not stated"
MOST_CONDITIONS = 3
"""More conditions than this would describe the settings one by one."""


class Claim(NamedTuple):
    """A statement of the paper."""

    id: str
    text: str
    """The statement, in our words."""
    where: str
    """Its place in the paper."""
    open: tuple[str, ...] = ()
    """The axes that bear on it and that the paper leaves open."""
    own: bool = False
    """Whether it is a check or a prediction of ours, which the paper does not make."""


class Outcome(NamedTuple):
    """What one setting says about one claim."""

    claim: str
    setting: str
    """The setting in words."""
    verdict: str
    """`HOLDS`, `FAILS` or `UNTESTABLE`."""
    because: str
    """The numbers behind it."""
    choices: Mapping[str, str] = {}
    """What was chosen, by axis."""


class Verdict(NamedTuple):
    """The verdict on a claim over all settings, and why, in a sentence."""

    word: str
    because: str
    condition: str = ""
    """For `UNDER` the values under which it holds."""
    deciding: tuple[str, ...] = ()
    """The axes on which two settings that differ in nothing else come to different ends."""


def outcome(
    claim: str, setting: str, holds: bool | None, because: str, choices: Mapping[str, str] | None = None
) -> Outcome:
    """An outcome from yes, no, or cannot tell."""
    word = UNTESTABLE if holds is None else HOLDS if holds else FAILS
    return Outcome(claim, setting, word, because, dict(choices or {}))


def verdict_on(claim: Claim, outcomes: Sequence[Outcome]) -> Verdict:
    """One verdict on a claim: see the module."""
    known = [o for o in outcomes if o.verdict in (HOLDS, FAILS)]
    good = [o for o in known if o.verdict == HOLDS]
    bad = [o for o in known if o.verdict == FAILS]
    total = f"{len(known)} setting{'s' * (len(known) != 1)}"
    if not known:
        return Verdict(UNTESTABLE, outcomes[0].because if outcomes else "no setting looks at it")
    if not bad:
        return Verdict(HOLDS, f"in {'all ' * (len(known) > 1)}{total}: {good[0].because}")
    if not good:
        constant = [axis for axis in claim.open if len(values(axis, known)) < 2]
        if constant:
            words = f"fails in {'all ' * (len(known) > 1)}{total}, but not varied: {', '.join(constant)}"
            return Verdict(UNTESTABLE, f"{words}; {bad[0].because}")
        return Verdict(FAILS, f"fails in all {total}, over {', '.join(claim.open)}: {bad[0].because}")
    deciding = deciding_axes(claim, known)
    share = f"holds in {len(good)} of {total}"
    condition = condition_of(claim, good, bad)
    if condition:
        return Verdict(UNDER, f"{share}, exactly there: {good[0].because}", condition, deciding)
    decided = f"; decided by {', '.join(deciding)}" if deciding else ""
    example = f"; it fails, for example, with {bad[0].setting}: {bad[0].because}"
    return Verdict(DEPENDS, f"{share}{decided}{example}", "", deciding)


def values(axis: str, outcomes: Sequence[Outcome]) -> list[str]:
    """The values chosen on an axis, in order of first appearance."""
    return list(dict.fromkeys(o.choices.get(axis, NOT_STATED) for o in outcomes))


def condition_of(claim: Claim, good: Sequence[Outcome], bad: Sequence[Outcome]) -> str:
    """The fewest axes whose values in `good` keep out all of `bad`, in words; empty where there are none, or
    where only one setting holds: that is existence, not a condition."""
    if len(good) < 2:
        return ""
    inside = {axis: values(axis, good) for axis in claim.open}
    for count in range(1, MOST_CONDITIONS + 1):
        for axes in combinations(claim.open, count):
            if not any(all(o.choices.get(a, NOT_STATED) in inside[a] for a in axes) for o in bad):
                return "; ".join(" or ".join(inside[axis]) for axis in axes)
    return ""


def deciding_axes(claim: Claim, known: Sequence[Outcome]) -> tuple[str, ...]:
    """The open axes on which two settings differ alone, and come to different ends."""
    found = set()
    for one, other in combinations(known, 2):
        if one.verdict != other.verdict:
            differ = [
                a for a in claim.open if one.choices.get(a, NOT_STATED) != other.choices.get(a, NOT_STATED)
            ]
            found |= set(differ) if len(differ) == 1 else set()
    return tuple(axis for axis in claim.open if axis in found)
