"""Record schedules of eight uneven MPI processes: `python -m schedules.record --runs 3`.

Worker i computes its gradient 1 + i // 2 times, so that speeds differ by four, on however many processors the
machine has; other programs may disturb it.  Each run is a-SGD, as any asynchronous algorithm has the same
schedule; its rows are written to docs/results/schedules/.
"""

from __future__ import annotations

import argparse
import os
import subprocess
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


class Uneven:
    """A problem whose gradient is computed several times, as a slow machine would."""

    def __init__(self, problem: aq.LogisticRegression, turns: int) -> None:
        self.problem = problem
        self.turns = turns
        self.dim = problem.dim
        self.n_data = problem.n_data
        self.dtype = problem.dtype

    def value(self, theta: np.ndarray) -> float:
        return float(self.problem.value(theta))

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        for _ in range(40 * self.turns):
            self.problem.grad(theta, rows, out)


def rank(run: int, out: Path) -> None:
    """Run on this rank; rank 0 writes the schedule."""
    from mpi4py import MPI

    mine = max(0, MPI.COMM_WORLD.rank - 1)
    problem = Uneven(model(), 1 + mine // 2)
    algorithm = aq.AsyncSGD(h=1e-5, batch=400)
    found = aq.minimize(
        problem,
        algorithm,
        engine=aq.MPI(),
        commits=COMMITS,
        seed=run,
        evaluate=COMMITS,
        check=False,
        progress=False,
    )
    if found is not None and MPI.COMM_WORLD.rank == 0:
        schedule = found.schedule
        columns = {
            "worker": schedule.worker,
            "read": schedule.read,
            "time": schedule.time,
        }
        np.savez_compressed(out, **columns)


def main() -> None:
    """Launch the runs one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.rank is not None:
        rank(given.rank, given.out)
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    root = {
        f"{word}_ALLOW_RUN_AS_ROOT{end}": "1"
        for word in ("OMPI", "PRTE")
        for end in ("", "_CONFIRM")
    }
    launcher = Path(sys.executable).parent / "mpiexec"
    for run in range(given.runs):
        out = FOLDER / f"run{run}.npz"
        command = [str(launcher), "--oversubscribe", "--bind-to", "none"]
        command += ["-n", str(WORKERS + 1), sys.executable, "-m", "schedules.record"]
        command += ["--rank", str(run), "--out", str(out)]
        subprocess.run(command, check=True, timeout=400.0, env={**os.environ, **root})
        print(f"wrote {out.name}")


if __name__ == "__main__":
    main()
