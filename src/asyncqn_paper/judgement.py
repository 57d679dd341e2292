"""The outcomes of all experiments, gathered claim by claim, with one verdict each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from asyncqn_paper.claim_list import CLAIMS, find_claim
from asyncqn_paper.claims import UNTESTABLE, VERDICTS, Claim, Outcome, Verdict, verdict_on
from asyncqn_paper.reproduce import Result

COLOUR_NAMES = dict(zip(VERDICTS, ("green", "yellow", "orange", "red", "grey"), strict=True))
COLOURS = dict(zip(VERDICTS, ("#1d7a3d", "#8a6d00", "#b4540a", "#b3261e", "#5f6368"), strict=True))


class Row(NamedTuple):
    """A claim, its verdict, and what each setting says."""

    claim: Claim
    verdict: Verdict
    outcomes: list[Outcome]

    @property
    def words(self) -> str:
        """The verdict with its condition."""
        word = self.verdict.word
        return word.replace("…", self.verdict.condition) if self.verdict.condition else word


def judged(results: Sequence[Result]) -> list[Row]:
    """One row per claim, those of the paper first and in its order; claims that no experiment has looked at
    are rows too."""
    gathered: dict[str, list[Outcome]] = {name: [] for name in CLAIMS}
    known = dict(CLAIMS)
    for result in results:
        for found in result.outcomes:
            claim = find_claim(found.claim)
            known[claim.id] = claim
            gathered.setdefault(claim.id, []).append(found)
    rows = [
        Row(known[name], verdict_on(known[name], found), found)
        for name, found in gathered.items()
        if found or not known[name].own
    ]
    return sorted(rows, key=lambda row: row.claim.own)


def counts(rows: Sequence[Row]) -> str:
    """How many of the paper's claims have which verdict."""
    ours = [row for row in rows if not row.claim.own]
    numbers = Counter(row.verdict.word for row in ours)
    shown = "; ".join(f"{word}: {numbers[word]}" for word in VERDICTS if numbers[word])
    return f"Claims of the paper: {len(ours)}; {shown}."


def rests_on_a_choice(row: Row) -> list[str]:
    """The open axes that a negative verdict did not vary: empty for a verdict that may stand."""
    known = [found for found in row.outcomes if found.verdict != UNTESTABLE]
    return [axis for axis in row.claim.open if len({found.choices.get(axis) for found in known}) < 2]
