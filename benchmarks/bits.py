"""Compare the numbers of this tree with those of another checkout, bit by bit, on one machine.

    git worktree add --detach /tmp/before COMMIT
    python -m benchmarks.against /tmp/before bits

Both trees run every algorithm on every problem that it accepts, on a simulated cluster and on one thread, whose
order of commits is fixed, and print a digest of each run.  Floating-point numbers hold on one processor only, so no
digest is committed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
COMMITS = 40
TIME_LIMIT = 1800.0


def algorithms_and_problems() -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, algorithm, problem) for all pairs that fit, in the dtypes that the problem has."""
    from asyncqn.algorithms import ALGORITHMS
    from asyncqn.models import PROBLEMS

    for dtype in ("float64", "float32"):
        for problem_kind, problem_class in PROBLEMS.items():
            try:
                problem = problem_class.example(dtype)
            except ValueError:  # this problem does not exist in this precision
                continue
            for algorithm_kind, algorithm_class in ALGORITHMS.items():
                algorithm = fitting(algorithm_class, problem)
                if algorithm is not None:
                    name = f"{algorithm_kind}, {problem_kind}, {dtype}"
                    yield name, algorithm, problem


def fitting(algorithm_class: Any, problem: Any) -> Any:
    """Return the algorithm's example, or None if it does not accept the problem."""
    try:
        algorithm = algorithm_class.example(problem)
        getattr(algorithm, "check", lambda _: None)(problem)
    except ValueError:
        return None
    needed = getattr(algorithm, "requires", None) or ()
    lacks = any(getattr(problem, name, None) is None for name in needed)
    return None if lacks else algorithm


def engines(algorithm: Any) -> dict[str, Any]:
    """Return the engines whose order of commits is the same in both trees."""
    import asyncqn as aq

    one_worker = getattr(algorithm, "max_workers", None) == 1
    cluster = aq.Cluster(
        workers=1 if one_worker else 4,
        worker_mean=1.0,
        worker_std=0.3,
        message=0.1,
        master=0.01,
    )
    return {"simulator": aq.Simulator(cluster), "one thread": aq.Threads(1)}


def digest(run: Any, timed: bool) -> str:
    """Return a digest of the run's numbers; the times of a real engine are left out."""
    schedule = run.schedule
    columns = [schedule.worker, schedule.read, schedule.commit]
    metrics = {key: run.metrics[key] for key in sorted(run.metrics)}
    if timed:
        columns.append(schedule.time)
    else:
        metrics.pop("time", None)
    sha = hashlib.sha256(run.theta.tobytes())
    for array in (*columns, *metrics.values()):
        sha.update(np.ascontiguousarray(array).tobytes())
    sha.update(repr((str(run.status), run.success)).encode())
    return sha.hexdigest()


def print_digests() -> None:
    """Run everything in the tree that is on Python's path, and print a JSON line for each run."""
    import asyncqn as aq

    for name, algorithm, problem in algorithms_and_problems():
        for place, engine in engines(algorithm).items():
            try:
                run = aq.minimize(
                    problem,
                    algorithm,
                    engine=engine,
                    commits=COMMITS,
                    evaluate=10,
                    seed=5,
                    check=False,
                )
                outcome = digest(run, timed=place == "simulator")
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            print(json.dumps([f"{name}, {place}", outcome]), flush=True)


def digests_of(tree: Path) -> dict[str, str]:
    """Return the digests of one tree, computed in a process of its own."""
    paths = {"PYTHONPATH": str(tree / "src"), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve())],
        env={**os.environ, **paths},
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIME_LIMIT,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    return dict(json.loads(line) for line in lines)


def main(other: Path) -> int:
    """Print which runs differ; return 1 if any does, or if there is nothing to compare."""
    here = digests_of(ROOT)
    there = digests_of(other)
    shared = sorted(here.keys() & there.keys())
    different = [name for name in shared if here[name] != there[name]]
    for name in different:
        print(f"differs: {name}")
    for name in sorted(here.keys() ^ there.keys()):
        print(f"in one tree only: {name}")
    print(f"{len(shared) - len(different)} of {len(shared)} runs are equal bit for bit")
    return 1 if different or not shared else 0


if __name__ == "__main__":
    print_digests()
