"""How safe Table L-BFGS is: small problems of many kinds and scales, W from 1 to 1000, four laws of delay.

    python -m benchmarks.studies.laboratory.safety [--runs 1000] [--seconds 150]     goes on where it stopped

A run counts as diverged by its status, and as a false success where it says `converged` and the exact
gradient, computed anew, is not flat: |g| max(1, |theta|) > 1e-8 max(1, |U|) beyond rounding.
Every run is a line of docs/results/laboratory/safety.jsonl; counts by problem go to safety.csv beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from typing import Any

import numpy as np

import asyncqn as aq
from benchmarks.studies.laboratory.cells import LAWS, cluster
from benchmarks.studies.large_data.models import Robust, TanhNetwork
from benchmarks.studies.tables import RESULTS, write

LINES = RESULTS / "laboratory" / "safety.jsonl"
WORKERS = (1, 2, 5, 17, 60, 250, 1000)
SCALES = (0.01, 1.0, 100.0)
PASSES = 100
"""Passes after which a run is left, as `completed`."""


def _logistic(rng: np.random.Generator, scale: float) -> Any:
    n, d = int(rng.integers(100, 1500)), int(rng.integers(2, 25))
    X = scale * rng.standard_normal((n, d)) * np.geomspace(1.0, float(rng.choice([1.0, 0.01])), d)
    return aq.LogisticRegression(X, rng.random(n) < 1.0 / (1.0 + np.exp(-X @ rng.standard_normal(d))))


def _sorted_labels(rng: np.random.Generator, scale: float) -> Any:
    problem = _logistic(rng, scale)
    order = np.argsort(problem.y, kind="stable")
    return aq.LogisticRegression(problem.X[order], problem.y[order])


def _linear(rng: np.random.Generator, scale: float) -> Any:
    n, d = int(rng.integers(100, 1500)), int(rng.integers(2, 25))
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


def one_run(number: int) -> dict[str, Any]:
    """How run `number` went; `wrong` says what is wrong with it ("" for nothing)."""
    rng = np.random.default_rng([7, number])
    kind = list(KINDS)[number % len(KINDS)]
    problem = KINDS[kind](rng, SCALES[number // len(KINDS) % len(SCALES)])
    workers, law = int(rng.choice(WORKERS)), LAWS[int(rng.integers(len(LAWS)))]
    algorithm = aq.table_algorithm(problem, workers, float(rng.choice([0.4, 2.0, 10.0])))
    theta0 = float(rng.choice([0.0, 0.3, 10.0])) * rng.standard_normal(problem.dim)
    run = aq.minimize(
        problem, algorithm, engine=aq.Simulator(cluster(law, workers, problem.n_data)), theta0=theta0,
        seed=number, commits=PASSES * algorithm.parts, evaluate=10**6, check=False,
    )  # fmt: skip
    wrong = "diverged" if run.status == "diverged" else ""
    if run.status == "converged":
        g = np.empty(problem.dim)
        problem.grad(run.theta, np.arange(problem.n_data), g)
        size = np.linalg.norm(g) * max(1.0, float(np.linalg.norm(run.theta)))
        rounding = 1e-12 * max(1.0, abs(problem.value(theta0)))
        wrong = "" if size <= 1.01e-8 * max(1.0, abs(run.fun)) + rounding else "false success"
    return {
        "run": number, "problem": kind, "workers": workers, "law": law, "status": run.status,
        "commits": run.nit, "turns": run.counters["turns"], "wrong": wrong,
    }  # fmt: skip


def summary(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts by problem."""
    rows = []
    for kind in KINDS:
        mine = [line for line in lines if line["problem"] == kind]
        counts = Counter(line["status"] for line in mine) + Counter(line["wrong"] for line in mine)
        rows.append({
            "problem": kind, "runs": len(mine), "diverged": counts["diverged"] // 2,
            **{name: counts[name] for name in ("converged", "stalled", "completed", "stopped")},
            "false successes": counts["false success"], "runs with turns": sum(x["turns"] > 0 for x in mine),
        })  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=math.inf)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    LINES.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.exists() else []
    known = {line["run"] for line in lines}
    with LINES.open("a") as file:
        for number in range(given.runs):
            if number in known:
                continue
            if time.monotonic() > until:
                break
            lines.append(one_run(number))
            file.write(json.dumps(lines[-1]) + "\n")
            file.flush()
            if lines[-1]["wrong"]:
                print(lines[-1], flush=True)
    write("laboratory/safety", summary(lines))
    bad = [line for line in lines if line["wrong"]]
    print(f"{len(lines)} runs, {len(bad)} of them wrong.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
