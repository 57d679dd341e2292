"""Why a factorization starts beside a saddle, and what leaves it soonest.

    python -m benchmarks.studies.laboratory.saddle       writes docs/results/laboratory/saddle.csv

At the start all rows of F and G are about a e, with e = (1, ..., 1) / sqrt K and a^2 the mean rating.  Let p
and q be changes of F and G across e.  The predictions change by p q', which is of second order, so in each of
the K - 1 directions across e

    U = const + prior / 2 (|p|^2 + |q|^2) - p' R q + higher order,    R the residuals on the observed entries

with curvatures prior - s and prior + s for every singular value s of R.  The point itself is a saddle
wherever the largest s exceeds the prior: where the ratings have a pattern beside their mean that rank 1 does
not fit.  The start lies beside it, at a distance of 0.1 in every number.  The study compares
these curvatures with the eigenvalues of the Hessian at the start, and measures the passes of 40 workers to
5 % of the gap: the table with and without its stochastic phase, and exact passes.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace

import numpy as np

from asyncqn.types import Array
from benchmarks.studies.laboratory.cells import Cell, length, trace
from benchmarks.studies.laboratory.contest import ours_in
from benchmarks.studies.laboratory.problems import GAPS, Problem, problem, ratings
from benchmarks.studies.tables import write

CELL = Cell("factorization", 40, "lognormal")
DRAWS = (10, 11, 12, 13, 14)


def hessian(told: Problem, step: float = 1e-5) -> Array:
    """Return the Hessian of U at the start, by central differences of the gradient."""
    model, theta = told.model, told.theta0.copy()
    rows = np.arange(model.n_data)
    columns = np.empty((model.dim, model.dim))
    ends = np.empty((2, model.dim))
    for j, start in enumerate(theta.tolist()):
        for end, sign in zip(ends, (1.0, -1.0), strict=True):
            theta[j] = start + sign * step
            model.grad(theta, rows, end)
        theta[j] = start
        columns[j] = (ends[0] - ends[1]) / (2.0 * step)
    return 0.5 * (columns + columns.T)


def residual_matrix(draw: int) -> Array:
    """Return the ratings less their mean as a matrix of items and users; zeros where there is no rating."""
    drawn = ratings(draw)
    R = np.zeros((drawn["n_items"], drawn["n_users"]))
    R[drawn["items"], drawn["users"]] = drawn["values"] - drawn["values"].mean()
    return R


def one_draw(draw: int) -> dict[str, float]:
    """Return eigenvalues at the start, what the saddle predicts, and passes to the first level."""
    told = problem(CELL.family, draw)
    values, vectors = np.linalg.eigh(hessian(told))
    g = np.empty(told.model.dim)
    told.model.grad(told.theta0, np.arange(told.model.n_data), g)
    across = vectors[:, values < 0.0].T @ g
    largest = np.linalg.svd(residual_matrix(draw), compute_uv=False)[0]
    methods = ours_in(CELL, draw)
    table = methods["table"]
    alone = replace(table, stochastic=False)
    entries = {"stochastic phase": table, "table alone": alone, "exact": methods["block"]}
    passes = {name: trace(CELL, draw, each, 1, GAPS[0]).passes[0] for name, each in entries.items()}
    return {
        "draw": draw,
        "negative eigenvalues": int((values < 0.0).sum()),
        "smallest": values[0],
        "predicted": told.model.prior - largest,
        "largest": values[-1],
        "share of |g| along them": float(np.linalg.norm(across) / np.linalg.norm(g)),
        **{name: min(taken, length(CELL.family)) for name, taken in passes.items()},
    }


def main() -> int:
    rows = [one_draw(draw) for draw in DRAWS]
    write("laboratory/saddle", rows, digits=4)
    for name in rows[0]:
        numbers = [row[name] for row in rows]
        print(f"{name:24} {min(numbers):10.4g} {statistics.median(numbers):10.4g} {max(numbers):10.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
