"""The theory: the bound on the ergodic error, the stationary law, and what the proof leaves out.

|E U_N - U*| = O(1/(N h) + max(1, l_max) h + 1/beta), U_N the mean of U over the first N iterates and h the
step of the SDE: h' = h^2, gamma' = h gamma with gamma = 1 here.  Each study varies one quantity where its
term should dominate, on a quadratic and on a non-convex U, with H = I (M = 0) and with pairs (M = 3).
Every value of a quantity has noise of its own: the trajectories of one seed at two temperatures would be
multiples of each other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from asyncqn import ASLBFGS, SGD, Cluster, LinearGaussian, Simulator
from asyncqn.types import Array, Progress, Request, Rows, Stream, Task
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import CONTROLS, VARIANTS, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.fig2 import INTEGRATOR
from asyncqn_paper.figures.verdict_grid import verdict_grid
from asyncqn_paper.langevin_sde import LINE, expected
from asyncqn_paper.records import Record
from asyncqn_paper.rules import CLAIMS, UNDECIDED, Estimate, Outcome, above, all_of

DIM, N_DATA = 10, 100
COLD = 1e6
FUNCTION, PAIRS = "U", "curvature pairs"
FUNCTIONS, MEMORIES = ("quadratic", "non-convex"), {0: "off (H = I)", 3: "on (M = 3)"}
STUDIES: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "N": ("ergodic", "iterations N", (500, 1000, 2000, 4000, 8000)),
    "h": ("bias", "step h of the SDE", (0.004, 0.008, 0.016, 0.032)),
    "W": ("staleness", "workers W", (1, 4, 16, 32)),
    "beta": ("temperature", "inverse temperature β", (1.0, 3.0, 10.0, 30.0, 100.0)),
}
"""What is varied: the claim, its words on an axis, its values."""
LAW_STEPS, LAW_BETAS = (0.02, 0.01, 0.005), (1.0, 10.0, 100.0)


class TwoWells:
    """U = 2 (x^2 - 1)^2 + x/2 + y^2 and rows that add noise of mean 0 to the gradient: a non-convex sum.

    The wells are near x = -1 and x = 1; the first is deeper by about 1.
    """

    dim, n_data, dtype = 2, 100, np.dtype(np.float64)

    def __init__(self) -> None:
        noise = np.random.Generator(np.random.Philox(key=[0, 0x2E11])).standard_normal((self.n_data, 2))
        self._noise = 4.0 * (noise - noise.mean(axis=0))

    def value(self, theta: Array) -> float:
        x, y = float(theta[0]), float(theta[1])
        return 2.0 * (x * x - 1.0) ** 2 + 0.5 * x + y * y

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        x, y = float(theta[0]), float(theta[1])
        out[0], out[1] = 8.0 * x * (x * x - 1.0) + 0.5, 2.0 * y
        out += self._noise[rows].mean(axis=0)


@cache
def problem(name: str) -> Any:
    """The function by its name."""
    if name == "quadratic":
        return LinearGaussian.random(DIM, N_DATA, spectrum=np.geomspace(1.0, 4.0, DIM))
    return TwoWells()


@cache
def _grid() -> tuple[Any, Any]:
    x = np.linspace(-4.0, 4.0, 4001)
    return x, 2.0 * (x * x - 1.0) ** 2 + 0.5 * x


@cache
def optimum(name: str) -> float:
    """U*."""
    return float(problem(name).optimum) if name == "quadratic" else float(_grid()[1].min())


def law(name: str, beta: float) -> Any:
    """The variances of exp(-beta U) along its axes."""
    if name == "quadratic":
        return 1.0 / (beta * np.linalg.eigvalsh(problem(name).precision))
    x, U = _grid()
    weight = np.exp(-beta * (U - U.min()))
    mean = (weight * x).sum() / weight.sum()
    return np.array([(weight * (x - mean) ** 2).sum() / weight.sum(), 1.0 / (2.0 * beta)])


@dataclass(frozen=True)
class Chain(Cell):
    """One run of as-L-BFGS: N commits of step h of the SDE."""

    table: ClassVar[str] = "chains"
    function: str
    memory: int
    N: int
    h: float
    workers: int
    beta: float
    exact: bool
    seed: int

    def measure(self) -> list[Record]:
        """Mean excess over U* until N/16, ..., N and in the second half, and variances along the axes."""
        model = problem(self.function)
        batch = model.n_data if self.exact else 20
        method = ASLBFGS(
            *(self.h**2, self.h, self.beta, self.memory, batch, batch // 2),
            sampling="shuffled" if self.exact else "replacement",
        )
        rng = np.random.Generator(np.random.Philox(key=[self.seed, 7]))
        if self.function == "quadratic":
            axes, centre = np.linalg.eigh(model.precision)[1], model.optimum_theta
        else:
            axes, centre = np.eye(2), np.zeros(2)
        thetas: list[Array] = []

        def look(progress: Progress) -> None:
            thetas.append(progress.theta)

        run = Simulator(Cluster(self.workers, 1.0, 0.3)).minimize(
            Request(
                model,
                method,
                theta0=centre + rng.standard_normal(model.dim),
                commits=self.N,
                seed=self.seed,
                evaluate=5,
                callback=look,
            )
        )
        if run.status == "diverged" or not np.isfinite(thetas[-1]).all():
            return [{"diverged": True, "part": 1.0, "mean": None}]
        seen = np.array(thetas[1:])
        excess = np.array([model.value(theta) for theta in seen]) - optimum(self.function)
        half = seen[len(seen) // 2 :] - centre
        variances = ((half - half.mean(axis=0)) @ axes).var(axis=0)
        found: list[Record] = [
            {"diverged": False, "part": part, "mean": float(excess[: max(1, int(part * len(excess)))].mean())}
            for part in (0.0625, 0.125, 0.25, 0.5, 1.0)
        ]
        late = {"diverged": False, "part": 0.0, "mean": float(excess[len(excess) // 2 :].mean())}
        return [*found, late | {f"variance {k}": float(v) for k, v in enumerate(variances)}]


def chain(study: str, function: str, memory: int, value: float, seed: int, full: bool) -> Chain:
    """A run of a study; every value has a seed of its own."""
    size = 2 if full else 1
    own = 1000 * seed + 10 * list(STUDIES).index(study) + STUDIES[study][2].index(value)
    if study == "N":
        return Chain(function, memory, 8000, 0.02, 1, COLD, True, seed)
    if study == "h":
        return Chain(function, memory, int(100 * size / value), value, 1, COLD, False, own)
    if study == "W":
        return Chain(function, memory, 10_000 * size, 0.003, int(value), COLD, False, own)
    return Chain(function, memory, 8000 * size, 0.05, 1, value, True, own)


def law_chain(
    function: str, memory: int, workers: int, beta: float, h: float, seed: int, full: bool
) -> Chain:
    """A run whose law is compared with exp(-beta U)."""
    own = 100_000 + 1000 * seed + int(beta) + int(10_000 * h)
    return Chain(function, memory, int((400 if full else 50) / h), h, workers, beta, True, own)


def _note(seen: list[Array], progress: Progress) -> None:
    seen.append(progress.theta)


@dataclass(frozen=True)
class MomentumLimit(Cell):
    """The largest difference from SGD with momentum over 200 steps: beta = inf, W = 1, H = I."""

    table: ClassVar[str] = "limit"
    integrator: str

    def measure(self) -> list[Record]:
        model = problem("quadratic")
        method = ASLBFGS(1e-3, 0.3, math.inf, 0, 20, 10, initial_scale=1.0, integrator=self.integrator)  # type: ignore[arg-type]
        paths = []
        for one in (method, SGD(1e-3, 20, momentum=0.7)):
            seen: list[Array] = []
            Simulator(Cluster(1)).minimize(
                Request(
                    model,
                    one,
                    theta0=np.ones(DIM),
                    commits=200,
                    seed=0,
                    evaluate=1,
                    callback=partial(_note, seen),
                )
            )
            paths.append(np.array(seen))
        return [{"difference": float(np.abs(paths[0] - paths[1]).max())}]


@dataclass(frozen=True)
class Cost(Cell):
    """Processor time of a worker's step against M and d, the least of many."""

    table: ClassVar[str] = "cost"
    largest: int

    def measure(self) -> list[Record]:
        found = []
        for d in (self.largest // 16, self.largest // 4, self.largest):
            for M in (2, 4, 8):
                row = {"M": M, "d": d, "time": _step_time(M, d)}
                found.append(row)
        return found


class _Bowl:
    """U = |theta|^2 / 2: its gradient costs one pass."""

    n_data, dtype = 4, np.dtype(np.float64)

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def value(self, theta: Array) -> float:
        return 0.5 * float(theta @ theta)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        out[...] = theta


def _step_time(M: int, d: int) -> float:
    model, method = _Bowl(d), ASLBFGS(1e-3, 0.1, math.inf, M, 4, 2)
    rng = np.random.default_rng(0)
    iterate, local = method.init(rng.standard_normal(d)), None
    local = method.init_worker(model, iterate.theta)
    times = []
    for k in range(M + 12):
        task = Task(0, k, Stream(0, 0, k))
        began = time.thread_time()
        method.step(iterate, local, model, task)
        times.append(time.thread_time() - began)
        local = method.learn(iterate, local, model, task)
        iterate.theta[...] += 0.01 * rng.standard_normal(d)
    return min(times[M + 2 :])


def _size(full: bool) -> tuple[int, tuple[str, ...]]:
    return (10, FUNCTIONS) if full else (3, FUNCTIONS[:1])


def cells(full: bool) -> list[list[Cell]]:
    """The bound first, then the law; the small claims with the bound."""
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
        return [[*small, *bound(functions, (0, 3)), *laws(LAW_BETAS[:1], LAW_STEPS[:1])]]
    finest = LAW_STEPS[-1:]
    return [
        [*small, *bound(functions[:1], (3,))],
        [*bound(functions[1:], (3,)), *laws(LAW_BETAS[:1], finest)],
        [*bound(functions, (0,)), *laws(LAW_BETAS, finest)],
        laws(LAW_BETAS, LAW_STEPS),
    ]


def slope(x: Any, y: Any) -> float:
    """Slope of log y over log x by least squares."""
    lx, ly = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    lx = lx - lx.mean()
    return float(lx @ (ly - ly.mean()) / (lx @ lx))


def jackknifed(x: Sequence[float], values: Any) -> Estimate | str:
    """The slope of the mean over the seeds (first axis), with its jackknife error."""
    values = np.asarray(values, float)
    if not np.isfinite(values).all():
        return "a run diverged"
    means = [values.mean(axis=0), *(np.delete(values, k, 0).mean(axis=0) for k in range(len(values)))]
    if min(float(mean.min()) for mean in means) <= 0.0:
        return "the mean error is not positive"
    all_, *rest = (slope(x, mean) for mean in means)
    n = len(rest)
    return Estimate(all_, math.sqrt((n - 1) / n * float(np.sum((np.array(rest) - np.mean(rest)) ** 2))), n)


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
            part = (0.0625, 0.125, 0.25, 0.5, 1.0)[k] if study == "N" else 0.0
            mine = [r["mean"] for r in records if r["part"] == part]
            line.append(math.nan if not mine or mine[0] is None else mine[0])
        lines.append(line)
    return np.array(lines)


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """The bound and the law in every finished setting, and the small claims."""
    found: list[Outcome] = []
    for function in _size(full)[1]:
        for memory, words in MEMORIES.items():
            choices = {FUNCTION: function, PAIRS: words}
            parts = {study: _bound(get, study, function, memory, choices, full) for study in STUDIES}
            there = {study: part for study, part in parts.items() if part is not None}
            found += there.values()
            if len(there) == len(STUDIES):
                found.append(all_of("theory", choices, list(there.values())))
            found += _laws(get, function, memory, choices, full)
    return [*found, *_small(get, full)]


def _bound(
    get: Get, study: str, function: str, memory: int, choices: dict[str, str], full: bool
) -> Outcome | None:
    claim, _, x = STUDIES[study]
    values = _values(get, study, function, memory, full)
    if values is None:
        return None
    fitted = jackknifed(x, values)
    if isinstance(fitted, str):
        return Outcome(claim, choices, UNDECIDED, because=fitted)
    sign, shift = {"h": (1.0, 0.0), "W": (-1.0, 1.1)}.get(study, (-1.0, 0.0))
    return above(claim, choices, fitted._replace(value=shift + sign * fitted.value))


def _laws(get: Get, function: str, memory: int, choices: dict[str, str], full: bool) -> list[Outcome]:
    """The worst direction at the smallest step, for every W and beta."""
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
                errors = ratios.std(axis=0, ddof=1) / math.sqrt(len(ratios)) / ratios.mean(axis=0)
                worst = int(np.argmax(np.abs(logs)))
                estimate_ = Estimate(-abs(float(logs[worst])), float(errors[worst]), len(ratios))
                found.append(above("law", setting, estimate_))
    return found


def law_ratios(get: Get, function: str, memory: int, W: int, beta: float, h: float, full: bool) -> Any:
    """Variances over those of the law, by seed and direction; None where a run is missing."""
    target, lines = law(function, beta), []
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
            digits = -math.log10(max(records[0]["difference"], 1e-16))
            found.append(above("momentum-limit", {INTEGRATOR: integrator}, Estimate(digits, 0.0, 1)))
    records = get(Cost(160_000 if full else 16_000))
    if records:
        x, y = (
            [math.log(v) for v in values] for values in zip(*((r["M"] * r["d"], r["time"]) for r in records))
        )
        fit, covariance = np.polyfit(x, y, 1, cov=True)
        error = math.sqrt(float(covariance[0, 0]))
        found.append(
            above("cost", {"measured": "processor time"}, Estimate(1.2 - float(fit[0]), error, len(x)))
        )
    for beta in (1.0, 10.0, 100.0, 500.0, 1000.0):
        with_, without = (float(expected(LINE, beta, corrected)[-1]) for corrected in (True, False))
        value = -abs(math.log(without / with_))
        found.append(above("gamma", {"β": f"{beta:g}"}, Estimate(value, 0.0, 0)))
    return found


def draw(get: Get, full: bool) -> dict[str, Any]:
    """The four slopes, the law against h, and the grid of settings."""
    figure, axes = panels(2, 3, width=3.1, height=2.5)
    looks = {0: CONTROLS[1], 3: VARIANTS[3]}
    for axis, (study, (claim, words, x)) in zip(axes.flat, STUDIES.items(), strict=False):
        for function in _size(full)[1]:
            for memory, look in looks.items():
                values = _values(get, study, function, memory, full)
                if values is not None and np.isfinite(values).all():
                    mean, error = (
                        values.mean(axis=0),
                        2.0 * values.std(axis=0, ddof=1) / math.sqrt(len(values)),
                    )
                    style = {**look, "linestyle": "-" if function == "quadratic" else "--"}
                    label = f"{function}, {MEMORIES[memory]}"
                    axis.errorbar(x, mean, yerr=np.minimum(error, 0.9 * np.abs(mean)), label=label, **style)
        axis.set(xscale="log", yscale="log", xlabel=words, ylabel="mean of U − U*", title=claim)
    for axis, function in zip(axes[1][1:], FUNCTIONS, strict=True):
        for beta, marker in zip(LAW_BETAS, "osd", strict=True):
            for memory, look in looks.items():
                points = []
                for h in LAW_STEPS:
                    ratios = law_ratios(get, function, memory, 1, beta, h, full)
                    if ratios is not None and not isinstance(ratios, str):
                        mean = ratios.mean(axis=0)
                        points.append((h, mean[int(np.argmax(np.abs(np.log(mean))))]))
                if points:
                    h_, worst = np.array(points).T
                    axis.plot(
                        h_, worst, **{**look, "marker": marker}, label=f"β = {beta:g}, {MEMORIES[memory]}"
                    )
        axis.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
        axis.set(xscale="log", yscale="log", xlabel="step h", title=f"law, {function}")
        axis.set_ylabel("variance over the law's (worst)")
        few_decades(axis)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7)
    claims = [name for name, claim in CLAIMS.items() if claim.row == "theory" and name in {*_CLAIMS, "law"}]
    grid = verdict_grid(outcomes(get, full), claims, (FUNCTION, "workers", "β"), (PAIRS,), columns=6)
    return {"theory": figure, "theory_settings": grid}


_CLAIMS = ("ergodic", "bias", "temperature", "staleness", "theory")

EXPERIMENT = Experiment(
    "theory",
    "Ergodic error and stationary law",
    "as-L-BFGS on a quadratic (d = 10) and on two wells (d = 2), with H = I and with pairs, two "
    "standard errors. "
    "Last two panels: variances over those of exp(−βU) in the worst direction, which should tend to "
    "1 as h falls.",
    cells,
    outcomes,
    draw,
)
