"""What the ranks run in test_server.py: `mpiexec -n N python server_ranks.py URL FILE`; rank 0 prints JSON."""

from __future__ import annotations

import json
import sys

from mpi4py import MPI

import asyncqn as aq

FEATURES = [f"x{j}" for j in range(6)]


def main(url: str, file: str) -> None:
    problem = aq.LogisticRegression.from_server(url, label="bought", features=FEATURES)
    run = aq.minimize(problem, engine=aq.MPI())
    assert problem.source is not None
    fetched = MPI.COMM_WORLD.gather(problem.source.fetched)
    if run is not None:
        local = aq.LogisticRegression.from_file(file, label="bought", features=FEATURES)
        again = aq.replay(run, problem=local)
        same = again.theta.tobytes() == run.theta.tobytes()
        print(json.dumps({"fetched": fetched, "status": run.status, "same": same}))


main(*sys.argv[1:])
