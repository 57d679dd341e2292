"""The theory: the bound on the ergodic error, the rates of the abstract, the stationary law.

|E U_N - U*| = O(1/(N h) + max(1, l_max) h + 1/beta), U_N the mean of U over the first N iterates and h the
step of the SDE: h' = h^2, gamma' = h gamma with gamma = 1 here.  Each study varies one quantity where its
term should dominate, with H = I (M = 0) and with pairs (M = 3), on a quadratic: the theorem assumes that the
gradient is Lipschitz.  Every value of a quantity has noise of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import CONTROL, VARIANTS, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures import remarks
from asyncqn_paper.figures.fig2 import INTEGRATOR
from asyncqn_paper.figures.theory_cells import (
    BASE,
    CROWDS,
    LENGTHS,
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
from asyncqn_paper.rules import Estimate, Numbers, Verdict, above, all_of, slopes

PAIRS = "curvature pairs"
MEMORIES = {0: "off (H = I)", 3: "on (M = 3)"}
SEEDS = range(10)
BLOCKS = range(20)
LAW_STEPS = (0.02, 0.01, 0.005)
LAW_PLACES = list(itertools.product((1, 4), (1.0, 10.0, 100.0)))
"""W and beta."""
FEW_WORKERS = 4
"""Up to here l_max is of the order of 1 / (N h^2), the condition of a linear speedup."""
BETAS = (1.0, 10.0, 100.0, 500.0, 1000.0)
"""Of Gamma; 500 and 1000 are those of the paper's Tables 1 and 3."""
INTEGRATORS = ("explicit", "modified")
COST = Cost(160_000)


def rate_blocks(memory: int) -> list[list[Average]]:
    """Return the cells of the rate by block and N."""
    return [[rate_cell(memory, N, block) for N in LENGTHS] for block in BLOCKS]


def speedup_blocks(memory: int) -> list[list[Average]]:
    """Return the cells of the speedup by block and W."""
    return [[speedup_cell(memory, W, block) for W in CROWDS] for block in BLOCKS]


def cells() -> list[Cell]:
    """Return the cells of the small claims, the bound, the law, the rates of the abstract, and the remarks."""
    found: list[Cell] = [*(MomentumLimit(one) for one in INTEGRATORS), COST]
    for memory in MEMORIES:
        for study, (_, values) in STUDIES.items():
            for value in values:
                found += [chain(study, memory, value, seed) for seed in SEEDS]
        for (W, beta), h in itertools.product(LAW_PLACES, LAW_STEPS):
            found += [law_chain(memory, W, beta, h, seed) for seed in SEEDS]
        for block in (*rate_blocks(memory), *speedup_blocks(memory)):
            found += block
    return found + remarks.cells()


def jackknifed(value: Callable[[Any], float], lines: Any) -> Estimate:
    """Return a function of the lines (one per seed or block) with its jackknife error."""
    count = len(lines)
    rest = np.array([value([*lines[:k], *lines[k + 1 :]]) for k in range(count)])
    # The jackknife: such a number is no mean over the seeds, so that their spread is not its error.
    spread = float(np.sum((rest - rest.mean()) ** 2))
    return Estimate(float(value(lines)), math.sqrt((count - 1) / count * spread), count)


def _slope(x: Sequence[float], lines: Numbers) -> Estimate | str:
    """Return the slope of the mean over the seeds, in logarithms."""
    if not np.isfinite(lines).all():
        return "a run diverged"
    return jackknifed(lambda some: slopes(x, np.mean(some, axis=0))[0], lines)


def _fall(x: Sequence[float], lines: Numbers) -> Estimate | str:
    """Return minus that slope."""
    slope = _slope(x, lines)
    return slope if isinstance(slope, str) else slope._replace(value=-slope.value)


def study_lines(get: Get, study: str, memory: int) -> Numbers:
    """Return the mean error in the second half of every run, by seed and value; NaN after a divergence."""
    lines = []
    for seed in SEEDS:
        runs = [get(chain(study, memory, value, seed)) for value in STUDIES[study][1]]
        lines.append([records[0]["mean"] for records in runs])
    return np.array(lines, float)


Curves = list[list[tuple[Numbers, Numbers]]]
"""n and the mean of U - U* over the first n iterates, by block and by point."""


def averages(get: Get, blocks: Sequence[Sequence[Cell]]) -> Curves:
    """Return the curves of all blocks."""
    curves: Curves = []
    for cells in blocks:
        line = []
        for cell in cells:
            records = get(cell)
            n = np.array([record["n"] for record in records], float)
            means = [record["mean"] for record in records]
            # After a divergence the mean is infinite.
            line.append((n, np.array([np.inf if m is None else m for m in means])))
        curves.append(line)
    return curves


def rate_lines(get: Get, memory: int) -> Numbers:
    """Return the ergodic error at the end of the runs, by block and N."""
    curves = averages(get, rate_blocks(memory))
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
            counts.append(math.nan)
            continue
        # Means fall along the run, so that the first crossing is interpolated in logarithms.
        last = max(1, int(below.argmax()))
        pair = slice(last - 1, last + 1)
        falling = np.log(means[pair][::-1])
        log_n = np.interp(math.log(goal), falling, np.log(n[pair][::-1]))
        counts.append(math.exp(log_n))
    return np.array(counts)


def speedup_rise(curves: Curves) -> Estimate:
    """Return the slope of log N_W over log W up to `FEW_WORKERS`."""
    few = [W for W in CROWDS if W <= FEW_WORKERS]

    def slope(some: Curves) -> float:
        return float(slopes(few, needed(some)[: len(few)])[0])

    return jackknifed(slope, curves)


def law_ratios(get: Get, memory: int, W: int, beta: float, h: float) -> Numbers:
    """Return variances over those of the law, by seed and direction; NaN after a divergence."""
    target = 1.0 / (beta * curvatures())
    lines = []
    for seed in SEEDS:
        record = get(law_chain(memory, W, beta, h, seed))[0]
        variances = [record.get(f"variance {k}") for k in range(len(target))]
        lines.append(np.array(variances, float) / target)
    return np.array(lines)


def mean_square(lines: Any) -> float:
    """Return the mean over the directions of the squared mean over the seeds, free of the seeds' noise."""
    values = np.asarray(lines)
    count = len(values)
    # The products of different seeds alone: a square of one seed contains its noise.
    cross = values.sum(axis=0) ** 2 - (values**2).sum(axis=0)
    return float(np.mean(cross / (count * (count - 1))))


def law_deviation(get: Get, memory: int, W: int, beta: float) -> Estimate | str:
    """Return minus the mean square deviation from the law, extrapolated to h = 0."""
    ratios = [law_ratios(get, memory, W, beta, h) for h in LAW_STEPS]
    deviations = np.array(ratios) - 1.0
    if not np.isfinite(deviations).all():
        return "a run diverged"
    # The intercept of a straight line through three steps is a weighted sum of the three.
    steps = np.array(LAW_STEPS) - np.mean(LAW_STEPS)
    weights = 1.0 / len(steps) - np.mean(LAW_STEPS) * steps / (steps @ steps)
    intercepts = np.einsum("k,ksd->sd", weights, deviations)
    squared = jackknifed(mean_square, list(intercepts))
    return squared._replace(value=-squared.value)


def outcomes(get: Get) -> list[Verdict]:
    """Return the outcomes of the bound, the rates and the law, and of the small claims."""
    found = remarks.outcomes(get)
    for memory, words in MEMORIES.items():
        choices = {PAIRS: words}
        parts = []
        for study, (claim, values) in STUDIES.items():
            lines = study_lines(get, study, memory)
            # The bias has to rise with h, and to fall with beta or not to rise with W.
            trend = _slope(values, lines) if study == "h" else _fall(values, lines)
            parts.append(above(claim, choices, trend))
        rate = _fall(LENGTHS, rate_lines(get, memory))
        parts.append(above("rate", choices, rate))
        rise = speedup_rise(averages(get, speedup_blocks(memory)))
        found += [*parts, all_of("theory", choices, parts)]
        found.append(above("speedup", choices, rise._replace(value=-rise.value)))
        for W, beta in LAW_PLACES:
            setting = {**choices, "workers": f"W = {W}", "β": f"{beta:g}"}
            found.append(above("law", setting, law_deviation(get, memory, W, beta)))
    return [*found, *_small(get)]


def _small(get: Get) -> list[Verdict]:
    """Return the outcomes of SGD with momentum as the limit, of the cost of a step, and of Gamma."""
    found = []
    for integrator in INTEGRATORS:
        difference = get(MomentumLimit(integrator))[0]["difference"]
        # Equal bits would have infinitely many digits.
        limit = Estimate(-math.log10(max(difference, 1e-16)), 0.0, 1)
        found.append(above("momentum-limit", {INTEGRATOR: integrator}, limit))
    records = get(COST)
    x = [math.log(record["M"] * record["d"]) for record in records]
    y = [math.log(record["time"]) for record in records]
    # The cost of calls lowers the slope at small M d, vectors that outgrow the caches raise it at large.
    fit, covariance = np.polyfit(x, y, 1, cov=True)
    cost = Estimate(-float(fit[0]), math.sqrt(float(covariance[0, 0])), len(x))
    found.append(above("cost", {"measured": "processor time"}, cost))
    for beta in BETAS:
        with_, without = (expected(beta, corrected)[1] for corrected in (True, False))
        apart = Estimate(-abs(math.log(without / with_)), 0.0, 0)
        found.append(above("gamma", {"β": f"{beta:g}"}, apart))
    return found


LOOKS = {0: CONTROL, 3: VARIANTS[3]}


def draw(get: Get) -> dict[str, Any]:
    """Draw the law over l h beside the closed form, and the two rates of the abstract."""
    figure, axes = panels(1, 3, width=2.9, height=2.9)
    _draw_law(axes[0][0], get)
    _, rate, speedup = axes[0]
    for memory, look in LOOKS.items():
        label = f"pairs {MEMORIES[memory]}"
        lines = rate_lines(get, memory)
        bars = 2.0 * lines.std(axis=0, ddof=1) / math.sqrt(len(lines))
        rate.errorbar(LENGTHS, lines.mean(axis=0), yerr=bars, label=label, **look)
        curves = averages(get, speedup_blocks(memory))
        speedup.plot(CROWDS, needed(curves), label=label, **look)
    for axis, ticks in ((rate, LENGTHS), (speedup, CROWDS)):
        axis.set(xscale="log", yscale="log")
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
    start = rate.get_ylim()[1] / 1.5
    guide = start * np.sqrt(LENGTHS[0] / np.array(LENGTHS))
    rate.plot(LENGTHS, guide, color="black", linestyle=":", label="slope −1/2")
    rate.set(xlabel="iterations N, h ∝ 1/√N", ylabel="ergodic error")
    condition = 1.0 + 1.0 / STEP**2
    speedup.axvline(condition, color="black", linewidth=0.8)
    speedup.text(condition, 450.0, " l = 1/(N h²)", fontsize=6.5)
    speedup.axhline(BASE, color="black", linestyle=":", label="linear speedup")
    speedup.set(xlabel="workers W", ylabel="iterations to equal error")
    speedup.set(ylim=(BASE / 3, BASE * 5))
    for axis in (rate, speedup):
        few_decades(axis)
    for axis in axes[0]:
        axis.legend(fontsize=6.5)
    return {"theory_map": figure}


def _draw_law(axis: Any, get: Get) -> None:
    """Draw the root mean square deviation of the variances against l h, beside the recursion's own."""
    marks = {1: ("o", "-"), 4: ("s", "--")}
    for memory, look in LOOKS.items():
        for W, (marker, _) in marks.items():
            x = []
            y = []
            for (w, beta), h in itertools.product(LAW_PLACES, LAW_STEPS):
                if w == W:
                    square = mean_square(law_ratios(get, memory, W, beta, h) - 1.0)
                    x.append(max(1, W - 1) * h)
                    y.append(math.sqrt(max(0.0, square)))
            style = {**look, "marker": marker, "linestyle": "none"}
            axis.plot(x, y, label=f"pairs {MEMORIES[memory]}, W = {W}", **style)
    fine = np.geomspace(0.002, 0.025, 12)
    for W, (_, dash) in marks.items():
        closed = []
        for h in fine:
            squares = (recursion_variances(W, h) - 1.0) ** 2
            closed.append(math.sqrt(squares.mean()))
        label = f"closed form, H = I, W = {W}"
        style = {"color": "black", "linestyle": dash, "linewidth": 0.9}
        axis.plot(max(1, W - 1) * fine, closed, label=label, **style)
    axis.set(xlabel="max(1, l) h", ylabel="deviation of the variances")
    axis.set(xlim=0.0, ylim=0.0)


EXPERIMENT = Experiment(
    "theory",
    "The law over l h, and the rates of the abstract",
    "Left: root mean square of variance/law − 1, a point for each β.",
    cells,
    outcomes,
    draw,
)
