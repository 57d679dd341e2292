"""The gain of a second worker: a fit by one and by two threads in turns, which end with the same bits.

    python -m benchmarks.studies.recommender.workers ml-1m 20 10
    python -m benchmarks.studies.recommender.workers synthetic-20m 5 4

Arguments: a stored set, the rank, passes.  Wall clock, best of the rounds; beside it what two unconnected
loops gain on this machine in the same minute: two threads that compute passes of the same problem, each for
itself, against one.  Needs two idle cores.  Writes a line of docs/results/recommender/workers.csv, and the
page.
"""

from __future__ import annotations

import sys
import threading
import time

import numpy as np

from asyncqn_recommender.data import load
from asyncqn_recommender.estimator import Recommender
from asyncqn_recommender.problems.profiled_factorization import ProfiledFactorization
from benchmarks.studies.recommender import page

ROUNDS = 5


def loops(problem: ProfiledFactorization, theta: np.ndarray, threads: int) -> float:
    """Passes per second, of all threads together."""
    rows = np.arange(problem.n_data)

    def work() -> None:
        problem.grad(theta, rows, np.empty_like(theta))

    running = [threading.Thread(target=work) for _ in range(threads)]
    begun = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return threads / (time.perf_counter() - begun)


def main(name: str, rank: int, passes: int) -> None:
    ratings = load(name)
    Recommender(rank, passes=2).fit(ratings.take(slice(0, 20_000)))
    problem = ProfiledFactorization.from_ratings(ratings, rank, prior=3.0, alpha=0.035, dtype="float32")
    theta = problem.initial(np.random.default_rng(0))
    seconds: dict[int, list[float]] = {1: [], 2: []}
    rates: dict[int, list[float]] = {1: [], 2: []}
    ends = set()
    for _ in range(ROUNDS):
        for workers in (1, 2):
            model = Recommender(rank, workers=workers, passes=passes, tol=0.0).fit(ratings)
            ends.add(model.item_factors_.tobytes())
            # From the first to the last evaluation: reading and solving the users at the end left out.
            seconds[workers].append(float(model.history_["time"][-1]))
            rates[workers].append(loops(problem, theta, workers))
    gain = min(seconds[1]) / min(seconds[2])
    free = max(rates[2]) / max(rates[1])
    if len(ends) > 1:
        raise SystemExit("one and two workers end at different bits.")
    line = {
        "set": name, "rank": rank, "passes": passes, "one_worker": min(seconds[1]), "two": min(seconds[2]),
        "gain": gain, "unconnected": free, "share": gain / free,
    }  # fmt: skip
    print(line)
    page.keep("workers", line, ("set", "rank"))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
