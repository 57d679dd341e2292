"""Remarks of the paper that no figure shows, as rows of the theory: momentum, rho, and the overlap.

All are compared at equal drift: the step is such that the stiffest direction falls equally fast per commit
where H = H0 = c I, with momentum q = h c^2 lambda / gamma, without it q = h c lambda (theta - h H g); and
h (c + rho)^2 / gamma with and without rho.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from asyncqn import Simulator
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
from asyncqn_paper.figures.fig4 import along, closed
from asyncqn_paper.figures.fig5 import stable
from asyncqn_paper.figures.gaussian import Curve, largest, scale_below_limit
from asyncqn_paper.movielens import (
    STARTS,
    TIMINGS,
    measured_cluster,
    model,
    parameters,
    set_of,
    start,
)
from asyncqn_paper.records import Record
from asyncqn_paper.rules import Estimate, Outcome, above, share_of
from asyncqn_paper.settings import MEMORY, NO_MOMENTUM, PAPER, algorithm, given

PROBLEMS = ("rows-alike-8", "five-directions-8", "five-weak-10")
RATES = (0.002, 0.005, 0.0125, 0.03, 0.08)
FRICTIONS = (0.01, 0.03)
DRIFTS = (0.6e-6, 1.8e-6, 5.4e-6)
"""h (c + rho)^2 / gamma on ratings; the table's is 1.8e-6."""
SCALE = 1e-3
"""c of H0 = c I on ratings."""
COMMITS = 600
WORKERS = 10


def momentum_cell(
    problem: str,
    epsilon: float,
    integrator: str,
    gamma: float | None,
    rate: float,
    seeds: int,
) -> Curve:
    """as-L-BFGS with friction gamma, or theta - h H g (None), at a drift `rate`."""
    # Rounded: the last bits of an eigenvalue depend on the BLAS, and the key of a cell must not.
    scale = scale_below_limit(problem)
    top = float(f"{largest(problem):.6g}")
    rule = {"initial_scale": scale, "epsilon": epsilon}
    if gamma is None:  # friction 1 keeps nothing of u
        own = {**MEMORY, **rule, "gamma": 1.0, "h": rate / (scale * top)}
        return Curve(problem, NO_MOMENTUM, given(own), 200.0, seeds)
    # Solved for h from q = h c^2 lambda / gamma.
    own = {
        **PAPER["as-lbfgs"],
        **rule,
        "gamma": gamma,
        "h": rate * gamma / (scale**2 * top),
    }
    return Curve(problem, "as-lbfgs", given(own, integrator=integrator), 200.0, seeds)


@dataclass(frozen=True)
class Ridge(Cell):
    """A run on ratings with H + rho I, W = 10."""

    table: ClassVar[str] = "ridge"
    ratings: str
    start: str
    rho: float
    drift: float
    epsilon: float
    commits: int
    seed: int

    def measure(self) -> list[Record]:
        problem = model(self.ratings)
        printed = parameters("1m", problem.n_data)["as-lbfgs"]
        # Equal drift: h (c + rho)^2 / gamma is the same with rho and without.
        h = self.drift * printed["gamma"] / (SCALE + self.rho) ** 2
        own = given(
            printed, rho=self.rho, h=h, epsilon=self.epsilon, initial_scale=SCALE
        )
        machines = measured_cluster(TIMINGS["as-lbfgs"], WORKERS)
        request = Request(
            problem,
            algorithm("as-lbfgs", own),
            theta0=start(problem, self.start, self.seed),
            commits=self.commits,
            seed=self.seed,
            # A look at the RMSE costs as much as dozens of steps, and stability needs few looks.
            evaluate=max(1, self.commits // 6),
        )
        return along(Simulator(machines).minimize(request), self.seed)


def ridge_cell(
    at: str, rho: float, drift: float, epsilon: float, seed: int, full: bool
) -> Ridge:
    """Return the cell of one run."""
    return Ridge(
        set_of(full)[0], at, rho, drift, epsilon, COMMITS if full else 60, seed
    )


CAUTIOUS = (EVERY_PAIR, 30.0)


def cells(full: bool) -> list[Cell]:
    """Return the cells of rho first, then those of momentum."""
    seeds, rhos = (100, 10) if full else (6, 2)
    ridges: list[Cell] = [
        ridge_cell(at, rho, drift, epsilon, s, full)
        for at in STARTS
        for epsilon in CAUTIOUS
        for rho in (0.0, 3.0)
        for drift in DRIFTS
        for s in range(rhos)
    ]
    momenta: list[Cell] = [
        momentum_cell(problem, epsilon, integrator, gamma, rate, seeds)
        for problem in PROBLEMS
        for epsilon in (SOME_PAIRS, EVERY_PAIR)
        for rate in RATES
        for gamma, integrator in _kinds()
    ]
    return [*ridges, *momenta] if full else [*ridges[:12], *momenta[:5]]


def _kinds() -> list[tuple[float | None, str]]:
    return [
        (None, ""),
        *((gamma, i) for gamma in FRICTIONS for i in ("explicit", "modified")),
    ]


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes of the claims on momentum, rho and the overlap."""
    seeds, rhos = (100, 10) if full else (6, 2)
    # Counted and not measured: a worker's second gradient on the overlap reads these rows again.
    extra = MEMORY["overlap"] / (MEMORY["batch"] + MEMORY["overlap"])
    sizes = {"sizes": f"N_Ω = {MEMORY['batch']}, N_O = {MEMORY['overlap']}"}
    found = [above("overlap", sizes, Estimate(-extra, 0.0, 0))]
    for problem in PROBLEMS:
        for epsilon in (SOME_PAIRS, EVERY_PAIR):
            arrived: dict[tuple[float | None, str], list[list[float]]] = {}
            for kind in _kinds():
                points = [
                    get(momentum_cell(problem, epsilon, kind[1], kind[0], q, seeds))
                    for q in RATES
                ]
                if all(p is not None for p in points):
                    arrived[kind] = [
                        [float(r["time 0.05"] is not None) for r in p or []]
                        for p in points
                    ]
            for (gamma, integrator), mine in arrived.items():
                if gamma is not None and (None, "") in arrived:
                    choices = {
                        PROBLEM: problem,
                        "cautious constant": f"{epsilon:g}",
                        "friction": f"{gamma:g}",
                    }
                    # The mean over the drifts of one seed: a method may gain at one drift what it loses at
                    # another.
                    gain = np.mean(np.subtract(mine, arrived[None, ""]), axis=0)
                    found.append(
                        above(
                            "momentum",
                            {**choices, INTEGRATOR: integrator},
                            share_of(gain.tolist()),
                        )
                    )
    for at in STARTS:
        for epsilon in CAUTIOUS:
            held = {
                rho: _stable(get, at, rho, epsilon, rhos, full) for rho in (0.0, 3.0)
            }
            if held[0.0] is not None and held[3.0] is not None:
                # In the mean of the drifts, as for momentum.
                gain = np.mean(np.subtract(held[3.0], held[0.0]), axis=0)
                choices = {
                    START: at,
                    "cautious constant": f"{epsilon:g}",
                    "data": set_of(full)[0],
                }
                found.append(above("rho", choices, share_of(gain.tolist())))
    return found


def _stable(
    get: Get, at: str, rho: float, epsilon: float, seeds: int, full: bool
) -> list[list[float]] | None:
    """Return 1 for every stable run and 0 for the others, by drift and seed; None where a run is missing."""
    runs = [
        [get(ridge_cell(at, rho, q, epsilon, s, full)) for s in range(seeds)]
        for q in DRIFTS
    ]
    if any(run is None for line in runs for run in line):
        return None
    end = ridge_cell(at, rho, DRIFTS[0], epsilon, 0, full).commits
    return [[stable(closed(run or [], "commit", end)) for run in line] for line in runs]
