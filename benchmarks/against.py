"""This tree against another checkout of it: processor time of commits and of loading, in alternating turns.

    git worktree add --detach /tmp/before COMMIT
    python -m benchmarks.against /tmp/before [WORD ...]
    python -m benchmarks.against /tmp/before bits       # the numbers instead: see benchmarks/bits.py

Each tree runs in a process of its own, from its own sources; the two take turns, so that a slow minute
falls on both.  The table has the processor time (all threads) of this tree, and the median over the turns
of its ratio to the other's.  WORD picks the tasks whose name contains it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
TURNS = 15
Task = Callable[[], Callable[[], object]]
"""Prepares what is measured, and returns the call that is."""


def _simulated(dim: int, method: str, commits: int) -> tuple[object, object, object]:
    import asyncqn as aq

    problem = aq.LinearGaussian.random(dim=dim, n_data=max(600, dim), seed=0)
    if method == "SGD":
        # A tiny step: the iterate hardly moves, so that no run diverges and all cost the same.
        algorithm: object = aq.AsyncSGD(h=1e-9, batch=6)
    else:
        algorithm = aq.ASLBFGS(
            h=1e-9,
            gamma=3e-2,
            beta=5e2,
            memory=3,
            batch=6,
            overlap=2,
            initial_scale=1e-3,
        )
    engine = aq.Simulator(
        aq.Cluster(workers=8, worker_mean=70.0, worker_std=14.0, message=10.0)
    )
    run = aq.minimize(
        problem, algorithm, engine=engine, commits=commits, seed=1, evaluate=commits
    )
    return problem, algorithm, run


def replay(dim: int, method: str, commits: int) -> Task:
    def task() -> Callable[[], object]:
        import asyncqn as aq

        problem, _, run = _simulated(dim, method, commits)
        return lambda: aq.replay(run, problem)

    return task


def threads(dim: int, method: str, commits: int, workers: int) -> Task:
    def task() -> Callable[[], object]:
        import asyncqn as aq

        problem, algorithm, _ = _simulated(dim, method, 20)
        engine = aq.Threads(workers=workers)
        return lambda: aq.minimize(
            problem, algorithm, engine=engine, commits=commits, seed=1, evaluate=commits
        )

    return task


def queue(workers: int, commits: int) -> Task:
    def task() -> Callable[[], object]:
        import asyncqn as aq

        cluster = aq.Cluster(
            workers=workers, worker_mean=70.0, worker_std=14.0, message=10.0, master=0.1
        )
        algorithm = aq.AsyncSGD(h=1e-4, batch=6)
        return lambda: aq.simulate(cluster, algorithm.stages, commits, 1)

    return task


def load_run(dim: int, commits: int) -> Task:
    def task() -> Callable[[], object]:
        import asyncqn as aq

        problem, _, run = _simulated(dim, "SGD", commits)
        place = run.save(Path(tempfile.mkdtemp()) / "run")
        return lambda: aq.load_run(place, problem=problem)

    return task


def open_ratings(n: int) -> Task:
    def task() -> Callable[[], object]:
        from asyncqn_recommender.data.store import open_ratings, save_ratings
        from asyncqn_recommender.data.synthetic import synthetic_ratings

        place = Path(tempfile.mkdtemp()) / "ratings"
        save_ratings(synthetic_ratings(2000, 1000, n, seed=0), place)
        return lambda: open_ratings(place)

    return task


def ratings_gradient(rank: int) -> Task:
    def task() -> Callable[[], object]:
        import numpy as np

        from asyncqn_recommender.data.synthetic import synthetic_ratings
        from asyncqn_recommender.problems.profiled_factorization import (
            ProfiledFactorization,
        )

        ratings = synthetic_ratings(2000, 1000, 100_000, seed=0)
        problem = ProfiledFactorization.from_ratings(ratings, rank, dtype=np.float32)
        theta, rows = (
            problem.initial(np.random.default_rng(0)),
            np.arange(problem.n_data),
        )
        out = np.empty_like(theta)
        return lambda: problem.grad(theta, rows, out)

    return task


def logistic_gradient(rows: int) -> Task:
    def task() -> Callable[[], object]:
        import numpy as np

        import asyncqn as aq

        problem = aq.LogisticRegression.random(n_data=10_000, dim=50)
        theta, some = (
            np.full(50, 0.1),
            np.random.default_rng(0).integers(0, 10_000, rows),
        )
        out = np.empty(50)
        return lambda: problem.grad(theta, some, out)

    return task


TASKS = {
    "gradient, ratings, rank 5": ratings_gradient(5),
    "gradient, ratings, rank 30": ratings_gradient(30),
    "gradient, logistic, 64 rows of 50": logistic_gradient(64),
    "gradient, logistic, 10,000 rows of 50": logistic_gradient(10_000),
    "replay, a-SGD, d = 100": replay(100, "SGD", 3000),
    "replay, as-L-BFGS, d = 100": replay(100, "as-L-BFGS", 2000),
    "threads, one worker, a-SGD, d = 1,000": threads(1000, "SGD", 3000, 1),
    "threads, two workers, a-SGD, d = 1,000": threads(1000, "SGD", 3000, 2),
    "threads, two workers, as-L-BFGS, d = 1,000": threads(1000, "as-L-BFGS", 1500, 2),
    "asynchronous queue, W = 10": queue(10, 50_000),
    "asynchronous queue, W = 1,000": queue(1000, 50_000),
    "load_run, d = 100, 1,000 commits": load_run(100, 1000),
    "load_run, d = 1,000, 50,000 commits": load_run(1000, 50_000),
    "open_ratings, 1,000,000 rows": open_ratings(1_000_000),
    "open_ratings, 1,000 rows": open_ratings(1_000),
}


def serve() -> None:
    """In a process of one tree: prepare the task of each line of standard input, run it, tell its time."""
    prepared: dict[str, Callable[[], object]] = {}
    calls: dict[str, int] = {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        if name not in prepared:
            prepared[name] = TASKS[name]()
            prepared[name]()
            began = time.process_time()
            prepared[name]()
            # A turn lasts about a tenth of a second; the call before compiled the kernels.
            calls[name] = max(1, int(0.1 / max(time.process_time() - began, 1e-4)))
        began = time.process_time()
        for _ in range(calls[name]):
            prepared[name]()
        # A keyword, because what is measured may print lines of its own.
        print("took", (time.process_time() - began) / calls[name], flush=True)


def start(tree: Path) -> subprocess.Popen[str]:
    # PYTHONPATH comes before the installed package, so that each process imports its own tree.
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def turn(process: subprocess.Popen[str], name: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(name + "\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("took "):
            return float(line.split()[1])
    raise SystemExit(f"a tree cannot run '{name}'.")


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    other, words = Path(arguments[0]).resolve(), arguments[1:]
    if words[:1] == ["bits"]:
        from benchmarks import bits

        return bits.main(other)
    here, there = start(ROOT), start(other)
    print(f"{'task':48} {'here':>10} {'there':>10} {'ratio':>7} {'of minima':>10}")
    try:
        for name in TASKS:
            if words and not any(word in name for word in words):
                continue
            pairs = [(turn(here, name), turn(there, name)) for _ in range(TURNS)]
            mine, others = [a for a, _ in pairs], [b for _, b in pairs]
            ratio, least = median(a / b for a, b in pairs), min(mine) / min(others)
            times = f"{median(mine) * 1e3:7.2f} ms {median(others) * 1e3:7.2f} ms"
            print(f"{name:48} {times} {ratio:7.3f} {least:10.3f}", flush=True)
    finally:
        for process in (here, there):
            process.terminate()
            process.wait()
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        sys.exit(main(sys.argv[1:]))
