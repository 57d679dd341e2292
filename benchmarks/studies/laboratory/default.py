"""The default beside the table: simulated passes to 1 %, to 0.1 % and to the end that a run finds itself.

    python -m benchmarks.studies.laboratory.default [--draw 1] [--seconds 200]      goes on where it stopped

Every run is a row of docs/results/laboratory/default.csv.  Problems are those of the cells, and `wide`:
logistic, 100,000 rows of 100 numbers, where `former` is what was the default: exact blocks, one for each
worker, 100 pairs.  `--slower 100`: a message and a commit take so many times as long, and nobody is told.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.algorithms import algorithm_to_json
from benchmarks.studies.laboratory.cells import MASTER, MESSAGE, PROBLEMS, Problem, cluster, problem
from benchmarks.studies.tables import read, write

TABLE = "laboratory/default"
GAPS = (0.01, 0.001)
WORKERS = (8, 16, 40, 100, 400)
LAWS = ("lognormal", "speeds")
LOOKS = 20
"""Evaluations of U in a pass of the table."""


@lru_cache(maxsize=1)
def told(name: str, draw: int) -> Problem:
    """The problem of a row."""
    if name in PROBLEMS:
        return problem(name, draw)
    wide = aq.LogisticRegression.random(100_000, 100, 10.0, 0.5, seed=draw)
    theta0 = np.zeros(wide.dim)
    lowest = aq.minimize(wide, engine=aq.Simulator(aq.Cluster(1)), theta0=theta0, check=False).fun
    return Problem(name, wide, theta0, float(wide.value(theta0)), lowest)


def passes(here: Problem, law: str, workers: int, slower: float, algorithm: Any, seed: int) -> list[float]:
    """To each gap, and to the end of the run where that is `converged`; infinite: not so."""
    n = here.model.n_data
    table = isinstance(algorithm, aq.TableLBFGS)
    commits = 60 * algorithm.parts if table else 400
    times = replace(cluster(law, workers, n, here.row), message=slower * MESSAGE, master=slower * MASTER)
    run = aq.minimize(
        here.model, algorithm, engine=aq.Simulator(times), theta0=here.theta0,
        seed=seed, commits=commits, evaluate=algorithm.parts // LOOKS if table else 1, check=False,
    )  # fmt: skip
    fun, at = run.metrics["fun"], run.metrics["time"]
    found = [at[fun <= here.level(gap)] for gap in GAPS]
    to_gaps = [float(t.min()) if t.size else math.inf for t in found]
    end = float(run.schedule.commit_times()[-1]) if run.status == "converged" else math.inf
    return [t * workers / (n * here.row) for t in (*to_gaps, end)]


def methods(here: Problem, workers: int) -> dict[str, Any]:
    model = here.model
    found = {
        "default": aq.default_algorithm(model, workers),
        "table": aq.table_algorithm(model, workers, MESSAGE / here.row, MASTER / here.row),
    }
    if here.name == "wide" and workers == 40:
        found["former"] = aq.BlockLBFGS(workers, 100, pieces=4)
    return found


def rows_of(name: str, law: str, workers: int, slower: float, draw: int) -> list[dict[str, Any]]:
    here, found = told(name, draw), []
    for method, algorithm in methods(here, workers).items():
        to_gaps = passes(here, law, workers, slower, algorithm, draw + 1)
        found.append({
            "problem": name, "workers": workers, "law": law, "slower": slower, "draw": draw, "method": method,
            "algorithm": algorithm_to_json(algorithm)["kind"],
            **dict(zip(("1 %", "0.1 %", "converged"), (round(t, 3) for t in to_gaps), strict=True)),
        })  # fmt: skip
    return found


def _where(line: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(line[key]) for key in ("problem", "workers", "law", "slower", "draw"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = ["linear", "logistic", "ill", "network", "wide"]
    parser.add_argument("--problems", nargs="+", choices=[*PROBLEMS, "wide"], default=names)
    parser.add_argument("--laws", nargs="+", choices=LAWS, default=list(LAWS))
    parser.add_argument("--workers", nargs="+", type=int, default=list(WORKERS))
    parser.add_argument("--slower", type=int, default=1)
    parser.add_argument("--draw", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    lines = read(TABLE)
    known = {_where(line) for line in lines}
    for name in given.problems:
        for law in given.laws:
            for workers in given.workers:
                if (name, str(workers), law, str(given.slower), str(given.draw)) in known:
                    continue
                if time.monotonic() > until:
                    return 0
                new = rows_of(name, law, workers, given.slower, given.draw)
                lines += new
                write(TABLE, lines)
                print(*(tuple(line.values()) for line in new), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
