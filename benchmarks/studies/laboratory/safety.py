"""How safe Table L-BFGS is: small problems of twelve kinds, five scales, W from 1 to 400, four laws of delay.

    python -m benchmarks.studies.laboratory.safety [--runs 1000] [--seconds 150]     goes on where it stopped
    python -m benchmarks.studies.laboratory.safety --runs 0                          prints the counts alone

Beside every run, `ExactLBFGS` on one worker is given 300 passes from the same start; the table is given ten
times what that needed, and 200 passes where it did not converge.  Counted are

    false success   `converged`, and the exact gradient, computed anew, is not flat:
                    |g| max(1, |theta|) > 1e-8 max(1, |U|) beyond rounding
    above           U at the reported point is above the start, beyond rounding
    diverged        by status, where ExactLBFGS does not diverge
    slow            ExactLBFGS converged, and the table did not within its passes

Every run is a line of docs/results/laboratory/safety.jsonl.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.table.choice import table_algorithm
from asyncqn_paper.nonconvex import Mixture, PhaseRetrieval
from asyncqn_recommender import MatrixFactorization, ProfiledFactorization
from benchmarks.studies.laboratory.cells import LAWS, add, cluster, stored
from benchmarks.studies.laboratory.models import Robust, TanhNetwork
from benchmarks.studies.laboratory.verdict import Verdict
from benchmarks.studies.tables import RESULTS

LINES = RESULTS / "laboratory" / "safety.jsonl"
WORKERS = (1, 2, 5, 17, 60, 250, 400)
SCALES = (0.01, 0.1, 1.0, 10.0, 100.0)
PASSES, TIMES = 300, 10
"""Passes that ExactLBFGS is given, and how many times the passes that it needed the table is."""
FEWEST = 20
"""Passes that ExactLBFGS is taken to need at least."""
WRONG = ("false success", "above", "diverged")
SHARE = 0.97
"""Of the runs that must converge in time."""


def _logistic(rng: np.random.Generator, scale: float) -> Any:
    n, d = int(rng.integers(100, 1500)), int(rng.integers(2, 25))
    X = (
        scale
        * rng.standard_normal((n, d))
        * np.geomspace(1.0, float(rng.choice([1.0, 0.01])), d)
    )
    return aq.LogisticRegression(
        X,
        rng.random(n) < 1.0 / (1.0 + np.exp(-X @ rng.standard_normal(d))),
        intercept=False,
    )


def _sorted_labels(rng: np.random.Generator, scale: float) -> Any:
    problem = _logistic(rng, scale)
    order = np.argsort(problem.y, kind="stable")
    return aq.LogisticRegression(problem.X[order], problem.y[order], intercept=False)


def _linear(rng: np.random.Generator, scale: float) -> Any:
    n, d = int(rng.integers(100, 1500)), int(rng.integers(2, 25))
    A = scale * rng.standard_normal((n, d))
    return aq.LinearGaussian(
        A, A @ rng.standard_normal(d) + rng.standard_normal(n), 1.0
    )


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


def _poisson(rng: np.random.Generator, scale: float) -> Any:
    """Counts of about one; features of all scales, with coefficients that keep the rates so."""
    n, d = int(rng.integers(200, 1000)), int(rng.integers(2, 12))
    X = scale * rng.standard_normal((n, d))
    rate = np.exp(
        np.clip(X @ rng.standard_normal(d) / (scale * math.sqrt(d)), -5.0, 3.0)
    )
    return aq.PoissonRegression(X, rng.poisson(rate), intercept=False)


def _ratings(rng: np.random.Generator, scale: float) -> dict[str, Any]:
    pairs = rng.choice(40 * 30, 600, replace=False)
    users, items = pairs // 30, pairs % 30
    rows = rng.standard_normal((40, 2)), rng.standard_normal((30, 2))
    values = (rows[0][users] * rows[1][items]).sum(axis=1)
    values = scale * (values + 0.3 * rng.standard_normal(600))
    sizes = {"n_users": 40, "n_items": 30, "rank": 3, "dtype": "float64"}
    return {"users": users, "items": items, "values": values, **sizes}


def _mixture(rng: np.random.Generator, scale: float) -> Any:
    return Mixture.random(
        components=4,
        n_data=400,
        width=20.0 * scale,
        gap=0.0,
        seed=int(rng.integers(99)),
    )


KINDS = {
    "logistic": _logistic,
    "sorted labels": _sorted_labels,
    "linear": _linear,
    "concentrated": _concentrated,
    "few rows": _few_rows,
    "poisson": _poisson,
    "robust": lambda rng, scale: Robust.random(
        1000, 10, scale, int(rng.integers(1000))
    ),
    "network": lambda rng, scale: TanhNetwork.random(
        1000, 5, 3, scale, int(rng.integers(1000))
    ),
    "factorization": lambda rng, scale: MatrixFactorization(**_ratings(rng, scale)),
    "profiled": lambda rng, scale: ProfiledFactorization(**_ratings(rng, scale)),
    "mixture": _mixture,
    "phase retrieval": lambda rng, scale: PhaseRetrieval.random(
        8, 400, int(rng.integers(1000))
    ),
}


def _flat(problem: Any, theta: np.ndarray, fun: float, start: float) -> bool:
    g = np.empty(problem.dim)
    problem.grad(theta, np.arange(problem.n_data), g)
    size = np.linalg.norm(g) * max(1.0, float(np.linalg.norm(theta)))
    return bool(size <= 1.01e-8 * max(1.0, abs(fun)) + 1e-12 * max(1.0, abs(start)))


def one_run(number: int) -> dict[str, Any]:
    """How run `number` went; `wrong` says what is wrong with it ("" for nothing)."""
    rng = np.random.default_rng([8, number])
    kind = list(KINDS)[number % len(KINDS)]
    scale = SCALES[number // len(KINDS) % len(SCALES)]
    problem = KINDS[kind](rng, scale)
    workers, law = int(rng.choice(WORKERS)), LAWS[int(rng.integers(len(LAWS)))]
    algorithm = table_algorithm(problem, workers, float(rng.choice([0.4, 2.0, 10.0])))
    spread = float(rng.choice([0.1, 0.3, 10.0]))
    theta0 = spread * rng.standard_normal(problem.dim)
    options = {"theta0": theta0, "seed": number, "evaluate": 10**9, "check": False}
    block = aq.minimize(
        problem,
        aq.ExactLBFGS(1),
        engine=aq.Simulator(aq.Cluster(1)),
        commits=PASSES,
        **options,
    )
    passes = TIMES * max(FEWEST, block.passes if block.status == "converged" else 0.0)
    run = aq.minimize(
        problem, algorithm, engine=aq.Simulator(cluster(law, workers, problem.n_data)), max_passes=passes,
        commits=math.ceil(passes * algorithm.parts * 1.2), **options,
    )  # fmt: skip
    start, wrong = float(problem.value(theta0)), ""
    if run.status == "converged" and not _flat(problem, run.theta, run.fun, start):
        wrong = "false success"
    elif not run.fun <= start + 1e-9 * max(1.0, abs(start)):
        wrong = "above"
    if run.status == "diverged" and block.status != "diverged":
        wrong = "diverged"
    return {
        "run": number, "problem": kind, "scale": scale, "start": spread, "workers": workers, "law": law,
        "parts": algorithm.parts, "status": run.status, "passes": round(float(run.passes), 2),
        "block": block.status, "block passes": float(block.passes),
        "wrong": wrong,
    }  # fmt: skip


def verdict(lines: list[dict[str, Any]]) -> list[Verdict]:
    """Return the lines that must hold, with their numbers."""
    counts = Counter(line["wrong"] for line in lines)
    due = [line for line in lines if line["block"] == "converged"]
    arrived = sum(line["status"] == "converged" for line in due)
    share = arrived / max(len(due), 1)
    verdicts = [Verdict(name, counts[name] == 0, str(counts[name])) for name in WRONG]
    what = f"converged within {TIMES} times the passes, at least {SHARE}"
    number = f"{share:.3f} of {len(due)}"
    return [*verdicts, Verdict(what, share >= SHARE, number)]


def main() -> int:
    parser = argparse.ArgumentParser(description="the safety study")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=math.inf)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    done = {line["run"] for line in stored(LINES)}
    for number in range(given.runs):
        if number in done:
            continue
        if time.monotonic() > until:
            break
        line = one_run(number)
        add(LINES, line)
        if line["wrong"]:
            print(line, flush=True)
    lines = stored(LINES)
    print(f"{len(lines)} runs", *verdict(lines), sep="\n")
    late = Counter(
        line["problem"]
        for line in lines
        if line["block"] == "converged" != line["status"]
    )
    print("did not converge in time:", dict(late))
    return 0


if __name__ == "__main__":
    sys.exit(main())
