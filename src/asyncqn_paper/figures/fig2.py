"""Figure 2: time to epsilon against sigma_w^2 at W = 40, with the table's numbers.

The map has two axes: lambda_max of the posterior precision, of rows that are nearly alike, and the share of
an exchange of messages during which it keeps the master's link busy.  It is computed on tuning seeds.
`STATED` is the setting that `rules.strongest` finds on it, and is measured on fresh seeds and fresh draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncqn.lab import delay_limit
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import ALGORITHM_STYLES, band, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.gaussian import FRESH, Curve, seeds_and_draws
from asyncqn_paper.records import Record
from asyncqn_paper.rules import (
    CLAIMS,
    GREY,
    Estimate,
    Outcome,
    above,
    all_of,
    curves_apart,
    times_apart,
)
from asyncqn_paper.settings import MASTER, NAMES, NOBODY, PAPER, TREE, given

# In the order of `settings.NAMES`.
SGD, MB, AS = NAMES
# The paper's text names one value of sigma_w^2, 200 (Fig. 3); the others are our own choice.
VARIANCES = (0.0, 100.0, 200.0, 400.0, 600.0, 900.0)
FEW_VARIANCES = (0.0, 200.0, 900.0)
NAMED = 200.0
# Units of simulated time; some 3,000 commits of as-L-BFGS on 40 workers.
LIMIT = 6000.0
TARGET = "time 0.05"
TOPS = (1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 16.0, 45.0)
"""lambda_max of A'A / sigma_x^2, to which the prior adds 1."""
SHARES = (0.0, 5.0, 10.0, 20.0, 30.0, 40.0)
"""Percent of an exchange during which the link is busy; nobody pays at 0."""
WORKERS = 40
ARRIVE = 0.9
"""Share of a method's runs that arrive where its numbers in the table are said to arrive."""
LAMBDA = "λ_max"
PAYS = "who pays for messages"
INTEGRATOR = "integrator"
EVERY_PAIR = 1e-4
SOME_PAIRS = 1.2
"""The cautious constant: up to 1 it admits every pair of these models, since gradients contain the prior."""
PROBLEM = "problem"
START = "start"
QUORUM = "quorum"
SEEDS = 600
"""So many that each test has a power of 0.8 at the least effects of claims.toml."""
TUNING_SEEDS = 20


class Setting(NamedTuple):
    """A problem with rows alike, and who pays for messages; the rest is the table's."""

    top: float
    payer: str
    integrator: str = "explicit"

    @property
    def choices(self) -> dict[str, str]:
        """Return the setting in words."""
        return {LAMBDA: f"λ_max = {self.top + 1.0:g}", PAYS: self.payer}

    def parameters(self, kind: str, pairs: bool = True) -> dict[str, Any]:
        """Return the table's parameters; H0 by pairs, quorum 1 and no overlap reused are our reading."""
        own = dict(PAPER[kind])
        if kind != SGD:
            own["initial_scale"] = "pair"
        if kind == MB:
            own |= {"quorum": 1.0, "reuse_overlap": False}
        if kind == AS:
            own["integrator"] = self.integrator
            # Without pairs the cautious constant has no meaning.
            own |= {"epsilon": EVERY_PAIR} if pairs else {"memory": 0}
        return own

    def curve(
        self, kind: str, variance: float, seeds: range, *, pairs: bool = True
    ) -> Curve:
        """Return the cell of one point."""
        return Curve(
            f"rows-alike-{self.top:g}",
            kind,
            given(self.parameters(kind, pairs)),
            variance,
            len(seeds),
            seeds.start,
            payer=self.payer,
            limit=LIMIT,
        )


def payer_of(share: float, name: str = TREE) -> str:
    """Return who pays, for a share of an exchange in percent."""
    return f"{name}, {share:g} %" if share else NOBODY


STATED = Setting(5.0, payer_of(40.0))
"""The setting that `rules.strongest` finds on the tuning seeds."""


class Size(NamedTuple):
    """The points of the map and its seeds, and the values of sigma_w^2 and the seeds of the stated setting."""

    settings: list[Setting]
    tuning: range
    variances: tuple[float, ...]
    fresh: range


def size(full: bool) -> Size:
    """Return what is computed in the full and in the quick size."""
    if full:
        points = [Setting(top, payer_of(share)) for top in TOPS for share in SHARES]
        fresh = range(FRESH, FRESH + SEEDS)
        return Size(points, range(TUNING_SEEDS), VARIANCES, fresh)
    points = [Setting(top, payer_of(share)) for top in (1.0, 8.0) for share in (0, 20)]
    return Size(points, range(5), FEW_VARIANCES, range(FRESH, FRESH + 10))


def stated_cells(
    setting: Setting, variances: Sequence[float], seeds: range
) -> list[Cell]:
    """Return the cells of one setting, with as-L-BFGS without pairs at one sigma_w^2."""
    return [
        *(setting.curve(kind, v, seeds) for kind in NAMES for v in variances),
        setting.curve(AS, NAMED, seeds, pairs=False),
    ]


def cells(full: bool) -> list[list[Cell]]:
    """Return the cells of the map, then those of the stated setting."""
    chosen = size(full)
    points = [
        setting.curve(kind, v, chosen.tuning)
        for setting in chosen.settings
        for kind in NAMES
        for v in FEW_VARIANCES
    ]
    return [[*points], stated_cells(STATED, chosen.variances, chosen.fresh)]


Points = dict[float, list[Record]]


def rows_of(
    get: Get, setting: Setting, variances: Sequence[float], seeds: range
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


def arrives(points: Points) -> bool:
    """Return whether nearly all runs of a method arrive, at each sigma_w^2."""
    return all(
        np.mean([record[TARGET] is not None for record in records]) >= ARRIVE
        for records in points.values()
    )


def judge(rows: dict[str, Points], choices: dict[str, str]) -> list[Outcome]:
    """Return the outcomes of the claims of Fig. 2 in one setting."""
    parts = CLAIMS["fig2"].parts
    if not arrives(rows[AS]) or not arrives(rows[SGD]):
        # The authors cannot have been where their own parameters do not arrive.
        because = "the table's parameters do not arrive"
        return [
            Outcome(claim, choices, GREY, because=because) for claim in (*parts, "fig2")
        ]

    def ratio(slow: tuple[str, float], quick: tuple[str, float]) -> Estimate | str:
        a, b = (rows[kind][v] for kind, v in (slow, quick))
        times_a = [record[TARGET] for record in a]
        times_b = [record[TARGET] for record in b]
        return times_apart(times_a, times_b, seeds_and_draws(a), LIMIT)

    def joint(
        claim: str, pairs: list[tuple[tuple[str, float], tuple[str, float]]]
    ) -> Outcome:
        return all_of(
            claim, choices, [above(claim, choices, ratio(*pair)) for pair in pairs]
        )

    def lead(rival: str, variances: list[float]) -> Outcome:
        slow = [[record[TARGET] for record in rows[rival][v]] for v in variances]
        quick = [[record[TARGET] for record in rows[AS][v]] for v in variances]
        draws = seeds_and_draws(rows[AS][variances[0]])
        return above("fig2-best", choices, curves_apart(slow, quick, draws, LIMIT))

    low, *_, high = rows[AS]
    similar = ratio((MB, low), (AS, low))
    if not isinstance(similar, str):
        # "Similarly" has two sides: the distance from equal times must stay below the margin.
        similar = similar._replace(value=-abs(similar.value))
    # Where workers are alike as-L-BFGS and mb-L-BFGS are to be similar, so mb counts from 200 on.
    late = [v for v in rows[AS] if v >= NAMED]
    leads = [lead(SGD, list(rows[AS])), lead(MB, late)]
    found = [
        joint("fig2-sgd", [((SGD, low), (kind, low)) for kind in (MB, AS)]),
        above("fig2-alike", choices, similar),
        joint("fig2-mb", [((MB, high), (MB, low))]),
        joint("fig2-robust", [((kind, low), (kind, high)) for kind in (SGD, AS)]),
        all_of("fig2-best", choices, leads),
    ]
    return [*found, all_of("fig2", choices, found)]


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcome of every claim at every finished point of the map."""
    found = []
    chosen = size(full)
    for setting in chosen.settings:
        rows = rows_of(get, setting, FEW_VARIANCES, chosen.tuning)
        if rows is not None:
            found += judge(rows, setting.choices)
    return found


def stated(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes in the stated setting, on fresh seeds."""
    chosen = size(full)
    rows = rows_of(get, STATED, chosen.variances, chosen.fresh)
    control = get(STATED.curve(AS, NAMED, chosen.fresh, pairs=False))
    if rows is None or control is None:
        return []
    mine = rows[AS][NAMED]
    pairs = times_apart(
        [record[TARGET] for record in control],
        [record[TARGET] for record in mine],
        seeds_and_draws(mine),
        LIMIT,
    )
    share = STATED.payer.split(", ")[-1]
    words = {
        LAMBDA: f"λ_max is {STATED.top + 1.0:g}",
        PAYS: f"messages keep the link busy for {share} of an exchange",
    }
    return [*judge(rows, words), above("pairs", words, pairs)]


def draw_setting(rows: dict[str, Points]) -> Any:
    """Draw the paper's figure: mean times over sigma_w^2 with shades of three standard deviations."""
    figure, axes = panels(1, 1, width=3.6, height=2.7)
    axis = axes[0][0]
    for kind, points in rows.items():
        times = np.array(
            [
                [LIMIT if r[TARGET] is None else r[TARGET] for r in records]
                for records in points.values()
            ]
        )
        mean = times.mean(axis=1)
        wide = 3.0 * times.std(axis=1)
        low = np.maximum(mean - wide, 0.0)
        look = ALGORITHM_STYLES[kind]
        band(axis, list(points), mean, low, mean + wide, NAMES[kind], look)
    axis.set(xlabel=r"$\sigma_w^2$", ylabel=r"time to $\varepsilon$ = 0.05", ylim=0.0)
    axis.legend(fontsize=7)
    return figure


# How fast U falls, per unit of time, without any noise: two lines of the map.
def pace_of_sgd(share: float) -> float:
    """Return the rate of a-SGD in its softest direction, of curvature 1, where its link is busy `share`."""
    commits = WORKERS / (10.0 + 10.0)
    if share:
        # An exchange keeps the link for this share of ten units.
        commits = min(commits, 1.0 / (0.1 * share))
    return 2.0 * float(PAPER[SGD]["h"]) * commits


def pace_of_mb(share: float) -> float:
    """Return the rate of mb-L-BFGS with the exact Newton H, sigma_w = 0: at most -2 log(1 - h) per round."""
    # A round: message, gradient, message, master; all answers pass the link, the first of them at once.
    answers = (WORKERS - 1) * 0.05 * share
    unit = 10.0 + 10.0 + MASTER[MB] + answers
    return -2.0 * math.log1p(-float(PAPER[MB]["h"])) / unit


def delay_limit_of_sgd() -> float:
    """Return the largest curvature at which the table's step of a-SGD is stable with staleness W - 1."""
    return float(delay_limit(WORKERS - 1)) / float(PAPER[SGD]["h"])


COLOURS = {SGD: "#e8a33d", MB: "#4a9d6e", AS: "#3f82c4"}


def draw_map(get: Get, full: bool) -> Any:
    """Draw who wins at sigma_w^2 = 200 over lambda_max and the share of the link, with both boundaries."""
    from matplotlib.patches import Rectangle

    chosen = size(full)
    tops = list(dict.fromkeys(setting.top for setting in chosen.settings))
    payers = list(dict.fromkeys(setting.payer for setting in chosen.settings))
    shares = [float(p.split(", ")[1][:-2]) if p != NOBODY else 0.0 for p in payers]
    figure, axes = panels(1, 1, width=6.2, height=3.4)
    axis = axes[0][0]
    for setting in chosen.settings:
        rows = rows_of(get, setting, FEW_VARIANCES, chosen.tuning)
        if rows is None:
            continue
        place = (tops.index(setting.top), payers.index(setting.payer))
        _tile(axis, place, rows, setting)
    # Between two tiles the boundary stands where the formula crosses, measured along the axis of shares.
    level = _crossing(shares)
    if level is not None:
        axis.axhline(level, color="black", linewidth=1.2, linestyle="--")
        words = "below: a-SGD beats\nmb-L-BFGS with any H"
        axis.text(len(tops) - 2.7, level - 0.1, words, fontsize=6.5, va="top")
    limit = float(
        np.interp(math.log(delay_limit_of_sgd() - 1.0), np.log(tops), range(len(tops)))
    )
    axis.axvline(limit, color="black", linewidth=1.2, linestyle=":")
    words = "delay limit\nof a-SGD"
    axis.text(
        limit - 0.08, len(payers) - 1.0, words, fontsize=6.5, ha="right", va="center"
    )
    if STATED in chosen.settings:
        corner = (tops.index(STATED.top) - 0.48, payers.index(STATED.payer) - 0.48)
        frame = Rectangle(corner, 0.96, 0.96, fill=False, linewidth=2.0)
        axis.add_patch(frame)
    axis.set_xticks(range(len(tops)), [f"{top + 1.0:g}" for top in tops])
    axis.set_yticks(range(len(payers)), [f"{share:g} %" for share in shares])
    axis.set(xlim=(-0.5, len(tops) - 0.5), ylim=(-0.5, len(payers) - 0.3))
    axis.set(xlabel="$\\lambda_{max}$", ylabel="link busy, share of an exchange")
    axis.grid(False)
    _legend(figure)
    return figure


def _tile(
    axis: Any, place: tuple[int, int], rows: dict[str, Points], setting: Setting
) -> None:
    """Draw one point of the map: the colour of the fastest, and by which factor the second is slower."""
    x, y = place
    end = judge(rows, setting.choices)[-1].end
    medians = {
        kind: float(
            np.median(
                [LIMIT if r[TARGET] is None else r[TARGET] for r in points[NAMED]]
            )
        )
        for kind, points in rows.items()
    }
    winner, second = sorted(medians, key=lambda kind: medians[kind])[:2]
    colour = "#d9d9d9" if end == GREY else COLOURS[winner]
    axis.fill_between(
        [x - 0.48, x + 0.48], y - 0.48, y + 0.48, color=colour, linewidth=0
    )
    if end == GREY:
        return
    words = f"×{medians[second] / medians[winner]:.1f}"
    axis.text(x, y, words, ha="center", va="center", fontsize=7)


def _crossing(shares: Sequence[float]) -> float | None:
    """Return the height on the axis of shares at which a-SGD and the bound of mb-L-BFGS are equally fast."""
    fine = np.linspace(shares[0], shares[-1], 2001)
    behind = [pace_of_sgd(share) < pace_of_mb(share) for share in fine]
    if True not in behind:
        return None
    return float(np.interp(fine[behind.index(True)], shares, range(len(shares))))


def _legend(figure: Any) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(facecolor=COLOURS[kind], label=f"{NAMES[kind]} first") for kind in NAMES
    ]
    patches.append(
        Patch(facecolor="#d9d9d9", label="the table's numbers do not arrive")
    )
    figure.legend(handles=patches, loc="outside lower center", ncols=4, fontsize=7)


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw the figure in the stated setting, and the map."""
    chosen = size(full)
    figures = {"fig2_map": draw_map(get, full)}
    rows = rows_of(get, STATED, chosen.variances, chosen.fresh)
    return {"fig2": draw_setting(rows), **figures} if rows is not None else figures


EXPERIMENT = Experiment(
    "fig2",
    "Who wins, over λ_max and the share of the link",
    "Who is first to ε = 0.05 at σ_w² = 200, and by which factor. Frame: the setting of Fig. 2. Dashed: a-SGD "
    "against mb-L-BFGS with the exact inverse as H; dotted: 2 sin(π/(4l + 2))/h.",
    cells,
    outcomes,
    draw,
    stated,
)
