"""The settings of Fig. 2: every consistent problem, one axis at a time around a base case, tuned numbers.

A case says what it chooses of all that the paper leaves open; the table's numbers stand everywhere but in the
tuned cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from asyncqn_paper.claim_list import CAUTIOUS, H0, LINK, NUMBERS, PROBLEM, QUORUM, START, TARGET, TIMEOUT
from asyncqn_paper.consistency import CONSISTENT
from asyncqn_paper.figures.times import Job, jobs_of
from asyncqn_paper.problems import PROBLEMS, AlikeRows
from asyncqn_paper.settings import MESSAGE, PAPER

BY_PAIRS = "H₀ by pairs"
BELOW_LIMIT = "H₀ = √(0.8/λ) I"
EVERY_PAIR, SOME_PAIRS, FEW_PAIRS = 1e-4, 1.2, 100.0
"""The cautious constant.  Every pair of these models has y's >= |s|^2, since gradients contain the prior."""
PRINTED, TUNED = "the table's numbers", "tuned numbers"
SERIAL = 2.0
"""Of the 10 units of an exchange of messages, those that occupy the master in the base case."""
BASE_PROBLEM = "rows-alike-8"
BUT = "base case, but "
START_WORDS = {"prior": "start from the prior", "zero": "start at 0", "far": "start three times as far"}


class Case(NamedTuple):
    """A setting: parameters by algorithm, and what they choose, by axis."""

    words: str
    axis: str
    """The axis that this case varies around the base case; "problem" for the grid of problems."""
    choices: dict[str, str]
    problem: str
    parameters: dict[str, dict[str, Any]]
    serial: float
    target: float = 0.05
    start: str = "prior"

    def jobs(
        self, kind: str, parameters: Mapping[str, Any], variances: Sequence[float], seeds: range, limit: float
    ) -> list[Job]:
        """The runs of one algorithm at some spreads of the workers' speed."""
        serial = 0.0 if kind == "mb-lbfgs" else self.serial  # rounds do not feel it: the same job then
        place = {"epsilon": self.target, "limit": limit, "serial": serial, "start": self.start}
        return jobs_of(self.problem, kind, parameters, variances, seeds, **place)


def problem_words(problem: str) -> str:
    """A problem in words, without the number of its draw."""
    name, _, draw = problem.partition("-draw-")
    return name.replace("-", " ") + (f", draw {draw}" if draw else "")


def scale_below_limit(problem: str) -> float:
    """c of H0 = c I with c^2 lambda_max = 0.8, rounded: the limit of stability at W = 40 is 0.96."""
    described = PROBLEMS[problem]
    largest = described.top + 1.0 if isinstance(described, AlikeRows) else described.largest
    return float(round((0.8 / largest) ** 0.5, 2))


def case(
    axis: str,
    problem: str = BASE_PROBLEM,
    h0: str | float = BELOW_LIMIT,
    epsilon: float = SOME_PAIRS,
    quorum: float = 1.0,
    late: bool = False,
    serial: float = SERIAL,
    target: float = 0.05,
    start: str = "prior",
    floor: float | None = None,
) -> Case:
    """A case with the table's numbers; `late`: the timeout counts computation alone, not messages; `floor`:
    of the cosine of a pair that is admitted."""
    scale = "pair" if h0 == BY_PAIRS else scale_below_limit(problem) if h0 == BELOW_LIMIT else h0
    timeout = PAPER["mb-lbfgs"]["timeout"] + (MESSAGE if late else 0.0)
    choices = {
        PROBLEM: problem_words(problem),
        H0: h0 if isinstance(h0, str) else f"H₀ = {h0:g} I",
        CAUTIOUS: f"cautious constant {epsilon:g}" + (f" and cosine floor {floor:g}" if floor else ""),
        QUORUM: f"quorum {quorum:g}",
        TIMEOUT: f"timeout of {'computation alone' if late else 'computation and messages'}",
        LINK: f"b = {serial:g}",
        TARGET: f"ε = {target:g}",
        START: START_WORDS[start],
        NUMBERS: PRINTED,
    }
    shown = (PROBLEM, LINK, H0, CAUTIOUS) if axis == PROBLEM else (axis,)
    words = ", ".join(choices[name] for name in shown)
    parameters = {
        "async-sgd": PAPER["async-sgd"],
        "mb-lbfgs": {**PAPER["mb-lbfgs"], "quorum": quorum, "timeout": timeout},
        "as-lbfgs": {**PAPER["as-lbfgs"], "initial_scale": scale, "epsilon": epsilon},
    }
    if floor:
        parameters["as-lbfgs"]["cosine_floor"] = floor
    around = "" if axis == PROBLEM else BUT
    return Case(f"{around}{words}", axis, choices, problem, parameters, serial, target, start)


RECIPES = ((BY_PAIRS, EVERY_PAIR), (BELOW_LIMIT, SOME_PAIRS), (BELOW_LIMIT, FEW_PAIRS))
"""H0 and the cautious constant: as most would read the paper; ours; and nearly no pairs."""
TUNED_ON = (
    ("rows-alike-8", SERIAL),
    ("rows-alike-8", 0.0),
    ("five-weak-10", 0.0),
    ("linear-gaussian", 0.0),
    ("linear-gaussian-stiff", 0.0),
)
"""Problems and links with tuned numbers.  The table's own cannot serve the last two, tuned ones can."""


def printed_cases() -> dict[str, Case]:
    """All cases with the table's numbers, the base case first."""
    found = {"base": case(PROBLEM)}
    for problem in CONSISTENT:
        for serial in (0.0, SERIAL):
            for h0, epsilon in RECIPES:
                new = case(PROBLEM, problem, h0, epsilon, serial=serial)
                if new.choices != found["base"].choices:
                    found[f"{problem}, {serial:g}, {h0}, {epsilon:g}"] = new
    variations: list[tuple[str, dict[str, Any]]] = [
        *[(H0, {"h0": value}) for value in (BY_PAIRS, 0.1, 0.5)],
        *[(CAUTIOUS, {"epsilon": value}) for value in (EVERY_PAIR, 10.0)],
        *[(QUORUM, {"quorum": value}) for value in (0.5, 0.75, 0.9)],
        *[(TIMEOUT, {"quorum": value, "late": True}) for value in (0.5, 1.0)],
        *[(LINK, {"serial": value}) for value in (1.0, 5.0)],
        *[(TARGET, {"target": value}) for value in (0.1, 0.02)],
        *[(START, {"start": value}) for value in ("zero", "far")],
    ]
    for axis, change in variations:
        new = case(axis, **change)
        extra = f", {new.choices[QUORUM]}" if axis == TIMEOUT else ""
        found[f"{axis}: {new.choices[axis]}{extra}"] = new._replace(words=new.words + extra)
    return found


def tuned_case(problem: str, serial: float) -> Case:
    """A case with tuned numbers, which come from the studies when it is computed; quorum, H0 and the cautious
    constant were searched with them."""
    choices = {
        PROBLEM: problem_words(problem),
        TIMEOUT: "timeout of computation and messages",
        LINK: f"b = {serial:g}",
        TARGET: "ε = 0.05",
        START: START_WORDS["prior"],
        NUMBERS: TUNED,
    }
    words = f"{TUNED}, {choices[PROBLEM]}, {choices[LINK]}"
    return Case(words, NUMBERS, choices, problem, {}, serial)


def study_name(kind: str, problem: str, serial: float) -> str:
    """The file of a study: a link at the master is part of its name."""
    return f"{kind}-{problem}" + (f"-b{serial:g}" if serial else "")


CASES = printed_cases()
TUNED_CASES = {f"{TUNED}: {problem}, {serial:g}": tuned_case(problem, serial) for problem, serial in TUNED_ON}
