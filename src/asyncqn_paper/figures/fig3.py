"""Figure 3: iterations and time to epsilon of as-L-BFGS against the number of workers, sigma_w^2 = 200.

The paper uses a smaller step where there are more workers and does not say which.  Here every point (problem,
payer, sigma_w^2, W), W = 1 too, has the same budget: 42 pairs of q = h c^2 lambda / gamma (how fast the error
falls per commit) and gamma W on six tuning seeds; the fastest of those that always arrive is measured on fresh
seeds and draws.

The map has two axes: the problem, and the share of an exchange of messages during which it keeps the master's
link busy.  The stated setting is the one that `rules.strongest` finds on the tuning seeds of the map.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import ALGORITHM_STYLES, VARIANTS, band, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.fig2 import PAYS, PROBLEM, SOME_PAIRS, payer_of
from asyncqn_paper.figures.gaussian import (
    COMMITS,
    FRESH,
    TARGET,
    Curve,
    largest,
    scale_below_limit,
    seeds_and_draws,
)
from asyncqn_paper.records import Record
from asyncqn_paper.rules import (
    CLAIMS,
    Estimate,
    Verdict,
    above,
    all_of,
    estimate,
    slopes,
    strongest,
    trend,
)
from asyncqn_paper.settings import (
    MESSAGE,
    NOBODY,
    PAPER,
    PRODUCTS,
    algorithm,
    cluster,
    given,
)

WORKERS = (1, 2, 5, 10, 20, 40, 70, 100)
LATE = 20
NAMED = 200.0
SPREADS = (0.0, 900.0)
RATES = tuple(float(f"{rate:.3g}") for rate in np.geomspace(0.0005, 0.6, 14))
FRICTIONS = (0.2, 0.5, 1.0)
LARGEST_FRICTION = 0.3
TUNING_SEEDS = range(2_000_000, 2_000_006)
# Mean time of a worker from one message to the next, 80 units: mu_w = 10 + 60 and tau = 10.
CYCLE = 10.0 + PRODUCTS["as-lbfgs"] + MESSAGE
MOST_COMMITS = 6000.0
PROBLEMS = ("rows-alike-1", "rows-alike-8", "five-directions-8")
SAID = {
    "rows-alike-1": "rows are alike, λ_max is 2",
    "rows-alike-8": "rows are alike, λ_max is 9",
    "five-directions-8": "rows are of five kinds",
}
SHARES = (0.0, 5.0, 10.0, 20.0, 40.0)
"""Percent of an exchange during which the link is busy.  With 5 to 40 it serves 160, 80, 40 and 20 workers."""
SEEDS = 20
MORE_SEEDS = 40
"""Fresh seeds of the map, and of the problem and payer whose spreads of sigma_w^2 are compared."""
WIDEST = ("five-directions-8", NOBODY)


@dataclass(frozen=True)
class Point(Cell):
    """One W: the tuning runs of the step that is chosen on the tuning seeds, then fresh runs with it."""

    table: ClassVar[str] = "workers"
    problem: str
    payer: str
    workers: int
    variance: float
    fresh: int

    def parameters(self, rate: float, friction: float) -> dict[str, Any]:
        """Return the table's parameters with gamma and h from the numbers of the grid."""
        # The friction falls as 1/W because stale friction is unstable above about 1.6/W.
        scale = scale_below_limit(self.problem)
        gamma = min(LARGEST_FRICTION, friction / self.workers)
        h = rate * gamma / (scale**2 * largest(self.problem))
        own = {"initial_scale": scale, "epsilon": SOME_PAIRS}
        return {**PAPER["as-lbfgs"], **own, "gamma": gamma, "h": h}

    @property
    def limit(self) -> float:
        """The time that a run may take: so many commits, at the pace that the link allows."""
        share = 0.0 if self.payer == NOBODY else float(self.payer.split(", ")[1][:-2])
        served = 100.0 * CYCLE / (share * MESSAGE) if share else np.inf
        return float(MOST_COMMITS * CYCLE / min(self.workers, served))

    def runs(self, own: Mapping[str, Any], seeds: range, limit: float) -> list[Record]:
        """Return repetitions with these parameters, up to the first that does not arrive in the tuning."""
        curve = Curve(
            self.problem, "as-lbfgs", given(own), self.variance, 1, limit=limit
        )
        machines = cluster("as-lbfgs", self.workers, self.variance, payer=self.payer)
        method = algorithm("as-lbfgs", own)
        records = []
        for seed in seeds:
            records.append(curve.run(method, machines, seed))
            if seeds == TUNING_SEEDS and records[-1][TARGET] is None:
                break
        return records

    def tuned(self) -> tuple[dict[str, Any], list[Record]]:
        """Return the fastest parameters that always arrive on the tuning seeds, and these runs."""
        best = np.inf
        limit = self.limit
        chosen = self.parameters(RATES[0], FRICTIONS[0])
        records: list[Record] = []
        # From the largest step down: the first that arrives bounds the time that slower ones may take.
        for rate, friction in itertools.product(reversed(RATES), FRICTIONS):
            own = self.parameters(rate, friction)
            trial = self.runs(own, TUNING_SEEDS, limit)
            times = [record[TARGET] for record in trial]
            if None not in times and np.mean(np.log(times)) < best:
                best = float(np.mean(np.log(times)))
                chosen = own
                records = trial
                # Nothing slower can win.
                limit = min(self.limit, 3.0 * max(times))
        return chosen, records or self.runs(chosen, TUNING_SEEDS, self.limit)

    def measure(self) -> list[Record]:
        own, tuning = self.tuned()
        fresh = self.runs(own, range(FRESH, FRESH + self.fresh), self.limit)
        step = {"h": own["h"], "gamma": own["gamma"]}
        return [{**record, **step} for record in (*tuning, *fresh)]


Place = tuple[str, str]
"""A problem and a payer."""
PLACES: list[Place] = [(p, payer_of(share)) for p in PROBLEMS for share in SHARES]


def point(place: Place, W: int, variance: float = NAMED) -> Point:
    """Return the cell of one W."""
    return Point(*place, W, variance, MORE_SEEDS if place == WIDEST else SEEDS)


def cells() -> list[Cell]:
    """Return the points of the map, then those of other sigma_w^2."""
    found: list[Cell] = [point(place, W) for place in PLACES for W in WORKERS]
    found += [point(WIDEST, W, v) for v in SPREADS for W in WORKERS]
    return found


Rows = dict[int, list[Record]]


def rows_of(
    get: Get, place: Place, variance: float = NAMED, tuning: bool = False
) -> Rows:
    """Return the records by W, fresh ones or those of the tuning."""
    rows: Rows = {}
    for W in WORKERS:
        records = get(point(place, W, variance))
        rows[W] = [r for r in records if (r["seed"] in TUNING_SEEDS) == tuning]
    return rows


def _table(rows: Rows, name: str, late: int = 1) -> tuple[list[int], Any, list[int]]:
    """Return the numbers of workers, one curve per seed and its draws; late runs count as the longest."""
    workers = [W for W in rows if late <= W]
    count = min(len(records) for records in rows.values())
    columns = []
    for W in workers:
        column = [r[name] for r in rows[W][:count]]
        columns.append([np.nan if value is None else value for value in column])
    values = np.array(columns).T
    longest = np.nanmax(values, axis=0)
    values = np.where(np.isnan(values), longest, np.maximum(values, 1.0))
    return workers, values, seeds_and_draws(next(iter(rows.values()))[:count])


def _fall(rows: Rows, late: int = 1) -> Estimate:
    """Return minus the trend of the time over W."""
    slope = trend(*_table(rows, TARGET, late))
    return slope._replace(value=-slope.value)


def judge(rows: Rows, choices: dict[str, str]) -> list[Verdict]:
    """Return the outcomes of the claims of Fig. 3 in one setting."""
    for W, records in rows.items():
        if all(record[TARGET] is None for record in records):
            because = f"no step of the budget arrives at W = {W}"
            claims = (*CLAIMS["fig3"].parts, "fig3")
            return [above(claim, choices, because) for claim in claims]
    rise = trend(*_table(rows, COMMITS))
    parts = [
        above("fig3-iterations", choices, rise),
        above("fig3-time", choices, _fall(rows)),
        above("fig3-late", choices, _fall(rows, late=LATE)),
    ]
    return [*parts, all_of("fig3", choices, parts)]


def _words(place: Place) -> dict[str, str]:
    problem, payer = place
    return {PROBLEM: problem.replace("-", " "), PAYS: payer}


def stated_place(get: Get) -> Place:
    """Return the problem and payer that the rule finds on the tuning seeds."""
    settings = {}
    for place in PLACES:
        rows = rows_of(get, place, tuning=True)
        settings[" | ".join(place)] = judge(rows, _words(place))
    best = strongest(settings, CLAIMS["fig3"].parts)
    assert best is not None
    problem, payer = best.split(" | ")
    return problem, payer


def outcomes(get: Get) -> list[Verdict]:
    """Return the outcomes at every point of the map, on fresh seeds."""
    found = []
    for place in PLACES:
        found += judge(rows_of(get, place), _words(place))
    return found


def stated(get: Get) -> list[Verdict]:
    """Return the outcomes in the stated setting, with the remark on sigma_w^2."""
    place = stated_place(get)
    few, many = (rows_of(get, WIDEST, variance) for variance in SPREADS)
    workers, quick, draws = _table(few, TARGET)
    _, slow, _ = _table(many, TARGET)
    apart = estimate(slopes(workers, slow) - slopes(workers, quick), draws)
    remark = above("fig3-variance", _words(WIDEST), apart)
    problem, payer = place
    words = {PROBLEM: SAID[problem], PAYS: "nobody pays for messages"}
    if payer != NOBODY:
        share = payer.split(", ")[-1]
        words[PAYS] = f"messages keep the link busy for {share} of an exchange"
    return [*judge(rows_of(get, place), words), remark]


def draw(get: Get) -> dict[str, Any]:
    """Draw the paper's two panels, and the map: speedup over W by who pays, for every problem."""
    rows = rows_of(get, stated_place(get))
    figure, axes = panels(1, 2, width=2.5, height=2.5)
    labels = {COMMITS: r"iterations to $\varepsilon$", TARGET: r"time to $\varepsilon$"}
    for axis, (name, label) in zip(axes[0], labels.items(), strict=True):
        workers, values, _ = _table(rows, name)
        look = ALGORITHM_STYLES["as-lbfgs"]
        band(axis, workers, values, "as-L-BFGS", look, least=0.1)
        axis.set(xscale="log", yscale="log", xlabel="workers W", ylabel=label)
        axis.set_xticks((1, 10, 100), ("1", "10", "100"))
        few_decades(axis)
    whole, axes = panels(1, len(PROBLEMS), width=2.6, height=2.9)
    for problem, axis in zip(PROBLEMS, axes[0], strict=True):
        for share, look in zip(SHARES, VARIANTS, strict=False):
            _speedup(axis, rows_of(get, (problem, payer_of(share))), share, look)
        axis.plot(WORKERS, WORKERS, color="black", linestyle=":")
        axis.set(xscale="log", yscale="log", xlabel="workers W", ylim=(0.7, 40.0))
        axis.set_xticks((1, 3, 10, 30, 100), ("1", "3", "10", "30", "100"))
        axis.set_title(problem.replace("-", " "), fontsize=8)
        few_decades(axis)
    axes[0][0].set_ylabel("speedup in time")
    axes[0][0].legend(fontsize=6.5)
    return {"fig3": figure, "fig3_map": whole}


def _speedup(axis: Any, rows: Rows, share: float, look: dict[str, Any]) -> None:
    """Draw the speedup over W with two errors."""
    workers, values, draws = _table(rows, TARGET)
    logs = np.log(values[:, :1] / values)
    points = [estimate(logs[:, k], draws) for k in range(len(workers))]
    speed = np.exp([point.value for point in points])
    wide = 2.0 * speed * np.array([point.error for point in points])
    label = f"link busy {share:g} %" if share else "nobody pays"
    axis.errorbar(workers, speed, yerr=wide, capsize=2, label=label, **look)


EXPERIMENT = Experiment(
    "fig3",
    "Speedup over W by problem and by who pays",
    "The step is tuned for every W, W = 1 too, with equal budgets; two errors. A link that is busy for 20 % of "
    "an exchange serves 40 workers.",
    cells,
    outcomes,
    draw,
    stated,
)
