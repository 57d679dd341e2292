"""Peak resident memory of fits to 20 million ratings with two workers, each in a process of its own.

python -m benchmarks.studies.recommender.memory            # all of them; stores synthetic-20m first
python -m benchmarks.studies.recommender.memory recommender synthetic-1m

Writes lines of docs/results/recommender/memory.csv, and the page.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

from asyncqn_recommender.data import fetch, load
from benchmarks.studies.recommender import page

SET, LIMIT = "synthetic-20m", 3.0
PASSES, COMMITS, RANK = 5, 60, 20


def recommender(name: str) -> dict[str, Any]:
    """`Recommender` at rank 20: reading, fitting, and predicting all ratings."""
    from asyncqn_recommender.estimator import Recommender

    ratings = load(name)
    model = Recommender(RANK, workers=2, passes=PASSES).fit(ratings)
    return {"rank": RANK, "rmse": model.rmse(ratings), "fit_seconds": model.seconds_}


def as_lbfgs(name: str) -> dict[str, Any]:
    """Run the paper's as-L-BFGS on all factors in float64, with its parameters for 20M."""
    from asyncqn import ASLBFGS, Threads, minimize
    from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization

    problem = MatrixFactorization.from_ratings(load(name), 5)
    batch = problem.n_data // 100
    method = ASLBFGS(h=1e-9, gamma=1e-3, beta=1e3, memory=3, batch=batch, overlap=batch // 3, rho=3.0)
    begun = time.perf_counter()
    run = minimize(problem, method, engine=Threads(2), commits=COMMITS, seed=0, evaluate=COMMITS)
    return {"rank": 5, "rmse": float(run.metrics["rmse"][-1]), "fit_seconds": time.perf_counter() - begun}


WORK = {"recommender": recommender, "as-lbfgs": as_lbfgs}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["inside"]:
        found = WORK[arguments[1]](arguments[2])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in kB
        told = {"what": arguments[1], "set": arguments[2], **found, "peak_gib": round(peak, 2)}
        print(json.dumps(told))
        return
    name = arguments[1] if len(arguments) > 1 else SET
    fetch(name)
    for what in arguments[:1] or list(WORK):
        command = [sys.executable, "-m", "benchmarks.studies.recommender.memory", "inside", what, name]
        record = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        record |= {"limit_gib": LIMIT, "met": record["peak_gib"] <= LIMIT}
        print(record, flush=True)
        page.keep("memory", record, ("what", "set", "rank"))


if __name__ == "__main__":
    main(sys.argv[1:])
