"""How safe Table L-BFGS is: small problems of many kinds and scales, W from 1 to 1000, four laws of delay.

    python -m benchmarks.studies.laboratory.safety [runs, by default 1000]

A run counts as diverged by its status, and as a false success where it says `converged` and the exact
gradient, computed anew, is not flat: |g| max(1, |theta|) > 1e-8 max(1, |U|) beyond rounding.
Counts by problem go to docs/results/laboratory/safety.csv.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np

import asyncqn as aq
from benchmarks.studies.laboratory.cells import LAWS, cluster
from benchmarks.studies.large_data.models import Robust, TanhNetwork
from benchmarks.studies.tables import write

WORKERS = (1, 2, 5, 17, 60, 250, 1000)
SCALES = (0.01, 1.0, 100.0)
PASSES = 400
"""Exact passes after which a run is left, as `completed`."""


def _logistic(rng: np.random.Generator, scale: float) -> Any:
    n, d = int(rng.integers(200, 3000)), int(rng.integers(2, 25))
    X = scale * rng.standard_normal((n, d)) * np.geomspace(1.0, float(rng.choice([1.0, 0.01])), d)
    return aq.LogisticRegression(X, rng.random(n) < 1.0 / (1.0 + np.exp(-X @ rng.standard_normal(d))))


def _sorted_labels(rng: np.random.Generator, scale: float) -> Any:
    problem = _logistic(rng, scale)
    order = np.argsort(problem.y, kind="stable")
    return aq.LogisticRegression(problem.X[order], problem.y[order])


def _linear(rng: np.random.Generator, scale: float) -> Any:
    n, d = int(rng.integers(200, 3000)), int(rng.integers(2, 25))
    A = scale * rng.standard_normal((n, d))
    return aq.LinearGaussian(A, A @ rng.standard_normal(d) + rng.standard_normal(n), 1.0)


def _concentrated(rng: np.random.Generator, scale: float) -> Any:
    """All curvature in the first rows."""
    problem = _linear(rng, 0.01)
    A = problem.A.copy()
    A[: problem.dim] *= 1000.0 * scale
    return aq.LinearGaussian(A, A @ rng.standard_normal(problem.dim), 1.0)


def _few_rows(rng: np.random.Generator, scale: float) -> Any:
    """Fewer rows than twice the numbers in theta."""
    A = scale * rng.standard_normal((60, 40))
    return aq.LinearGaussian(A, rng.standard_normal(60), 10.0)


KINDS = {
    "logistic": _logistic,
    "sorted labels": _sorted_labels,
    "linear": _linear,
    "concentrated": _concentrated,
    "few rows": _few_rows,
    "robust": lambda rng, scale: Robust.random(1000, 10, scale, int(rng.integers(1000))),
    "network": lambda rng, scale: TanhNetwork.random(1000, 5, 3, scale, int(rng.integers(1000))),
}


def one_run(number: int) -> tuple[str, str, str]:
    """The kind of problem, the status, and what is wrong with it ("" for nothing)."""
    rng = np.random.default_rng([7, number])
    kind = list(KINDS)[number % len(KINDS)]
    potential = KINDS[kind](rng, SCALES[number // len(KINDS) % len(SCALES)])
    workers, law = int(rng.choice(WORKERS)), LAWS[int(rng.integers(len(LAWS)))]
    algorithm = aq.table_algorithm(potential, workers, float(rng.choice([0.4, 2.0, 10.0])))
    theta0 = float(rng.choice([0.0, 0.3, 10.0])) * rng.standard_normal(potential.dim)
    run = aq.minimize(
        potential, algorithm, engine=aq.Simulator(cluster(law, workers, potential.n_data)), theta0=theta0,
        seed=number, commits=algorithm.table_commits + PASSES, evaluate=10**6, check=False,
    )  # fmt: skip
    wrong = "diverged" if run.status == "diverged" else ""
    if run.status == "converged":
        g = np.empty(potential.dim)
        potential.grad(run.theta, np.arange(potential.n_data), g)
        size = np.linalg.norm(g) * max(1.0, float(np.linalg.norm(run.theta)))
        rounding = 1e-12 * max(1.0, abs(potential.value(theta0)))
        wrong = "" if size <= 1.01e-8 * max(1.0, abs(run.fun)) + rounding else "false success"
    return kind, run.status, wrong


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    statuses: Counter[tuple[str, str]] = Counter()
    bad: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        kind, status, wrong = one_run(number)
        statuses[kind, status] += 1
        if wrong:
            bad[kind, wrong] += 1
            print(f"run {number}, {kind}: {wrong}", flush=True)
        if number % 50 == 49 or number == count - 1:
            print(number + 1, dict(statuses), dict(bad), flush=True)
            names = ("converged", "stalled", "completed", "stopped")
            write("laboratory/safety", [
                {
                    "problem": k, "runs": sum(n for (kk, _), n in statuses.items() if kk == k),
                    **{name: statuses[k, name] for name in names},
                    "diverged": bad[k, "diverged"], "false successes": bad[k, "false success"],
                } for k in KINDS
            ])  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
