"""Figure 2: time to epsilon against sigma_w^2 at W = 40, over what the paper leaves open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import ALGORITHM_STYLES, band, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.gaussian import (
    TARGETS,
    Curve,
    scale_below_limit,
    seeds_and_draws,
)
from asyncqn_paper.figures.verdicts import TITLES, verdict_bars
from asyncqn_paper.records import Record
from asyncqn_paper.rules import (
    CLAIMS,
    UNDECIDED,
    Estimate,
    Outcome,
    above,
    all_of,
    times_apart,
)
from asyncqn_paper.settings import EVERYONE, NAMES, NOBODY, PAPER, PAYERS, given
from asyncqn_paper.tuning import tuned

# In the order of `settings.NAMES`.
SGD, MB, AS = NAMES
# The paper's text names one value of sigma_w^2, 200 (Fig. 3); the others are our own choice.
VARIANCES = (0.0, 25.0, 50.0, 100.0, 200.0, 400.0, 600.0, 900.0)
# Units of simulated time; some 3,000 commits of as-L-BFGS on 40 workers.
LIMIT = 6000.0
GRID = (
    "rows-alike-2",
    "rows-alike-8",
    "five-directions-8",
    "five-weak-10",
    "three-weak-39",
)
"""Problems of the grid, from weakly to strongly correlated; the last is the most correlated that the table
allows (mean |correlation| 0.26), and violates the noise floor of a-SGD."""
TUNED_ON = ("rows-alike-8", "five-weak-10", "linear-gaussian", "linear-gaussian-stiff")
PROBLEM = "problem"
PAYS = "who pays for messages"
INTEGRATOR = "integrator"
H0 = "H₀"
NUMBERS = "numbers"
QUORUM = "quorum"
REUSE = "overlap reused by mb"
START = "start"
TARGET = "target"
CAUTIOUS = "cautious constant"
BY_PAIRS = "by pairs"
ORACLE = "√(0.8/λ) I for as-L-BFGS alone"
BOTH = "√(0.8/λ) I for both"
EVERY_PAIR = 1e-4
SOME_PAIRS = 1.2
"""The cautious constant: up to 1 it admits every pair of these models, since gradients contain the prior."""
BASE = {
    PROBLEM: "rows-alike-8",
    PAYS: NOBODY,
    INTEGRATOR: "explicit",
    H0: BY_PAIRS,
    NUMBERS: "the table's",
    QUORUM: "1",
    REUSE: "no",
    START: "prior",
    CAUTIOUS: "as H₀ says",
}


class Setting(NamedTuple):
    """One combination of choices, but for the target: all targets come from the same runs."""

    choices: dict[str, str]

    def parameters(self, kind: str) -> dict[str, Any]:
        """Return the parameters of a method."""
        chosen = self.choices
        if chosen[NUMBERS] == "tuned":
            return tuned(f"{kind}-{chosen[PROBLEM]}")
        found = dict(PAPER[kind])
        # A fixed H0 uses the curvature of the problem, which no method knows: it is an oracle, and the axis
        # says who gets it.
        fixed = chosen[H0] == BOTH or (chosen[H0] == ORACLE and kind == AS)
        if kind != SGD:
            found["initial_scale"] = (
                scale_below_limit(chosen[PROBLEM]) if fixed else "pair"
            )
        if kind == MB:
            found |= {
                "quorum": float(chosen[QUORUM]),
                "reuse_overlap": chosen[REUSE] == "yes",
            }
        if kind == AS:
            # By pairs every pair counts; with a fixed H0 only pairs above the prior's curvature bring news.
            own = chosen[CAUTIOUS] if chosen[CAUTIOUS] != BASE[CAUTIOUS] else ""
            found["epsilon"] = (
                float(own) if own else SOME_PAIRS if fixed else EVERY_PAIR
            )
            found["integrator"] = chosen[INTEGRATOR]
        return found

    def curve(
        self, kind: str, variance: float, seeds: int, *, pairs: bool = True
    ) -> Curve:
        """Return the cell of one point."""
        own = self.parameters(kind)
        if not pairs:
            # Without pairs these two have no meaning.
            own = {
                name: v
                for name, v in own.items()
                if name not in ("epsilon", "cosine_floor")
            }
            own["memory"] = 0
        chosen = self.choices
        return Curve(
            chosen[PROBLEM],
            kind,
            given(own),
            variance,
            seeds,
            payer=chosen[PAYS],
            start=chosen[START],
            limit=LIMIT,
        )


def settings() -> list[list[Setting]]:
    """Return every setting, in batches: those that decide most first."""
    grid = [
        Setting({**BASE, PROBLEM: problem, PAYS: payer, INTEGRATOR: integrator, H0: h0})
        for integrator in ("explicit", "modified")
        for payer in PAYERS
        for h0 in (BY_PAIRS, ORACLE, BOTH)
        for problem in GRID
    ]

    def chosen(
        *problems: str, payers: tuple[str, ...] = tuple(PAYERS), **more: str
    ) -> list[Setting]:
        told = {"integrator": "explicit", **more}
        return [
            s
            for s in grid
            if s.choices[PROBLEM] in problems
            and s.choices[PAYS] in payers
            and s.choices[INTEGRATOR] == told["integrator"]
            and s.choices[H0] == told.get("h0", s.choices[H0])
        ]

    # Batches: the base case, then the neighbours that the headline depends on, then the grid, then single
    # axes around the base case.
    near = GRID[:2]
    few = (NOBODY, EVERYONE)
    first = chosen(BASE[PROBLEM], payers=(NOBODY,), h0=BY_PAIRS)
    second = [
        *chosen(*near, payers=few, h0=BY_PAIRS),
        *chosen(*near, payers=few, h0=BY_PAIRS, integrator="modified"),
        *chosen(*near, payers=few),
    ]
    third = [*chosen(*GRID[:3]), *chosen(*GRID[:3], integrator="modified")]
    around = [
        Setting({**BASE, PROBLEM: problem, PAYS: payer, axis: value})
        for axis, values in (
            (QUORUM, ("0.5", "0.75")),
            (REUSE, ("yes",)),
            (START, ("zero", "far")),
            (CAUTIOUS, ("1.2", "100")),
        )
        for value in values
        for problem in ("rows-alike-2", "rows-alike-8")
        for payer in (NOBODY, EVERYONE)
    ]
    # Tuned parameters include H0, so that this axis has a value of its own.
    searched = [
        Setting({**BASE, PROBLEM: problem, NUMBERS: "tuned", H0: "tuned"})
        for problem in TUNED_ON
    ]
    batches = []
    seen = set[str]()
    for batch in (first, second, third, [*searched, *around, *grid]):
        # By text, because a setting holds a dictionary, which cannot be hashed.
        batches.append(
            [s for s in {str(s): s for s in batch}.values() if str(s) not in seen]
        )
        seen |= {str(s) for s in batch}
    return batches


def _size(full: bool) -> tuple[list[list[Setting]], tuple[float, ...], int]:
    """Return the settings, the values of sigma_w^2 and the repetitions."""
    if full:
        return settings(), VARIANCES, 100
    return (
        [[Setting({**BASE, PAYS: payer}) for payer in (NOBODY, EVERYONE)]],
        (0.0, 200.0, 900.0),
        10,
    )


def cells(full: bool) -> list[list[Cell]]:
    """Return the cells of all settings, with as-L-BFGS without pairs at one sigma_w^2."""
    batches, variances, seeds = _size(full)
    return [
        [
            cell
            for setting in batch
            for cell in (
                *(setting.curve(kind, v, seeds) for kind in NAMES for v in variances),
                setting.curve(AS, 200.0, seeds, pairs=False),
            )
        ]
        for batch in batches
    ]


Points = dict[float, list[Record]]


def _rows(
    get: Get, setting: Setting, variances: Sequence[float], seeds: int
) -> dict[str, Points] | None:
    """Return the records of all points of a setting; None where one is missing."""
    rows: dict[str, Points] = {kind: {} for kind in NAMES}
    for kind in NAMES:
        for v in variances:
            records = get(setting.curve(kind, v, seeds))
            if records is None:
                return None
            rows[kind][v] = records
    return rows


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcome of every claim in every finished setting, for every target."""
    found = []
    batches, variances, seeds = _size(full)
    for setting in (setting for batch in batches for setting in batch):
        rows = _rows(get, setting, variances, seeds)
        if rows is not None:
            # The control is a claim of its own and may be missing while the others are judged.
            control = get(setting.curve(AS, 200.0, seeds, pairs=False))
            for words, name in TARGETS.items():
                found += _judge(
                    rows, control, f"time {name}", {**setting.choices, TARGET: words}
                )
    return found


def _judge(
    rows: dict[str, Points],
    control: list[Record] | None,
    name: str,
    choices: dict[str, str],
) -> list[Outcome]:
    """Return the outcomes of the claims of Fig. 2 in one setting."""

    def ratio(slow: tuple[str, float], quick: tuple[str, float]) -> Estimate | str:
        a, b = (rows[kind][v] for kind, v in (slow, quick))
        return times_apart(
            [r[name] for r in a], [r[name] for r in b], seeds_and_draws(a), LIMIT
        )

    def part(claim: str, found: Estimate | str) -> Outcome:
        if isinstance(found, str):
            return Outcome(claim, choices, UNDECIDED, because=found)
        return above(claim, choices, found)

    def joint(claim: str, parts: list[Outcome]) -> Outcome:
        return all_of(claim, choices, parts)

    # The smallest and the largest sigma_w^2.
    low, *_, high = rows[AS]
    similar = ratio((MB, low), (AS, low))
    if not isinstance(similar, str):
        # "Similar" has two sides: the distance from equal times must stay below the margin.
        similar = similar._replace(value=-abs(similar.value))
    told = {
        "fig2-sgd": joint(
            "fig2-sgd",
            [part("fig2-sgd", ratio((SGD, low), (k, low))) for k in (MB, AS)],
        ),
        "fig2-alike": part("fig2-alike", similar),
        "fig2-mb": part("fig2-mb", ratio((MB, high), (MB, low))),
        "fig2-robust": joint(
            "fig2-robust",
            [part("fig2-robust", ratio((k, low), (k, high))) for k in (SGD, AS)],
        ),
        "fig2-best": joint(
            "fig2-best",
            [part("fig2-best", ratio((SGD, v), (AS, v))) for v in rows[AS]]
            # With workers nearly alike both are to be similar ("fig2-alike"), so mb-L-BFGS counts from 200
            # on.
            + [
                part("fig2-best", ratio((MB, v), (AS, v)))
                for v in rows[AS]
                if v >= 200.0
            ],
        ),
    }
    # The share is taken over all sigma_w^2 of a seed; its error is that between draws.
    arrived = [
        [float(r[name] is not None) for r in records] for records in rows[AS].values()
    ]
    shares = np.mean(arrived, axis=0) - 0.9
    draws = seeds_and_draws(rows[AS][low])
    means = [float(shares[np.asarray(draws) == d].mean()) for d in sorted(set(draws))]
    spread = (
        float(np.std(means, ddof=1)) / math.sqrt(len(means))
        if len(means) > 1
        else math.inf
    )
    told["table"] = above(
        "table", choices, Estimate(float(np.mean(means)), spread, len(shares))
    )
    if control is not None and 200.0 in rows[AS]:
        mine = rows[AS][200.0]
        found = times_apart(
            [r[name] for r in control], [r[name] for r in mine], draws, LIMIT
        )
        told["pairs"] = part("pairs", found)
    whole = joint("fig2", [told[name] for name in CLAIMS["fig2"].parts])
    return [*told.values(), whole]


SHOWN = [(problem, payer) for problem in GRID[:2] for payer in (NOBODY, EVERYONE)]
"""The columns of the figure: two problems that disagree, each without and with messages that are paid."""


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw the paper's axes and shades, medians below, and the lead that the claim is about; all settings."""
    _, variances, seeds = _size(full)
    shown = []
    for problem, payer in SHOWN:
        choices = {**BASE, PROBLEM: problem, PAYS: payer}
        if _rows(get, Setting(choices), variances, seeds) is not None:
            shown.append(choices)
    figure, axes = panels(
        3, max(1, len(shown)), width=2.7, height=2.4, sharex=True, sharey="row"
    )
    for column, choices in zip(axes.T, shown, strict=False):
        for integrator in ("explicit", "modified"):
            rows = _rows(
                get, Setting({**choices, INTEGRATOR: integrator}), variances, seeds
            )
            for kind, points in (rows or {}).items():
                if kind == AS or integrator == "explicit":
                    _lines(column, kind, integrator, points)
            if rows is not None:
                _leads(column[2], rows, integrator)
        pays = (
            "nobody pays for messages"
            if choices[PAYS] == NOBODY
            else "every exchange is paid"
        )
        column[0].set_title(
            f"{choices[PROBLEM].replace('-', ' ')},\n{pays}", fontsize=8
        )
        column[2].axhline(
            math.exp(CLAIMS["fig2-best"].margin), color="black", linewidth=0.8
        )
        column[2].set_xlabel(r"$\sigma_w^2$")
    words = (
        "time to $\\varepsilon$\n(mean, 3 std. dev.)",
        "time to $\\varepsilon$\n(median, 10–90 %)",
    )
    for axis, name in zip(
        axes[:, 0], (*words, "time over that of\nas-L-BFGS (2 errors)"), strict=True
    ):
        axis.set(yscale="log", ylabel=name)
    for axis in axes[:2, 0]:
        axis.set_ylim(100.0, 1.1 * LIMIT)  # nothing is measured beyond the limit
    for axis in axes[:, 0]:
        few_decades(axis)
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4
    )
    claims = [
        name for name in TITLES if name in CLAIMS and CLAIMS[name].row == "Fig. 2"
    ]
    return {"fig2": figure, "fig2_settings": verdict_bars(outcomes(get, full), claims)}


def _lines(column: Any, kind: str, integrator: str, points: Points) -> None:
    """Draw mean and three standard deviations, median and percentiles; late runs count as the limit."""
    times = np.array(
        [
            [LIMIT if r["time 0.05"] is None else r["time 0.05"] for r in p]
            for p in points.values()
        ]
    )
    look = _look(kind, integrator)
    name = NAMES[kind] + (", modified" if integrator == "modified" else "")
    mean = times.mean(axis=1)
    wide = 3.0 * times.std(axis=1)
    low, high = np.quantile(times, (0.1, 0.9), axis=1)
    # A mean less three deviations may be negative, which a logarithmic axis cannot show.
    band(
        column[0],
        list(points),
        mean,
        np.maximum(mean - wide, 20.0),
        mean + wide,
        name,
        look,
    )
    band(column[1], list(points), np.median(times, axis=1), low, high, name, look)


def _look(kind: str, integrator: str) -> dict[str, Any]:
    look = dict(ALGORITHM_STYLES[kind])
    return look | (
        {"linestyle": "--", "marker": "^"} if integrator == "modified" else {}
    )


def _leads(axis: Any, rows: dict[str, Points], integrator: str) -> None:
    """Draw the paired time ratios of the rivals to as-L-BFGS, as the rule estimates them, with two errors."""
    for kind in (SGD, MB):
        points = []
        for v, mine in rows[AS].items():
            pair = [
                [r["time 0.05"] for r in records] for records in (rows[kind][v], mine)
            ]
            found = times_apart(pair[0], pair[1], seeds_and_draws(mine), LIMIT)
            if not isinstance(found, str):
                points.append((v, math.exp(found.value), 2.0 * found.error))
        if points:
            x, y, error = np.array(points).T
            # Errors are those of the logarithm.
            low = y * (1.0 - np.exp(-error))
            high = y * (np.exp(error) - 1.0)
            look = {
                **_look(kind, integrator),
                "marker": "o" if integrator == "explicit" else "^",
            }
            look["linestyle"] = "-" if integrator == "explicit" else "--"
            axis.errorbar(
                x, y, yerr=(low, high), capsize=1.5, **{**look, "markersize": 3}
            )


EXPERIMENT = Experiment(
    "fig2",
    "Time to ε against the spread of the workers' speed",
    "Simulated time until (U − U*)/U* ≤ 0.05 at W = 40 with the table's numbers and H₀ by pairs; the last "
    "row shows by which factor a-SGD (orange) and mb-L-BFGS (green) need longer than as-L-BFGS (solid: "
    "explicit, dashed: modified; line: the margin 1.05). The second figure counts all settings, axis by "
    "axis.",
    cells,
    outcomes,
    draw,
)
