"""A whole fit at rank 50 beside alternating least squares in NumPy to the same train objective, one thread.

    python -m benchmarks.studies.recommender.least_squares ml-1m

The argument is a stored set.  Writes a line of docs/results/recommender/least_squares.csv, and the page.
`make bench BENCH=beside_least` does the same on synthetic ratings.
"""

from __future__ import annotations

import sys

from asyncqn_recommender.data import load
from benchmarks.speed.bench_ranks import beside_least_squares
from benchmarks.studies.recommender import page


def main(name: str) -> None:
    found = beside_least_squares(load(name))[0]
    print(found)
    line = {"set": name, "what": found["name"], "processor_seconds": found["value"], "ratio": found["ratio"]}
    page.keep("least_squares", line, ("set",))


if __name__ == "__main__":
    main(*sys.argv[1:])
