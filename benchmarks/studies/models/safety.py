"""Safety of the default on linear models: scales, separable labels, float32, W = 1 to 80, three seeds.

    python -m benchmarks.studies.models.safety [model ...]

Simulated clusters, 17,000 rows of 6 features at scales 0.01, 1 and 100, float64 and float32, labels from the
model or separable ones (for models of classes).  A run diverged if it says so.  It is a false success if it
says that it converged and U, computed in float64, is above the minimum by more than 1e-6 of it (1e-4 in
float32); the minimum is that of a long run with one worker, proved by |g|^2 / (2 prior).  The table goes to
docs/results/models/safety.csv.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

import asyncqn as aq
from benchmarks.studies.tables import read, write

ROWS, FEATURES = 17_000, 6
SCALES, TYPES, WORKERS, SEEDS = (0.01, 1.0, 100.0), ("float64", "float32"), (1, 8, 80), range(3)


class GradientsAlone(aq.LogisticRegression):
    """As a user's own class: no curvature."""

    sampled_metric = grad_with_curvature = None  # type: ignore[assignment]


MODELS: dict[str, Any] = {
    "logistic": aq.LogisticRegression,
    "softmax": aq.SoftmaxRegression,
    "Poisson": aq.PoissonRegression,
    "robust": aq.RobustRegression,
    "gradients alone": GradientsAlone,
}
OF_CLASSES = ("logistic", "softmax", "gradients alone")


def problems(model: str, seed: int) -> Iterator[tuple[str, Any]]:
    """(what it is, the problem)."""
    made = MODELS[model]
    for scale in SCALES:
        for dtype in TYPES:
            drawn = made.random(ROWS, FEATURES, scale=scale, seed=seed, dtype=dtype)
            yield f"x {scale:g} {dtype}", drawn
            if model in OF_CLASSES:
                yield f"x {scale:g} {dtype} separable", made(drawn.X, drawn.X[:, 0] > 0)


def lowest(problem: Any) -> float:
    """Return the minimum of U in float64."""
    exact = type(problem)(problem.X.astype(np.float64), problem.y, problem.prior)
    run = aq.minimize(exact, engine=aq.Simulator(aq.Cluster(1)), tol=1e-10)
    g = np.empty(exact.dim)
    exact.grad(run.theta, np.arange(ROWS), g)
    assert g @ g / (2.0 * exact.prior) <= 1e-7 * run.fun, (problem, run.message)
    return float(run.fun)


def judged(problem: Any, workers: int, seed: int, least: float) -> tuple[bool, bool, bool]:
    """Return whether a run diverged, whether it reported convergence, and whether that was wrong."""
    engine = aq.Simulator(aq.Cluster(workers, worker_std=0.5, message=0.1))
    run = aq.minimize(problem, engine=engine, seed=seed)
    exact = type(problem)(problem.X.astype(np.float64), problem.y, problem.prior)
    room = 1e-6 if problem.dtype == np.float64 else 1e-4
    wrong = not exact.value(run.theta.astype(np.float64)) <= least * (1.0 + room) + 1e-9
    return run.status == "diverged", run.success, run.success and wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; all if none is named")
    models = parser.parse_args().models or list(MODELS)
    records: list[dict[str, Any]] = [row for row in read("models/safety") if row["model"] not in models]
    for model in models:
        total = np.zeros(4, int)
        for seed in SEEDS:
            for what, problem in problems(model, seed):
                least = lowest(problem)
                for workers in WORKERS:
                    found = judged(problem, workers, seed, least)
                    total += (1, *found)
                    if found != (False, True, False):
                        print(model, what, f"W = {workers}, seed {seed}: diverged, success, false: {found}")
        names = ("runs", "diverged", "converged", "false successes")
        records.append({"model": model, **{name: int(count) for name, count in zip(names, total)}})
        print(records[-1], flush=True)
        write("models/safety", records)


if __name__ == "__main__":
    main()
