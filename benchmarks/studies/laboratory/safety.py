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

Every run is a line of docs/results/laboratory/safety.jsonl; counts by problem go to safety.csv beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.table.choice import table_algorithm
from asyncqn_paper.nonconvex import Mixture, PhaseRetrieval
from asyncqn_recommender import MatrixFactorization, ProfiledFactorization
from benchmarks.studies.laboratory.cells import LAWS, cluster
from benchmarks.studies.laboratory.models import Robust, TanhNetwork
from benchmarks.studies.tables import RESULTS, write

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
    values = scale * (
        (rows[0][users] * rows[1][items]).sum(axis=1) + 0.3 * rng.standard_normal(600)
    )
    return {"users": users, "items": items, "values": values, "n_users": 40, "n_items": 30, "rank": 3,
            "dtype": "float64"}  # fmt: skip


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


def summary(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts by problem, and of all."""
    rows = []
    for kind in (*KINDS, "all"):
        mine = [line for line in lines if kind in (line["problem"], "all")]
        due = [line for line in mine if line["block"] == "converged"]
        rows.append({
            "problem": kind, "runs": len(mine),
            **{name: sum(line["wrong"] == name for line in mine) for name in WRONG},
            "block converged": len(due),
            "and the table": sum(line["status"] == "converged" for line in due),
            "stalled": sum(line["status"] == "stalled" for line in due),
            "slow": sum(line["status"] not in ("converged", "stalled") for line in due),
        })  # fmt: skip
    return rows


def verdict(lines: list[dict[str, Any]]) -> list[str]:
    """The lines that must hold, with their numbers."""
    whole = summary(lines)[-1]
    due = whole["block converged"]
    share = whole["and the table"] / due if due else math.nan
    said = [
        f"{'holds ' if whole[name] == 0 else 'MISSED'}  {name}: {whole[name]}, must be 0"
        for name in WRONG
    ]
    word = "holds " if share >= SHARE else "MISSED"
    said.append(
        f"{word}  converged within {TIMES} times the passes: {share:.3f} of {due}, must be {SHARE}"
    )
    return [f"{len(lines)} runs", *said]


def stored() -> list[dict[str, Any]]:
    """The runs made so far."""
    return (
        [json.loads(text) for text in LINES.read_text().splitlines()]
        if LINES.exists()
        else []
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=math.inf)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    LINES.parent.mkdir(parents=True, exist_ok=True)
    lines = stored()
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
    said = verdict(lines)
    print(*said, sep="\n")
    return 1 if any("MISSED" in line for line in said) else 0


if __name__ == "__main__":
    sys.exit(main())
