"""The theory: the bound on the ergodic error, the rates of the abstract, the stationary law.

|E U_N - U*| = O(1/(N h) + max(1, l_max) h + 1/beta), U_N the mean of U over the first N iterates and h the
step of the SDE: h' = h^2, gamma' = h gamma with gamma = 1 here.  Each study varies one quantity where its
term should dominate, with H = I (M = 0) and with pairs (M = 3), on a quadratic: the theorem assumes that the
gradient is Lipschitz.  Every value of a quantity has noise of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import CONTROLS, VARIANTS, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures import remarks
from asyncqn_paper.figures.fig2 import INTEGRATOR
from asyncqn_paper.figures.theory_cells import (
    BASE,
    CROWDS,
    LAW_BETAS,
    LAW_STEPS,
    LENGTHS,
    MEMORIES,
    PAIRS,
    STEP,
    STUDIES,
    Average,
    Cost,
    MomentumLimit,
    chain,
    curvatures,
    law_chain,
    rate_cell,
    recursion_variances,
    speedup_cell,
)
from asyncqn_paper.langevin_sde import expected
from asyncqn_paper.rules import Estimate, Numbers, Outcome, above, all_of, slopes

LAW_WORKERS = (1, 4)
FEW_WORKERS = 4
"""Up to here l_max is of the order of 1 / (N h^2), the condition of a linear speedup."""


BLOCKS = 20
RATE_SEEDS = 15
SPEEDUP_SEEDS = {1: 30, 2: 30, 4: 30}
DRAWN_SEEDS = 3
"""Seeds to a block: of the rate, of the W that decide the speedup, and of the W that are only drawn."""


def _seeds(full: bool) -> int:
    return 10 if full else 3


def _blocks(full: bool) -> range:
    return range(BLOCKS if full else 3)


def _rates(memory: int, full: bool) -> list[list[Average]]:
    """Return the cells of the rate by block and N."""
    seeds = RATE_SEEDS if full else 1
    return [[rate_cell(memory, N, b, seeds) for N in LENGTHS] for b in _blocks(full)]


def _speedups(memory: int, full: bool) -> list[list[Average]]:
    """Return the cells of the speedup by block and W."""
    seeds = SPEEDUP_SEEDS if full else {}
    few = DRAWN_SEEDS if full else 1
    return [
        [speedup_cell(memory, W, b, seeds.get(W, few)) for W in CROWDS]
        for b in _blocks(full)
    ]


def cells(full: bool) -> list[list[Cell]]:
    """Return the cells of the bound, the law, the rates of the abstract, and the remarks."""
    seeds = range(_seeds(full))
    small: list[Cell] = [
        MomentumLimit("explicit"),
        MomentumLimit("modified"),
        Cost(160_000 if full else 16_000),
    ]
    bound = [
        chain(study, memory, value, s, full)
        for memory in MEMORIES
        for study, (_, _, values) in STUDIES.items()
        for value in values
        for s in seeds
    ]
    laws = [
        law_chain(memory, W, beta, h, s, full)
        for memory in MEMORIES
        for W in LAW_WORKERS
        for beta in LAW_BETAS
        for h in LAW_STEPS
        for s in seeds
    ]
    rates: list[Cell] = []
    for memory in MEMORIES:
        for block in (*_rates(memory, full), *_speedups(memory, full)):
            rates += block
    if not full:
        return [[*small, *bound[:40]], remarks.cells(full)]
    return [[*small, *bound], [*laws], rates, remarks.cells(full)]


def jackknifed(value: Callable[[Any], float], lines: Any) -> Estimate:
    """Return a function of the lines (one per seed or block) with its jackknife error."""
    count = len(lines)
    rest = np.array(
        [value([*lines[:k], *lines[k + 1 :]]) for k in range(count)], dtype=float
    )
    # The jackknife: such a number is no mean over the seeds, so that their spread is not its error.
    spread = float(np.sum((rest - rest.mean()) ** 2))
    return Estimate(float(value(lines)), math.sqrt((count - 1) / count * spread), count)


def _study(get: Get, study: str, memory: int, full: bool) -> Numbers | None:
    """Return the mean error in the second half of every run, by seed and value; None where one is missing."""
    lines = []
    for s in range(_seeds(full)):
        line = []
        for value in STUDIES[study][2]:
            records = get(chain(study, memory, value, s, full))
            if records is None:
                return None
            mine = [record["mean"] for record in records if record["part"] == 0.0]
            line.append(math.nan if not mine or mine[0] is None else mine[0])
        lines.append(line)
    return np.array(lines)


def _slope(x: Sequence[float], lines: Numbers | None) -> Estimate | str:
    """Return the slope of the mean over the seeds, in logarithms."""
    if lines is None or not np.isfinite(lines).all():
        return "not run" if lines is None else "a run diverged"
    return jackknifed(lambda some: slopes(x, np.mean(some, axis=0))[0], lines)


Curves = list[list[tuple[Numbers, Numbers]]]
"""n and the mean of U - U* over the first n iterates, by block and by point."""


def averages(get: Get, blocks: Sequence[Sequence[Cell]]) -> Curves | None:
    """Return the curves of all blocks; None where one is missing."""
    curves: Curves = []
    for cells in blocks:
        line = []
        for cell in cells:
            records = get(cell)
            if records is None:
                return None
            n = np.array([record["n"] for record in records], float)
            line.append((n, np.array([record["mean"] for record in records])))
        curves.append(line)
    return curves


def rate_lines(get: Get, memory: int, full: bool) -> Numbers | None:
    """Return the ergodic error at the end of the runs, by block and N."""
    curves = averages(get, _rates(memory, full))
    if curves is None:
        return None
    return np.array([[means[-1] for _, means in line] for line in curves])


def needed(curves: Curves) -> Numbers:
    """Return N_W by W: the iterations until the error that one worker has after `BASE` of them.

    The curves are averaged first: the crossing of a noisy curve is early, and not only noisy.
    """
    counts = []
    goal = 0.0
    for k in range(len(curves[0])):
        n = curves[0][k][0]
        means = np.mean([line[k][1] for line in curves], axis=0)
        if k == 0:
            goal = float(np.interp(BASE, n, means))
        below = means <= goal
        if not below.any():
            counts.append(float(n[-1]))
            continue
        # Means fall along the run, so that the first crossing is interpolated in logarithms.
        last = max(1, int(below.argmax()))
        ends = slice(last - 1, last + 1)
        log_n = np.interp(
            math.log(goal), np.log(means[ends][::-1]), np.log(n[ends][::-1])
        )
        counts.append(math.exp(log_n))
    return np.array(counts)


def speedup_rise(curves: Curves) -> Estimate:
    """Return the slope of log N_W over log W up to `FEW_WORKERS`."""
    few = [W for W in CROWDS if W <= FEW_WORKERS]

    def slope(some: Curves) -> float:
        return float(slopes(few, needed(some)[: len(few)])[0])

    return jackknifed(slope, curves)


def law_ratios(
    get: Get, memory: int, W: int, beta: float, h: float, full: bool
) -> Numbers | None:
    """Variances over those of the law, by seed and direction; None where a run is missing or diverged."""
    target = 1.0 / (beta * curvatures())
    lines = []
    for s in range(_seeds(full)):
        records = get(law_chain(memory, W, beta, h, s, full))
        if records is None or records[-1]["mean"] is None:
            return None
        lines.append([records[-1][f"variance {k}"] / v for k, v in enumerate(target)])
    return np.array(lines)


def mean_square(lines: Numbers) -> float:
    """Return the mean over the directions of the squared mean over the seeds, free of the seeds' noise."""
    lines = np.asarray(lines)
    count = len(lines)
    # The products of different seeds alone: a square of one seed contains its noise.
    cross = lines.sum(axis=0) ** 2 - (lines**2).sum(axis=0)
    return float(np.mean(cross / (count * (count - 1))))


def _law(get: Get, memory: int, W: int, beta: float, full: bool) -> Estimate | str:
    """Return minus the mean square deviation from the law, extrapolated to h = 0."""
    ratios = [law_ratios(get, memory, W, beta, h, full) for h in LAW_STEPS]
    found = [lines - 1.0 for lines in ratios if lines is not None]
    if len(found) < len(ratios):
        return "not run, or a run diverged"
    # The intercept of a straight line through three steps is a weighted sum of the three.
    steps = np.array(LAW_STEPS) - np.mean(LAW_STEPS)
    weights = 1.0 / len(steps) - np.mean(LAW_STEPS) * steps / (steps @ steps)
    intercepts = np.einsum("k,ksd->sd", weights, np.array(found))
    squared = jackknifed(mean_square, intercepts)
    return squared._replace(value=-squared.value)


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes of the bound, the rates and the law, and of the small claims."""
    found: list[Outcome] = remarks.outcomes(get, full)
    for memory, words in MEMORIES.items():
        choices = {PAIRS: words}
        parts = []
        for study, (claim, _, x) in STUDIES.items():
            slope = _slope(x, _study(get, study, memory, full))
            if study != "h" and not isinstance(slope, str):
                slope = slope._replace(value=-slope.value)
            parts.append(above(claim, choices, slope))
        rate = _slope(LENGTHS, rate_lines(get, memory, full))
        if not isinstance(rate, str):
            rate = rate._replace(value=-rate.value)
        parts.append(above("rate", choices, rate))
        curves = averages(get, _speedups(memory, full))
        rise = None if curves is None else speedup_rise(curves)
        if rise is not None:
            rise = rise._replace(value=-rise.value)
        found += [
            *parts,
            all_of("theory", choices, parts),
            above("speedup", choices, rise),
        ]
        for W in LAW_WORKERS:
            for beta in LAW_BETAS:
                setting = {**choices, "workers": f"W = {W}", "β": f"{beta:g}"}
                found.append(above("law", setting, _law(get, memory, W, beta, full)))
    return [*found, *_small(get, full)]


def _small(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes of SGD with momentum as the limit, of the cost of a step, and of Gamma."""
    found = []
    for integrator in ("explicit", "modified"):
        records = get(MomentumLimit(integrator))
        if records:
            # Equal bits would have infinitely many digits.
            digits = -math.log10(max(records[0]["difference"], 1e-16))
            limit = Estimate(digits, 0.0, 1)
            found.append(above("momentum-limit", {INTEGRATOR: integrator}, limit))
    records = get(Cost(160_000 if full else 16_000))
    if records:
        x = [math.log(r["M"] * r["d"]) for r in records]
        y = [math.log(r["time"]) for r in records]
        # The cost of calls lowers the slope at small M d, vectors that outgrow the caches raise it at
        # large.
        fit, covariance = np.polyfit(x, y, 1, cov=True)
        cost = Estimate(-float(fit[0]), math.sqrt(float(covariance[0, 0])), len(x))
        found.append(above("cost", {"measured": "processor time"}, cost))
    # 500 and 1000 are the beta of the paper's Tables 1 and 3.
    for beta in (1.0, 10.0, 100.0, 500.0, 1000.0):
        with_, without = (expected(beta, corrected)[1] for corrected in (True, False))
        apart = Estimate(-abs(math.log(without / with_)), 0.0, 0)
        found.append(above("gamma", {"β": f"{beta:g}"}, apart))
    return found


LOOKS = {0: CONTROLS[1], 3: VARIANTS[3]}


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw the law over l h beside the closed form, and the two rates of the abstract."""
    figure, axes = panels(1, 3, width=2.9, height=2.9)
    _draw_law(axes[0][0], get, full)
    for memory, look in LOOKS.items():
        label = f"pairs {MEMORIES[memory]}"
        lines = rate_lines(get, memory, full)
        if lines is not None:
            bars = 2.0 * lines.std(axis=0, ddof=1) / math.sqrt(len(lines))
            mean = lines.mean(axis=0)
            axes[0][1].errorbar(LENGTHS, mean, yerr=bars, label=label, **look)
        curves = averages(get, _speedups(memory, full))
        if curves is not None:
            axes[0][2].plot(CROWDS, needed(curves), label=label, **look)
    for axis in axes[0][1:]:
        axis.set(xscale="log", yscale="log")
    start = axes[0][1].get_ylim()[1] / 1.5
    guide = start * np.sqrt(LENGTHS[0] / np.array(LENGTHS))
    axes[0][1].plot(LENGTHS, guide, color="black", linestyle=":", label="slope −1/2")
    axes[0][1].set(xlabel="iterations N, h ∝ 1/√N", ylabel="ergodic error")
    condition = 1.0 + 1.0 / STEP**2
    axes[0][2].axvline(condition, color="black", linewidth=0.8)
    axes[0][2].text(condition, 450.0, " l = 1/(N h²)", fontsize=6.5)
    axes[0][2].axhline(BASE, color="black", linestyle=":", label="linear speedup")
    axes[0][2].set(
        xlabel="workers W",
        ylabel="iterations to equal error",
        ylim=(BASE / 3, BASE * 5),
    )
    for axis, ticks in ((axes[0][1], LENGTHS), (axes[0][2], CROWDS)):
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
        few_decades(axis)
    for axis in axes[0]:
        axis.legend(fontsize=6.5)
    return {"theory_map": figure}


def _draw_law(axis: Any, get: Get, full: bool) -> None:
    """Draw the root mean square deviation of the variances against l h, beside the recursion's own."""
    for memory, look in LOOKS.items():
        for W, marker in zip(LAW_WORKERS, "os", strict=True):
            points = []
            for h in LAW_STEPS:
                for beta in LAW_BETAS:
                    ratios = law_ratios(get, memory, W, beta, h, full)
                    if ratios is not None:
                        deviation = math.sqrt(max(0.0, mean_square(ratios - 1.0)))
                        points.append((max(1, W - 1) * h, deviation))
            if points:
                x, y = np.array(points).T
                style = {**look, "marker": marker, "linestyle": "none"}
                axis.plot(x, y, label=f"pairs {MEMORIES[memory]}, W = {W}", **style)
    for W, dash in zip(LAW_WORKERS, ("-", "--"), strict=True):
        fine = np.geomspace(0.002, 0.025, 12)
        closed = [
            np.sqrt(np.mean((recursion_variances(W, h) - 1.0) ** 2)) for h in fine
        ]
        axis.plot(
            max(1, W - 1) * fine,
            closed,
            color="black",
            linestyle=dash,
            linewidth=0.9,
            label=f"closed form, H = I, W = {W}",
        )
    axis.set(
        xlabel="max(1, l) h", ylabel="deviation of the variances", xlim=0.0, ylim=0.0
    )


EXPERIMENT = Experiment(
    "theory",
    "The law over l h, and the rates of the abstract",
    "Left: root mean square of variance/law − 1, a point for each β.",
    cells,
    outcomes,
    draw,
)
