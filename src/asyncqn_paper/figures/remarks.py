"""Remarks of the paper that no figure shows, as rows of the theory: momentum, rho, and the overlap.

All are compared at equal drift: the step is such that the stiffest direction falls equally fast per commit
where H = H0 = c I, with momentum q = h c^2 lambda / gamma, without it q = h c lambda (theta - h H g); and
h (c + rho)^2 / gamma with and without rho.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asyncqn.types import Request
from asyncqn_paper.cells import Cell
from asyncqn_paper.experiment import Get
from asyncqn_paper.figures.fig2 import (
    EVERY_PAIR,
    INTEGRATOR,
    PROBLEM,
    SOME_PAIRS,
    START,
)
from asyncqn_paper.figures.gaussian import TARGET, Curve, largest, scale_below_limit
from asyncqn_paper.movielens import (
    STARTS,
    TABLE,
    TIMINGS,
    Path,
    measured_cluster,
    model,
    run_on,
    start,
)
from asyncqn_paper.records import Record
from asyncqn_paper.rules import Estimate, Verdict, above, share_of
from asyncqn_paper.settings import MEMORY, NO_MOMENTUM, PAPER, algorithm, given

PROBLEMS = ("rows-alike-8", "five-directions-8", "five-weak-10")
RATES = (0.002, 0.005, 0.0125, 0.03, 0.08)
DRIFTS = (0.6e-6, 1.8e-6, 5.4e-6)
"""h (c + rho)^2 / gamma on ratings; the table's is 1.8e-6."""
SCALE = 1e-3
"""c of H0 = c I on ratings."""
COMMITS = 600
WORKERS = 10
SEEDS = 100
RIDGE_SEEDS = range(10)
CAUTIOUS = "cautious constant"
MOMENTA = list(itertools.product((0.01, 0.03), ("explicit", "modified")))
"""Frictions and integrators."""
PLACES = list(itertools.product(PROBLEMS, (SOME_PAIRS, EVERY_PAIR)))
RIDGE_PLACES = list(itertools.product(STARTS, (EVERY_PAIR, 30.0)))


def momentum_cell(problem: str, epsilon: float, rate: float, own: Any) -> Curve:
    """as-L-BFGS with (friction, integrator), or theta - h H g (None), at a drift `rate`."""
    # Rounded: the last bits of an eigenvalue depend on the BLAS, and the key of a cell must not.
    scale = scale_below_limit(problem)
    top = float(f"{largest(problem):.6g}")
    rule = {"initial_scale": scale, "epsilon": epsilon}
    if own is None:
        # Friction 1 keeps nothing of u.
        parameters = given({**MEMORY, **rule}, gamma=1.0, h=rate / (scale * top))
        return Curve(problem, NO_MOMENTUM, parameters, 200.0, SEEDS)
    gamma, integrator = own
    # Solved for h from q = h c^2 lambda / gamma.
    step = {"gamma": gamma, "h": rate * gamma / (scale**2 * top)}
    parameters = given({**PAPER["as-lbfgs"], **rule, **step}, integrator=integrator)
    return Curve(problem, "as-lbfgs", parameters, 200.0, SEEDS)


@dataclass(frozen=True)
class Ridge(Cell):
    """A run on ratings with H + rho I, W = 10."""

    table: ClassVar[str] = "ridge"
    start: str
    rho: float
    drift: float
    epsilon: float
    seed: int

    def measure(self) -> list[Record]:
        printed = TABLE["as-lbfgs"]
        # Equal drift: h (c + rho)^2 / gamma is the same with rho and without.
        h = self.drift * printed["gamma"] / (SCALE + self.rho) ** 2
        rule = {"rho": self.rho, "epsilon": self.epsilon, "initial_scale": SCALE}
        request = Request(
            model(),
            algorithm("as-lbfgs", given(printed, h=h, **rule)),
            theta0=start(self.start, self.seed),
            commits=COMMITS,
            seed=self.seed,
            # A look at the RMSE costs as much as dozens of steps, and stability needs few looks.
            evaluate=COMMITS // 6,
        )
        return run_on(measured_cluster(TIMINGS["as-lbfgs"], WORKERS), request)


def cells() -> list[Cell]:
    """Return the cells of rho first, then those of momentum."""
    found: list[Cell] = []
    for (at, epsilon), rho, drift in itertools.product(
        RIDGE_PLACES, (0.0, 3.0), DRIFTS
    ):
        found += [Ridge(at, rho, drift, epsilon, seed) for seed in RIDGE_SEEDS]
    for (problem, epsilon), rate in itertools.product(PLACES, RATES):
        for own in (None, *MOMENTA):
            found.append(momentum_cell(problem, epsilon, rate, own))
    return found


def outcomes(get: Get) -> list[Verdict]:
    """Return the outcomes of the claims on momentum, rho and the overlap."""
    # Counted and not measured: a worker's second gradient on the overlap reads these rows again.
    extra = MEMORY["overlap"] / (MEMORY["batch"] + MEMORY["overlap"])
    sizes = {"sizes": f"N_Ω = {MEMORY['batch']}, N_O = {MEMORY['overlap']}"}
    found = [above("overlap", sizes, Estimate(-extra, 0.0, 0))]
    for problem, epsilon in PLACES:
        without = _arrived(get, problem, epsilon, None)
        for gamma, integrator in MOMENTA:
            choices = {PROBLEM: problem, CAUTIOUS: f"{epsilon:g}"}
            choices |= {"friction": f"{gamma:g}", INTEGRATOR: integrator}
            gain = _arrived(get, problem, epsilon, (gamma, integrator)) - without
            found.append(above("momentum", choices, share_of(gain.tolist())))
    for at, epsilon in RIDGE_PLACES:
        choices = {START: at, CAUTIOUS: f"{epsilon:g}", "data": "ml-1m"}
        gain = _stable(get, at, 3.0, epsilon) - _stable(get, at, 0.0, epsilon)
        found.append(above("rho", choices, share_of(gain.tolist())))
    return found


def _arrived(get: Get, problem: str, epsilon: float, own: Any) -> Any:
    """Return by seed the share of the drifts at which a run arrives.

    The mean over the drifts: a method may gain at one drift what it loses at another.
    """
    arrived = []
    for rate in RATES:
        records = get(momentum_cell(problem, epsilon, rate, own))
        arrived.append([float(record[TARGET] is not None) for record in records])
    return np.mean(arrived, axis=0)


def _stable(get: Get, at: str, rho: float, epsilon: float) -> Any:
    """Return by seed the share of the drifts at which a run is stable."""
    stable = []
    for drift in DRIFTS:
        cells = [Ridge(at, rho, drift, epsilon, seed) for seed in RIDGE_SEEDS]
        runs = [Path.of(get(cell), "commit", COMMITS) for cell in cells]
        stable.append([run.stable for run in runs])
    return np.mean(stable, axis=0)
