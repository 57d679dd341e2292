"""Record schedules of eight uneven MPI processes: `mpiexec -n 9 python -m schedules.record RUN`, RUN = 0, 1, 2.

Worker i computes its gradient 1 + i // 2 times, so that speeds differ by four, on however many processors the
machine has; other programs may disturb it.  Each run is a-SGD, as any asynchronous algorithm has the same
schedule; its rows are written to docs/results/schedules/.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import asyncqn as aq

WORKERS = 8
COMMITS = 3000
FOLDER = Path(__file__).resolve().parents[3] / "docs" / "results" / "schedules"


def model() -> aq.LogisticRegression:
    """Return a logistic regression whose features differ in scale by a hundred: condition number about 10^3."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((4000, 40)) * np.geomspace(1.0, 0.01, 40)
    chance = 1.0 / (1.0 + np.exp(-X @ rng.standard_normal(40) * 10.0))
    y = np.where(rng.random(4000) < chance, 1, -1)
    return aq.LogisticRegression(X, y, prior=0.1, intercept=False)


def slow(turns: int) -> aq.FiniteSum:
    """Return the problem with a gradient that is computed several times, as a slow machine would."""
    problem = model()

    def grad(theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
        out = np.empty_like(theta)
        for _ in range(40 * turns):
            problem.grad(theta, rows, out)
        return out

    return aq.FiniteSum(problem.value_rows, grad, n_data=4000, dim=40)


def main(run: int) -> None:
    """Run on this rank; rank 0 writes the schedule."""
    from mpi4py import MPI

    result = aq.minimize(
        slow(1 + max(0, MPI.COMM_WORLD.rank - 1) // 2),
        aq.AsyncSGD(h=1e-5, batch=400),
        engine=aq.MPI(),
        commits=COMMITS,
        seed=run,
        evaluate=COMMITS,
        check=False,
        progress=False,
    )
    if result is not None and MPI.COMM_WORLD.rank == 0:
        schedule = result.schedule
        columns = {name: getattr(schedule, name) for name in ("worker", "read", "time")}
        np.savez_compressed(FOLDER / f"run{run}.npz", **columns)


if __name__ == "__main__":
    main(int(sys.argv[1]))
