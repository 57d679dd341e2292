"""What must be true for the order of Fig. 2 to appear, in sentences made of its tables."""

from __future__ import annotations

from collections.abc import Sequence

from asyncqn_paper.claim_list import H0, LINK, PROBLEM
from asyncqn_paper.claims import FAILS, HOLDS, UNTESTABLE
from asyncqn_paper.experiment import Tables
from asyncqn_paper.figures.fig2_after import EPSILON, LONG, STAYING_AT, by_method
from asyncqn_paper.figures.fig2_cases import BUT, CASES, SERIAL, TUNED_CASES, Case
from asyncqn_paper.figures.fig2_outcomes import STAYS, order_outcomes, staying
from asyncqn_paper.figures.times import curve
from asyncqn_paper.records import where
from asyncqn_paper.settings import NAMES


def headline(tables: Tables) -> list[str]:
    """Where the whole order appears, what breaks it, and what tuning does to it."""
    broken = {name: _broken(tables, name, case) for name, case in {**CASES, **TUNED_CASES}.items()}
    grid = {name: case for name, case in CASES.items() if case.axis == PROBLEM}
    linked, free = ([n for n, c in grid.items() if c.serial == serial] for serial in (SERIAL, 0.0))
    good = [grid[name] for name in linked if not broken[name]]
    appears = (
        "**Where it appears.** "
        f"With the table's own numbers the order of Fig. 2 (a-SGD slow with workers alike, mb-L-BFGS slower "
        f"as they differ, both asynchronous methods steady, as-L-BFGS best) appears in {len(good)} of "
        f"the {len(linked)} settings in which every exchange occupies the "
        f"master for {SERIAL:g} of its 10 units (a serial link), and in "
        f"{sum(not broken[name] for name in free)} of the {len(free)} in which it does not. It appears on "
        f"{_listed([case.choices[PROBLEM] for case in good])}; with "
        f"{_listed(sorted({case.choices[H0] for case in good}))}. What must be true: few stiff "
        "directions, rounds of mb-L-BFGS that wait for nearly everyone, and a link at the master that "
        "carries one message at a time."
    )
    words = {name: case.words.removeprefix(BUT) for name, case in CASES.items() if case.axis != PROBLEM}
    b0 = next(name for name, case in CASES.items() if _is_base_without_link(case))
    words[b0] = CASES[b0].choices[LINK]
    ends: dict[str, list[str]] = {HOLDS: [], FAILS: [], UNTESTABLE: []}
    for name, said in words.items():
        ends[FAILS if FAILS in broken[name] else UNTESTABLE if broken[name] else HOLDS].append(said)
    untold = f" It cannot be told with: {_listed(ends[UNTESTABLE])}." if ends[UNTESTABLE] else ""
    one = (
        "**What breaks it.** "
        f"Around one of these ({CASES['base'].words}, quorum 1), one change at a time. The order stays with: "
        f"{_listed(ends[HOLDS])}. It breaks with: {_listed(ends[FAILS])}.{untold}"
    )
    tuned = []
    for name, case in TUNED_CASES.items():
        middle = [
            f"{title} {curve(where(tables['times'], setting=name, algorithm=kind)).mean[0]:.0f}"
            + ("" if _stay(tables, name, kind) else " in passing")
            for kind, title in NAMES.items()
        ]
        tuned.append(f"{', '.join(middle)} ({case.words.partition(', ')[2]})")
    lost = sum(bool(broken[name]) for name in TUNED_CASES)
    after = (
        f"**Tuned.** With trials in proportion to the numbers that each method has, the order breaks in "
        f"{lost} of {len(TUNED_CASES)} settings; times at σ_w² = 1: {'; '.join(tuned)}. (In passing: "
        "most runs leave ε again; the tuner asks for the first crossing alone.) So the order with the "
        "table's numbers reflects step sizes and throughput more than curvature."
    )
    shown = [name for name, case in CASES.items() if not broken[name]]
    return [appears, _in_passing(tables, shown), one, after]


def _stay(tables: Tables, name: str, kind: str, control: bool = False) -> bool:
    """Whether most of the runs that arrive stay at epsilon."""
    return staying(tables, name, kind, control).share >= 0.5


def _in_passing(tables: Tables, shown: Sequence[str]) -> str:
    """Whether runs stay at epsilon in the settings in which the order appears."""
    stay = {kind: sum(_stay(tables, name, kind) for name in shown) for kind in NAMES}
    without = sum(_stay(tables, name, "as-lbfgs", True) for name in shown)
    ends = {name: [row[-1]["error"] for row in runs] for name, runs in by_method(tables).items()}
    lost = {name: sum(not error <= 2.0 * STAYS * EPSILON for error in found) for name, found in ends.items()}
    long = "; ".join(f"{name}: {lost[name]} of {len(ends[name])}" for name in ends)
    return (
        "**Reached is not kept.** "
        f"The time to ε is that of the first crossing, as in the paper. In the {len(shown)} settings in "
        f"which the order appears, most runs of as-L-BFGS are still there (within {STAYS:g} ε) between two "
        f"and three times that time in {stay['as-lbfgs']}; with M = 0 in {without}, of a-SGD in "
        f"{stay['async-sgd']}, of mb-L-BFGS in {stay['mb-lbfgs']}. Runs of the base case at σ_w² = "
        f"{STAYING_AT:g} that end above {2 * STAYS:g} ε after {LONG} commits: {long}."
    )


def _broken(tables: Tables, name: str, case: Case) -> list[str]:
    """The verdicts on the claims of the order that fail, or that cannot be told, in a setting.  That
    mb-L-BFGS and as-L-BFGS are alike at small spreads is no part of the order."""
    found = order_outcomes(where(tables["times"], setting=name), case.words, case.choices)
    return [one.verdict for one in found if one.claim != "fig2-alike" and one.verdict in (FAILS, UNTESTABLE)]


def _is_base_without_link(case: Case) -> bool:
    base = CASES["base"].choices
    return {axis for axis in base if case.choices.get(axis) != base[axis]} == {LINK} and case.serial == 0.0


def _listed(words: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(words)) or "nothing"
