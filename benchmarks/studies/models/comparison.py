"""Linear models: is it faster than what I use now?  Passes and processor time to U within 1 %, 1e-4 and 1e-9.

    python -m benchmarks.studies.models.comparison [problem ...] [--patience 8] [--rounds 3] [--alone]

The gap is (U - U*) / U*, and U* is right to 1e-12: by the gradient at the end of a long run, for the prior
alone makes U - U* at most |g|^2 / (2 prior).  Everything uses one thread and starts at zero.  Times are
processor times of this process, one method after the other, the least of so many rounds for every method that
gets to 1e-4 in the first; compilation and the making of data are left out.  Methods that have not arrived
after `patience` times our own time to 1e-9 are given up.  --alone leaves other libraries out.  The table goes
to docs/results/models/speed.csv, row by row; our speed-up over the best of the others is printed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import asyncqn as aq
from benchmarks.studies.models.ours import default, ours, previous_default
from benchmarks.studies.models.problems import PROBLEMS
from benchmarks.studies.models.rivals import Method, Reached, rivals_for
from benchmarks.studies.tables import read, write
from benchmarks.timing import one_blas_thread

TARGETS = (1e-2, 1e-4, 1e-9)
TABLE = "models/speed"
OURS = "asyncqn"
EXACT = 1e-12


def optimum(model: Any) -> tuple[float, float]:
    """U*, and how far above it this may lie, as a share of it."""
    run = aq.minimize(model, engine=aq.Threads(1), tol=1e-11, max_passes=120)
    g = np.empty(model.dim)
    model.grad(run.theta, np.arange(model.n_data), g)
    # U is strongly convex with constant `prior`, which bounds U - U* by |g|^2 / (2 prior).
    return run.fun, float(g @ g) / (2.0 * model.prior * run.fun)


def least(method: Method, model: Any, levels: list[float], limit: float, rounds: int) -> list[Reached]:
    """Return the least time to each level over the rounds; one round if the method does not reach 1e-4."""
    found = method(model, levels, limit)
    # A method that does not reach 1e-4 is not worth further rounds.
    for _ in range(rounds - 1 if math.isfinite(found[1].seconds) else 0):
        again = method(model, levels, limit)
        found = [min(one, other, key=lambda reached: reached.seconds) for one, other in zip(found, again)]
    return found


def sooner(problems: Sequence[str]) -> None:
    """Print our speed-up over the best other method of the table, and the geometric means."""
    rows = read(TABLE)
    for target in TARGETS:
        ratios = {}
        for problem in problems:
            at = [row for row in rows if row["problem"] == problem and float(row["gap"]) == target]
            seconds = {row["method"]: float(row["seconds"]) for row in at}
            ratios[problem] = min(s for name, s in seconds.items() if name != OURS) / seconds[OURS]
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        print(f"to {target:g}: speed-up {mean:.2f};", {name: round(r, 2) for name, r in ratios.items()})


def measure(problem: str, patience: float, rounds: int, alone: bool) -> None:
    model = PROBLEMS[problem]()
    lowest, above = optimum(model)
    print(f"{problem}: U* = {lowest:.12g}, known to {above:.1g}", flush=True)
    assert above <= EXACT, f"U* is not known well enough: {above:.1g}"
    levels = [lowest * (1.0 + target) for target in TARGETS]
    records = [row for row in read(TABLE) if row["problem"] != problem]

    def take(method: str, found: list[Reached]) -> None:
        for target, (passes, seconds) in zip(TARGETS, found):
            records.append(
                {"problem": problem, "method": method, "gap": target, "passes": passes, "seconds": seconds}
            )
        shown = "   ".join(f"{passes:6.3g} / {seconds:7.3g} s" for passes, seconds in found)
        print(f"  {method:32s} {shown}", flush=True)
        write(TABLE, records, 4)

    mine = least(ours(default), model, levels, math.inf, rounds)
    take(OURS, mine)
    limit = patience * mine[-1].seconds
    methods: list[tuple[str, Method]] = [
        ("our previous default", ours(previous_default)),
        *([] if alone else rivals_for(model)),
    ]
    for name, method in methods:
        take(name, least(method, model, levels, limit, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("problems", nargs="*", help=f"of {', '.join(PROBLEMS)}; all if none is named")
    parser.add_argument("--patience", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args()
    with one_blas_thread():
        small = aq.LogisticRegression.random(5000, 3)
        aq.minimize(small, engine=aq.Threads(1))  # compile, and import what rivals import
        for _, method in rivals_for(small):
            method(small, [math.inf], math.inf)
        for problem in given.problems or PROBLEMS:
            measure(problem, given.patience, given.rounds, given.alone)
    sooner(given.problems or list(PROBLEMS))


if __name__ == "__main__":
    main()
