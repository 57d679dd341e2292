"""The theory: the bound on the ergodic error, the stationary law, and what the proof leaves out.

|E U_N - U*| = O(1/(N h) + max(1, l_max) h + 1/beta), U_N the mean of U over the first N iterates and h the
step of the SDE: h' = h^2, gamma' = h gamma with gamma = 1 here.  Each study varies one quantity where its
term should dominate, on a quadratic and on a non-convex U, with H = I (M = 0) and with pairs (M = 3).
Every value of a quantity has noise of its own: the trajectories of one seed at two temperatures would be
multiples of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import CONTROLS, VARIANTS, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures import remarks
from asyncqn_paper.figures.fig2 import INTEGRATOR
from asyncqn_paper.figures.theory_cells import (
    FUNCTION,
    FUNCTIONS,
    LAW_BETAS,
    LAW_STEPS,
    MEMORIES,
    PAIRS,
    STUDIES,
    Cost,
    MomentumLimit,
    chain,
    law,
    law_chain,
)
from asyncqn_paper.figures.verdicts import TITLES, estimates, verdict_bars
from asyncqn_paper.langevin_sde import LINE, expected
from asyncqn_paper.rules import CLAIMS, UNDECIDED, Estimate, Outcome, above, all_of


def _size(full: bool) -> tuple[int, tuple[str, ...]]:
    return (10, FUNCTIONS) if full else (3, FUNCTIONS[:1])


def cells(full: bool) -> list[list[Cell]]:
    """Return the cells of the bound and of the small claims first, then those of the law."""
    seeds, functions = _size(full)
    small: list[Cell] = [
        MomentumLimit("explicit"),
        MomentumLimit("modified"),
        Cost(160_000 if full else 16_000),
    ]

    def bound(functions: Sequence[str], memories: Sequence[int]) -> list[Cell]:
        return [
            chain(study, function, memory, value, s, full)
            for function in functions
            for memory in memories
            for study, (_, _, values) in STUDIES.items()
            for value in values
            for s in range(seeds)
        ]

    def laws(betas: Sequence[float], steps: Sequence[float]) -> list[Cell]:
        return [
            law_chain(function, memory, W, beta, h, s, full)
            for function in functions
            for memory in MEMORIES
            for W in (1, 4)
            for beta in betas
            for h in steps
            for s in range(seeds)
        ]

    if not full:
        return [
            [*small, *bound(functions, (0, 3)), *laws(LAW_BETAS[:1], LAW_STEPS[:1])],
            remarks.cells(full),
        ]
    # The smallest h decides the law, so it comes first; larger ones show the trend.
    finest = LAW_STEPS[-1:]
    return [
        [*small, *bound(functions[:1], (3,))],
        [*bound(functions[1:], (3,)), *laws(LAW_BETAS[:1], finest)],
        [*bound(functions, (0,)), *laws(LAW_BETAS, finest)],
        laws(LAW_BETAS, LAW_STEPS),
        remarks.cells(full),
    ]


def slope(x: Any, y: Any) -> float:
    """Slope of log y over log x by least squares."""
    lx = np.log(np.asarray(x, float))
    ly = np.log(np.asarray(y, float))
    lx = lx - lx.mean()
    return float(lx @ (ly - ly.mean()) / (lx @ lx))


def jackknifed(x: Sequence[float], values: Any) -> Estimate | str:
    """Return the slope of the mean over the seeds (first axis), with its jackknife error."""
    values = np.asarray(values, float)
    if not np.isfinite(values).all():
        return "a run diverged"
    means = [
        values.mean(axis=0),
        *(np.delete(values, k, 0).mean(axis=0) for k in range(len(values))),
    ]
    # A mean below the floor of the noise has no logarithm.
    if min(float(mean.min()) for mean in means) <= 0.0:
        return "the mean error is not positive"
    all_, *rest = (slope(x, mean) for mean in means)
    n = len(rest)
    # The jackknife: the slope is no mean of slopes, so that its error cannot be taken from their spread.
    return Estimate(
        all_,
        math.sqrt((n - 1) / n * float(np.sum((np.array(rest) - np.mean(rest)) ** 2))),
        n,
    )


def _values(get: Get, study: str, function: str, memory: int, full: bool) -> Any:
    """Errors by seed and value; None where a run is missing."""
    seeds, _ = _size(full)
    values = STUDIES[study][2]
    lines = []
    for s in range(seeds):
        line = []
        for k, value in enumerate(values):
            records = get(chain(study, function, memory, value, s, full))
            if records is None:
                return None
            # The records of a chain: means until N/16, ..., N, and under 0.0 that of its second half.
            part = (0.0625, 0.125, 0.25, 0.5, 1.0)[k] if study == "N" else 0.0
            mine = [r["mean"] for r in records if r["part"] == part]
            line.append(math.nan if not mine or mine[0] is None else mine[0])
        lines.append(line)
    return np.array(lines)


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes of the bound and the law in every finished setting, and of the small claims."""
    found: list[Outcome] = remarks.outcomes(get, full)
    for function in _size(full)[1]:
        for memory, words in MEMORIES.items():
            choices = {FUNCTION: function, PAIRS: words}
            parts = {
                study: _bound(get, study, function, memory, choices, full)
                for study in STUDIES
            }
            there = {study: part for study, part in parts.items() if part is not None}
            found += there.values()
            if len(there) == len(STUDIES):
                found.append(all_of("theory", choices, list(there.values())))
            found += _laws(get, function, memory, choices, full)
    return [*found, *_small(get, full)]


def _bound(
    get: Get,
    study: str,
    function: str,
    memory: int,
    choices: dict[str, str],
    full: bool,
) -> Outcome | None:
    claim, _, x = STUDIES[study]
    values = _values(get, study, function, memory, full)
    if values is None:
        return None
    fitted = jackknifed(x, values)
    if isinstance(fitted, str):
        return Outcome(claim, choices, UNDECIDED, because=fitted)
    # Slopes turned so that larger is better: at least 1 in h, at most -1 in N and beta, at most 1.1 in W.
    sign, shift = {"h": (1.0, 0.0), "W": (-1.0, 1.1)}.get(study, (-1.0, 0.0))
    return above(claim, choices, fitted._replace(value=shift + sign * fitted.value))


def _laws(
    get: Get, function: str, memory: int, choices: dict[str, str], full: bool
) -> list[Outcome]:
    """Return the outcomes of the law: its worst direction at the smallest step, for every W and beta."""
    found = []
    betas, h = (LAW_BETAS, LAW_STEPS[-1]) if full else (LAW_BETAS[:1], LAW_STEPS[0])
    for W in (1, 4):
        for beta in betas:
            ratios = law_ratios(get, function, memory, W, beta, h, full)
            setting = {**choices, "workers": f"W = {W}", "β": f"{beta:g}"}
            if isinstance(ratios, str):
                found.append(Outcome("law", setting, UNDECIDED, because=ratios))
            elif ratios is not None:
                logs = np.log(ratios.mean(axis=0))
                errors = (
                    ratios.std(axis=0, ddof=1)
                    / math.sqrt(len(ratios))
                    / ratios.mean(axis=0)
                )
                # A law is wrong if it is wrong in one direction.
                worst = int(np.argmax(np.abs(logs)))
                estimate_ = Estimate(
                    -abs(float(logs[worst])), float(errors[worst]), len(ratios)
                )
                found.append(above("law", setting, estimate_))
    return found


def law_ratios(
    get: Get, function: str, memory: int, W: int, beta: float, h: float, full: bool
) -> Any:
    """Variances over those of the law, by seed and direction; None where a run is missing."""
    target = law(function, beta)
    lines = []
    for s in range(_size(full)[0]):
        records = get(law_chain(function, memory, W, beta, h, s, full))
        if records is None:
            return None
        last = records[-1]
        if last["mean"] is None:
            return "a run diverged"
        lines.append([last[f"variance {k}"] / v for k, v in enumerate(target)])
    return np.array(lines)


def _small(get: Get, full: bool) -> list[Outcome]:
    """SGD with momentum as the limit, the cost of a step, and Gamma."""
    found = []
    for integrator in ("explicit", "modified"):
        records = get(MomentumLimit(integrator))
        if records:
            # Equal bits would have infinitely many digits.
            digits = -math.log10(max(records[0]["difference"], 1e-16))
            found.append(
                above(
                    "momentum-limit", {INTEGRATOR: integrator}, Estimate(digits, 0.0, 1)
                )
            )
    records = get(Cost(160_000 if full else 16_000))
    if records:
        x, y = (
            [math.log(v) for v in values]
            for values in zip(*((r["M"] * r["d"], r["time"]) for r in records))
        )
        # The cost of calls lowers the slope at small M d, vectors that outgrow the caches raise it at
        # large.
        fit, covariance = np.polyfit(x, y, 1, cov=True)
        error = math.sqrt(float(covariance[0, 0]))
        found.append(
            above(
                "cost",
                {"measured": "processor time"},
                Estimate(1.2 - float(fit[0]), error, len(x)),
            )
        )
    # 500 and 1000 are the beta of the paper's Tables 1 and 3.
    for beta in (1.0, 10.0, 100.0, 500.0, 1000.0):
        with_, without = (
            float(expected(LINE, beta, corrected)[-1]) for corrected in (True, False)
        )
        value = -abs(math.log(without / with_))
        found.append(above("gamma", {"β": f"{beta:g}"}, Estimate(value, 0.0, 0)))
    return found


LOOKS = {0: CONTROLS[1], 3: VARIANTS[3]}
"""By M: H = I is the control."""


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw the four terms of the bound, the law against h, the cost and Gamma; then all settings."""
    figure, axes = panels(2, 4, width=3.0, height=2.6)
    for axis, (study, (claim, _, x)) in zip(axes[0], STUDIES.items(), strict=True):
        _term(axis, get, study, full)
        axis.set(
            xscale="log", yscale="log", ylabel="mean of U − U*", title=TITLES[claim]
        )
        axis.set_xticks(x, [f"{value:g}" for value in x], fontsize=7)
        axis.minorticks_off()
    for axis, function in zip(axes[1], FUNCTIONS, strict=False):
        _law(axis, get, function, full)
    _cost(axes[1][2], get, full)
    found = [
        (f"β = {o.choices['β']}", o) for o in _small(get, full) if o.claim == "gamma"
    ]
    estimates(axes[1][3], found)
    axes[1][3].set(xlabel="E U − U* without Γ over with", title="Γ in one dimension")
    handles = {
        label: line
        for axis in (*axes[0], axes[1][0])
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=5, fontsize=7
    )
    claims = [name for name in TITLES if CLAIMS[name].row == "theory"]
    return {
        "theory": figure,
        "theory_settings": verdict_bars(outcomes(get, full), claims),
    }


def _term(axis: Any, get: Get, study: str, full: bool) -> None:
    """Draw the mean error of every setting against what the study varies, with two errors."""
    missing = []
    for function in _size(full)[1]:
        for memory, look in LOOKS.items():
            values = _values(get, study, function, memory, full)
            label = f"{function}, pairs {MEMORIES[memory]}"
            if values is None:
                continue
            if not np.isfinite(values).all():
                lost = int((~np.isfinite(values)).any(axis=1).sum())
                missing.append(f"{label}:\n{lost} of {len(values)} seeds diverge")
                continue
            mean = values.mean(axis=0)
            error = 2.0 * values.std(axis=0, ddof=1) / math.sqrt(len(values))
            style = {**look, "linestyle": "-" if function == "quadratic" else "--"}
            bars = np.minimum(error, 0.9 * np.abs(mean))
            axis.errorbar(STUDIES[study][2], mean, yerr=bars, label=label, **style)
    # A setting without a line would look as if it had not been run.
    axis.set_xlabel("\n".join((STUDIES[study][1], *missing)), fontsize=7.5)


def _law(axis: Any, get: Get, function: str, full: bool) -> None:
    """Draw the variance farthest from that of the law against h, with two errors and the margin as a band."""
    width = -CLAIMS["law"].margin
    axis.axhspan(
        math.exp(-width), math.exp(width), color="#2e7d4f", alpha=0.15, linewidth=0
    )
    for beta, marker in zip(LAW_BETAS, "osd", strict=True):
        for memory, look in LOOKS.items():
            points = []
            for h in LAW_STEPS:
                ratios = law_ratios(get, function, memory, 1, beta, h, full)
                if ratios is not None and not isinstance(ratios, str):
                    mean = ratios.mean(axis=0)
                    k = int(np.argmax(np.abs(np.log(mean))))
                    error = 2.0 * ratios[:, k].std(ddof=1) / math.sqrt(len(ratios))
                    points.append((h, mean[k], min(error, 0.9 * mean[k])))
            if points:
                x, y, bars = np.array(points).T
                label = f"law at β = {beta:g}, pairs {MEMORIES[memory]}"
                style = {**look, "marker": marker, "linestyle": ":"}
                axis.errorbar(x, y, yerr=bars, capsize=1.5, label=label, **style)
    axis.set(
        xscale="log", yscale="log", xlabel="step h", title=f"law, {function}, W = 1"
    )
    axis.set_xticks(LAW_STEPS, [f"{h:g}" for h in LAW_STEPS])
    axis.set_ylabel("variance over the law's\n(worst direction)")
    axis.minorticks_off()
    few_decades(axis)


def _cost(axis: Any, get: Get, full: bool) -> None:
    """Draw the time of a step against M d, beside the slope 1 of the claim."""
    records = get(Cost(160_000 if full else 16_000)) or []
    for M, look in zip(
        dict.fromkeys(r["M"] for r in records), VARIANTS[1:], strict=False
    ):
        mine = [r for r in records if r["M"] == M]
        x = [r["M"] * r["d"] for r in mine]
        axis.plot(
            x,
            [1e3 * r["time"] for r in mine],
            label=f"M = {M}",
            **{**look, "linestyle": "none"},
        )
    if records:
        least, most = (end(r["M"] * r["d"] for r in records) for end in (min, max))
        start = 1e3 * min(r["time"] for r in records)
        axis.plot(
            [least, most],
            [start, start * most / least],
            color="black",
            linewidth=0.8,
            label="O(M d)",
        )
        axis.legend(fontsize=7)
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="M d",
        ylabel="step (ms)",
        title="cost of a step",
    )


EXPERIMENT = Experiment(
    "theory",
    "Ergodic error and stationary law",
    "as-L-BFGS on a quadratic (d = 10) and on two wells (d = 2), with H = I and with pairs, ten seeds and "
    "two standard errors. Variances should tend to those of exp(−βU), into the green band, as h falls.",
    cells,
    outcomes,
    draw,
)
