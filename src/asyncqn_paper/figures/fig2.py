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
from asyncqn_paper.figures.gaussian import FRESH, TARGET, Curve, seeds_and_draws
from asyncqn_paper.records import Record
from asyncqn_paper.rules import (
    GREY,
    Estimate,
    Verdict,
    above,
    all_of,
    curves_apart,
    not_plausible,
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
TUNING = range(20)
FRESH_SEEDS = range(FRESH, FRESH + 600)
"""So many that each test has a power of 0.8 at the least effects of claims.toml."""


class Setting(NamedTuple):
    """A problem with rows alike, and who pays for messages; the rest is the table's."""

    top: float
    payer: str
    integrator: str = "explicit"

    @property
    def choices(self) -> dict[str, str]:
        """The setting in words."""
        return {LAMBDA: f"λ_max = {self.top + 1.0:g}", PAYS: self.payer}

    def parameters(self, kind: str, pairs: bool = True) -> dict[str, Any]:
        """Return the table's parameters; H0 by pairs and quorum 1 are our reading."""
        own = dict(PAPER[kind])
        if kind != SGD:
            own["initial_scale"] = "pair"
        if kind == MB:
            own["quorum"] = 1.0
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


SETTINGS = [Setting(top, payer_of(share)) for top in TOPS for share in SHARES]
STATED = Setting(5.0, payer_of(40.0))
"""The setting that `rules.strongest` finds on the tuning seeds."""


def cells() -> list[Cell]:
    """Return the cells of the map, then those of the stated setting and of its M = 0."""
    found: list[Cell] = []
    for setting in SETTINGS:
        for kind in NAMES:
            found += [setting.curve(kind, v, TUNING) for v in FEW_VARIANCES]
    for kind in NAMES:
        found += [STATED.curve(kind, v, FRESH_SEEDS) for v in VARIANCES]
    return [*found, STATED.curve(AS, NAMED, FRESH_SEEDS, pairs=False)]


Points = dict[float, list[Record]]
"""The records of one method by sigma_w^2."""


def on_map(get: Get, setting: Setting) -> dict[str, Points]:
    """Return the records of a setting on the tuning seeds, by method."""
    return _rows(get, setting, FEW_VARIANCES, TUNING)


def on_fresh_seeds(get: Get) -> dict[str, Points]:
    """Return the records of the stated setting on the fresh seeds, by method."""
    return _rows(get, STATED, VARIANCES, FRESH_SEEDS)


def _rows(
    get: Get, setting: Setting, variances: Sequence[float], seeds: range
) -> dict[str, Points]:
    rows: dict[str, Points] = {}
    for kind in NAMES:
        rows[kind] = {v: get(setting.curve(kind, v, seeds)) for v in variances}
    return rows


def arrives(points: Points) -> bool:
    """Return whether nearly all runs of a method arrive, at each sigma_w^2."""
    late = [times(records).count(None) / len(records) for records in points.values()]
    return max(late) <= 1.0 - ARRIVE + 1e-9


def times(records: Sequence[Record]) -> list[float | None]:
    """Return the times to the target, None for runs that do not arrive."""
    return [record[TARGET] for record in records]


def ratio(slow: Sequence[Record], quick: Sequence[Record]) -> Estimate | str:
    """Estimate the logarithm of the ratio of two times to the target."""
    return times_apart(times(slow), times(quick), seeds_and_draws(slow), LIMIT)


def lead(rows: dict[str, Points], rival: str, variances: Sequence[float]) -> Estimate:
    """Estimate by how much as-L-BFGS leads a rival, in the mean over these sigma_w^2."""
    slow = [times(rows[rival][v]) for v in variances]
    quick = [times(rows[AS][v]) for v in variances]
    draws = seeds_and_draws(rows[AS][variances[0]])
    return curves_apart(slow, quick, draws, LIMIT)


def judge(rows: dict[str, Points], choices: dict[str, str]) -> list[Verdict]:
    """Return the outcomes of the claims of Fig. 2 in one setting."""
    if not arrives(rows[AS]) or not arrives(rows[SGD]):
        # The authors cannot have been where their own parameters do not arrive.
        return not_plausible("fig2", choices, "the table's parameters do not arrive")
    low, *_, high = rows[AS]
    slower = [
        above("fig2-sgd", choices, ratio(rows[SGD][low], rows[kind][low]))
        for kind in (MB, AS)
    ]
    similar = ratio(rows[MB][low], rows[AS][low])
    if not isinstance(similar, str):
        # "Similarly" has two sides: the distance from equal times must stay below the margin.
        similar = similar._replace(value=-abs(similar.value))
    grows = ratio(rows[MB][high], rows[MB][low])
    robust = [
        above("fig2-robust", choices, ratio(rows[kind][low], rows[kind][high]))
        for kind in (SGD, AS)
    ]
    # Where workers are alike as-L-BFGS and mb-L-BFGS are to be similar, so mb counts from 200 on.
    late = [v for v in rows[AS] if v >= NAMED]
    leads = [
        above("fig2-best", choices, lead(rows, SGD, list(rows[AS]))),
        above("fig2-best", choices, lead(rows, MB, late)),
    ]
    parts = [
        all_of("fig2-sgd", choices, slower),
        above("fig2-alike", choices, similar),
        above("fig2-mb", choices, grows),
        all_of("fig2-robust", choices, robust),
        all_of("fig2-best", choices, leads),
    ]
    return [*parts, all_of("fig2", choices, parts)]


def outcomes(get: Get) -> list[Verdict]:
    """Return the outcome of every claim at every point of the map."""
    found = []
    for setting in SETTINGS:
        found += judge(on_map(get, setting), setting.choices)
    return found


def stated(get: Get) -> list[Verdict]:
    """Return the outcomes in the stated setting, on fresh seeds."""
    rows = on_fresh_seeds(get)
    share = STATED.payer.split(", ")[-1]
    words = {
        LAMBDA: f"λ_max is {STATED.top + 1.0:g}",
        PAYS: f"messages keep the link busy for {share} of an exchange",
    }
    control = get(STATED.curve(AS, NAMED, FRESH_SEEDS, pairs=False))
    pairs = above("pairs", words, ratio(control, rows[AS][NAMED]))
    return [*judge(rows, words), pairs]


def least_lead(get: Get) -> str:
    """Return the least lead of as-L-BFGS at a single sigma_w^2, over a-SGD or (from 200 on) mb-L-BFGS."""
    rows = on_fresh_seeds(get)
    leads = {("a-SGD", v): lead(rows, SGD, [v]) for v in VARIANCES}
    for v in VARIANCES:
        if v >= NAMED:
            leads["mb-L-BFGS", v] = lead(rows, MB, [v])
    (rival, v), least = min(leads.items(), key=lambda item: item[1].value)
    factor = math.exp(least.value)
    return f"×{factor:.2f} ± {least.error * factor:.2f} ({rival}, {v:g})"


def _capped(records: Sequence[Record]) -> list[float]:
    """Return the times; runs that do not arrive count as the limit."""
    return [LIMIT if time is None else time for time in times(records)]


def draw_setting(rows: dict[str, Points]) -> Any:
    """Draw the paper's figure: mean times over sigma_w^2 with shades of three standard deviations."""
    figure, axes = panels(1, 1, width=3.6, height=2.7)
    axis = axes[0][0]
    for kind, points in rows.items():
        runs = np.transpose([_capped(records) for records in points.values()])
        band(axis, list(points), runs, NAMES[kind], ALGORITHM_STYLES[kind])
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


COLOURS = {SGD: "#e8a33d", MB: "#4a9d6e", AS: "#3f82c4", GREY: "#d9d9d9"}


def draw_map(get: Get) -> Any:
    """Draw who wins at sigma_w^2 = 200 over lambda_max and the share of the link, with both boundaries."""
    from matplotlib.patches import Patch, Rectangle

    figure, axes = panels(1, 1, width=6.2, height=3.4)
    axis = axes[0][0]
    places = [(x, y) for x in range(len(TOPS)) for y in range(len(SHARES))]
    for (x, y), setting in zip(places, SETTINGS, strict=True):
        rows = on_map(get, setting)
        end = judge(rows, setting.choices)[-1].end
        medians = {kind: np.median(_capped(rows[kind][NAMED])) for kind in NAMES}
        winner, second = sorted(medians, key=lambda kind: medians[kind])[:2]
        colour = COLOURS[GREY if end == GREY else winner]
        axis.add_patch(Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, color=colour))
        if end != GREY:
            words = f"×{medians[second] / medians[winner]:.1f}"
            axis.text(x, y, words, ha="center", va="center", fontsize=7)
        if setting == STATED:
            corner = (x - 0.48, y - 0.48)
            frame = Rectangle(corner, 0.96, 0.96, fill=False, linewidth=2.0, zorder=3)
            axis.add_patch(frame)
    _draw_boundaries(axis)
    axis.set_xticks(range(len(TOPS)), [f"{top + 1.0:g}" for top in TOPS])
    axis.set_yticks(range(len(SHARES)), [f"{share:g} %" for share in SHARES])
    axis.set(xlim=(-0.5, len(TOPS) - 0.5), ylim=(-0.5, len(SHARES) - 0.3))
    axis.set(xlabel="$\\lambda_{max}$", ylabel="link busy, share of an exchange")
    axis.grid(False)
    patches = [Patch(color=COLOURS[k], label=f"{NAMES[k]} first") for k in NAMES]
    patches.append(
        Patch(color=COLOURS[GREY], label="the table's numbers do not arrive")
    )
    figure.legend(handles=patches, loc="outside lower center", ncols=4, fontsize=7)
    return figure


def _draw_boundaries(axis: Any) -> None:
    """Draw where a-SGD is as fast as mb-L-BFGS can be, and the delay limit of a-SGD.

    Between two tiles a boundary stands where the formula crosses, measured along the axis.
    """
    fine = np.linspace(SHARES[0], SHARES[-1], 2001)
    behind = [pace_of_sgd(share) < pace_of_mb(share) for share in fine]
    level = np.interp(fine[behind.index(True)], SHARES, range(len(SHARES)))
    axis.axhline(level, color="black", linewidth=1.2, linestyle="--")
    words = "below: a-SGD beats\nmb-L-BFGS with any H"
    axis.text(len(TOPS) - 2.7, level - 0.1, words, fontsize=6.5, va="top")
    top = math.log(delay_limit_of_sgd() - 1.0)
    limit = np.interp(top, np.log(TOPS), range(len(TOPS)))
    axis.axvline(limit, color="black", linewidth=1.2, linestyle=":")
    words = "delay limit\nof a-SGD"
    height = len(SHARES) - 1.0
    axis.text(limit - 0.08, height, words, fontsize=6.5, ha="right", va="center")


def draw(get: Get) -> dict[str, Any]:
    """Draw the figure in the stated setting, and the map."""
    return {"fig2": draw_setting(on_fresh_seeds(get)), "fig2_map": draw_map(get)}


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
