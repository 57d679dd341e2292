"""`plan` against real runs: seconds to 1 % predicted by simulation on a fitted cluster, and measured.

    python -m benchmarks.studies.laboratory.plan_check [threads ...] [mpi]

For each engine, number of workers and method: a run is recorded, a cluster fitted to it (`Cluster.from_run`),
the time to the target predicted by `aq.plan` from that run, and then measured on as many workers.  Both runs
evaluate U equally often, with the clock standing still.  Nothing is slowed down.  Predicted is the mean
over 3 seeds, real the median of `REPEATS` runs; before each pair of record and measurement one run is thrown
away.  The table goes to docs/results/laboratory/plan.csv.

It wants a quiet machine with a processor for each worker, and under MPI one for the master.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.lab.plan import CANDIDATES
from benchmarks import mpi_start
from benchmarks.studies.tables import read, write

ROWS, DIM, GAP, REPEATS = 60_000, 50, 0.01, 5
CASES = {"threads": (1, 2), "mpi": (1, 2)}
STEP = 3e-6
"""Of a-SGD: a tenth of what the largest curvature, about 45,000, allows; some thousand commits to 1 %."""
RECORDED = 60
"""Commits of a recorded run of exact passes; a table has its own number, and a-SGD 3,000."""


def problem() -> tuple[Any, float]:
    """Logistic regression, and the value at which 1 % of U(0) - U* is left."""
    model = aq.LogisticRegression.random(ROWS, DIM, 10.0, 0.5)
    lowest = aq.minimize(model, engine=aq.Simulator(aq.Cluster(1)), check=False).fun
    return model, lowest + GAP * (model.value(np.zeros(DIM)) - lowest)


def methods(model: Any, workers: int) -> dict[str, Any]:
    made = {name: make(model, workers) for name, make in CANDIDATES.items() if name != "default"}
    return {**made, "async-sgd": aq.AsyncSGD(h=STEP, batch=100)}


def runs(model: Any, algorithm: Any, engine: Any, target: float) -> tuple[Any, list[float]]:
    """A recorded run and the real times to the target; (None, []) on ranks that are workers."""
    table = 3 * algorithm.parts if isinstance(algorithm, aq.TableLBFGS) else None
    exact = not isinstance(algorithm, aq.AsyncSGD)
    record = table + 10 if table else RECORDED if exact else 3_000
    every = max(1, algorithm.parts // 20) if table else 1 if exact else 100
    options: dict[str, Any] = {"engine": engine, "check": False}
    aq.minimize(model, algorithm, commits=min(record, 300), evaluate=10**6, tol=None, **options)
    recorded = aq.minimize(model, algorithm, commits=record, evaluate=every, tol=None, **options)
    times = []
    for seed in range(REPEATS):
        run = aq.minimize(
            model, algorithm, commits=20_000, evaluate=every, target=target, seed=10 + seed, **options
        )
        if run is not None and run.metrics["fun"][-1] <= target:
            times.append(float(run.time))
    return recorded, times


def on_ranks(place: str) -> None:
    """What every rank of an MPI job does; rank 0 saves the runs and the times."""
    target = json.loads((Path(place) / "target.json").read_text())
    engine = aq.MPI()
    model = aq.LogisticRegression.random(ROWS, DIM, 10.0, 0.5)
    for name, algorithm in methods(model, engine.workers).items():
        recorded, times = runs(model, algorithm, engine, target)
        if recorded is not None:
            recorded.save(Path(place) / name)
            (Path(place) / f"{name}.json").write_text(json.dumps(times))


def measured(kind: str, workers: int, model: Any, target: float) -> list[dict[str, Any]]:
    found: dict[str, tuple[Any, list[float]]] = {}
    if kind == "mpi":
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "target.json").write_text(json.dumps(target))
            arguments = ["-m", "benchmarks.studies.laboratory.plan_check", "--ranks", place]
            job = mpi_start.start(workers + 1, arguments)
            _, errors = job.communicate(timeout=240)
            if job.returncode != 0:
                raise SystemExit(f"the MPI job failed: {errors[-500:]}")
            for name in methods(model, workers):
                run = aq.load_run(Path(place) / name, problem=model)
                found[name] = (run, json.loads((Path(place) / f"{name}.json").read_text()))
    else:
        for name, algorithm in methods(model, workers).items():
            found[name] = runs(model, algorithm, aq.Threads(workers), target)
    rows = []
    for name, (run, times) in found.items():
        if not times:
            print(f"{kind}, {workers} workers, {name}: no real run reached the target", flush=True)
            continue
        try:
            plan = aq.plan(model, target=target, workers=(workers,), recorded={name: run}, commits=20_000)
        except aq.BadInput as refused:
            print(f"{kind}, {workers} workers, {name}: {refused}", flush=True)
            continue
        real, predicted = statistics.median(times), plan.best.time
        rows.append({
            "engine": kind, "workers": workers, "method": name, "predicted ms": round(1e3 * predicted, 1),
            "real ms": round(1e3 * real, 1), "least": round(1e3 * min(times), 1),
            "most": round(1e3 * max(times), 1), "predicted / real": round(predicted / real, 2),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--ranks"]:
        on_ranks(arguments[1])
        return 0
    chosen = arguments or list(CASES)
    model, target = problem()
    rows = [row for row in read("laboratory/plan") or [] if row["engine"] not in chosen]
    for kind in chosen:
        for workers in CASES[kind]:
            rows += measured(kind, workers, model, target)
            write("laboratory/plan", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
