"""Does `minimize` choose well?  The method that waits and the table, until they converge.

    python -m benchmarks.studies.laboratory.default_rule [--turns 3]      on two real threads
    python -m benchmarks.studies.laboratory.default_rule --simulated      on the laboratory's clusters, draw 0

**Real.**  Two threads, gradients alone (no metric comes with the problem).  The rule compares the measured
costs of a message and a commit with the gradient of a row, and takes `TableLBFGS` where the rows make enough
parts that are worth both.  For each problem two methods run in turns until they converge or `LIMIT` seconds
have passed: the one that waits (the rule with prohibitive costs) and the table (`waits=False`).  One of the
two is the choice.  Seconds are those of the clock, the start of the run included.

Writes docs/results/laboratory/default.csv: medians, ranges, and how far above the lowest U each ended.

**Simulated.**  The problems of the laboratory (draw 0, seed 0, law *lognormal*), W = 1, 4, 16 and 40: passes
until a run converges (tolerance 1e-8), at most `MOST_PASSES`; the master is charged for its commits.  Writes
docs/results/laboratory/converged.csv.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.minimize import PROHIBITIVE_COST, choose_algorithm
from asyncqn.types import extra
from asyncqn_recommender import MatrixFactorization
from benchmarks.studies.laboratory.cells import Cell, cluster
from benchmarks.studies.laboratory.commits import commit_time
from benchmarks.studies.laboratory.ours import our_methods
from benchmarks.studies.laboratory.problems import problem
from benchmarks.studies.large_data.models import TanhNetwork
from benchmarks.studies.tables import write

WORKERS, LIMIT = 2, 25.0
SIMULATED_WORKERS, MOST_PASSES = (1, 4, 16, 40), 300.0
SIMULATED = ("linear", "logistic", "ill", "rotated", "network", "factorization", "profiled")


class GradientsAlone(aq.LogisticRegression):
    """A logistic regression that offers values and gradients, as a user's own problem does."""

    sampled_metric = grad_with_curvature = None  # type: ignore[assignment]


def _factorization() -> MatrixFactorization:
    """200,000 ratings of a pattern of rank 2 with noise, factorized with rank 5."""
    rng = np.random.default_rng(0)
    users, items = rng.integers(2000, size=200_000), rng.integers(1000, size=200_000)
    rows = rng.standard_normal((2000, 2)), rng.standard_normal((1000, 2))
    values = 3.5 + (rows[0][users] * rows[1][items]).sum(axis=1) + 0.5 * rng.standard_normal(len(users))
    return MatrixFactorization(users, items, values, n_users=2000, n_items=1000, rank=5, dtype="float64")


PROBLEMS: dict[str, Callable[[], Any]] = {
    "network, 20,000 rows": lambda: TanhNetwork.random(20_000, inputs=10, hidden=5, seed=0),
    "network, 200,000 rows": lambda: TanhNetwork.random(200_000, inputs=10, hidden=5, seed=0),
    "logistic, 1,000,000 x 20": lambda: GradientsAlone.random(1_000_000, 20, seed=0),
    "logistic, 100,000 x 100": lambda: GradientsAlone.random(100_000, 100, seed=0),
    "ratings, 200,000, d = 15,000": _factorization,
}


def measure(name: str, turns: int) -> list[dict[str, Any]]:
    """Return a row for each method on a problem."""
    model, engine = PROBLEMS[name](), aq.Threads(WORKERS)
    # A logistic model starts at zero; a network there would stay on a saddle.
    initial = extra(model, "initial")
    theta0 = np.zeros(model.dim) if initial is None else initial(np.random.default_rng(5))
    chosen = choose_algorithm(model, engine, theta0).algorithm
    waiting = aq.default_algorithm(model, WORKERS, message=PROHIBITIVE_COST, master=PROHIBITIVE_COST)
    methods = {"waits": waiting, "table": choose_algorithm(model, engine, theta0, waits=False).algorithm}
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    ends: dict[str, aq.Run] = {}
    # In turns, so that other load on the machine falls on all methods alike.  The first turn compiles.
    for turn in range(turns + 1):
        for method, algorithm in methods.items():
            begin = time.perf_counter()
            limits = {"commits": 5, "tol": None} if turn == 0 else {"max_time": LIMIT}
            ends[method] = aq.minimize(model, algorithm, engine=engine, theta0=theta0, check=False, **limits)
            if turn:
                seconds[method].append(time.perf_counter() - begin)
    lowest = min(run.fun for run in ends.values())
    start = float(model.value(theta0))
    return [
        {
            "problem": name,
            "method": type(methods[method]).__name__,
            "chosen": type(chosen) is type(methods[method]),
            "runs": turns,
            "seconds": round(statistics.median(each), 2),
            "least": round(min(each), 2),
            "most": round(max(each), 2),
            "last status": str(ends[method].status),
            "gap left": f"{(ends[method].fun - lowest) / (start - lowest):.1e}",
        }
        for method, each in seconds.items()
    ]


def simulate(family: str, workers: int) -> dict[str, Any]:
    """Return passes to convergence of the table and of the method that waits, in a cell of the laboratory."""
    told = problem(family)
    cell = Cell(family, workers, "lognormal")
    unit = told.model.n_data * told.row / workers
    dear = {"message": PROHIBITIVE_COST, "master": PROHIBITIVE_COST}
    methods = {
        "waits": aq.default_algorithm(told.model, workers, **dear),
        "table": our_methods(told.model, workers, cell.message / told.row)["table"],
    }
    row: dict[str, Any] = {
        "problem": family,
        "W": workers,
        "method that waits": type(methods["waits"]).__name__,
    }
    for method, algorithm in methods.items():
        machines = cluster(
            cell.kind, workers, told.model.n_data, told.row, commit_time(algorithm, told.model.dim)
        )
        run = aq.minimize(
            told.model,
            algorithm,
            engine=aq.Simulator(machines),
            theta0=told.theta0,
            max_time=MOST_PASSES * unit,
            check=False,
        )
        done = run.status == "converged"
        row[f"passes, {method}"] = round(float(run.metrics["time"][-1]) / unit, 1) if done else None
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--simulated", action="store_true")
    given = parser.parse_args()
    if given.simulated:
        cells = [(family, workers) for family in SIMULATED for workers in SIMULATED_WORKERS]
        write("laboratory/converged", [simulate(*cell) for cell in cells])
        return
    rows = []
    for name in PROBLEMS:
        for row in measure(name, given.turns):
            print(*row.values(), sep=" | ", flush=True)
            rows.append(row)
    write("laboratory/default", rows)


if __name__ == "__main__":
    main()
