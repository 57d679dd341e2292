"""The job on the hosts of `two_hosts`: a factorization of ratings that every host has on its own disk.

    python -m benchmarks.faults.two_hosts_job ENGINE COMMITS [GIVE_UP]

In the working folder: `ratings` is read, `checkpoints` and `run` are written, `progress` gets a line
per commit (when, which, how many workers).  If there are checkpoints, the run continues from them.
The last line of the output is JSON: how the run ended, and whether it replays bit for bit.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import asyncqn as aq
from asyncqn.models import rebuild
from asyncqn.types import Progress

WORKERS = 4
PACE = 0.1
"""Seconds of a computation: runs last long enough for a link to be cut and mended."""
RATINGS = "ratings"


def make_ratings(folder: Path) -> None:
    """The same ratings on any host: 12,000 of 300 users."""
    from asyncqn_recommender.data.store import save_ratings
    from asyncqn_recommender.data.synthetic import synthetic_ratings

    save_ratings(synthetic_ratings(300, 200, 12_000, seed=0), folder)


def engine_named(kind: str, give_up: float) -> Any:
    slow = aq.Cluster(workers=WORKERS, worker_mean=PACE, worker_std=PACE / 5)
    if kind == "mpi":
        return aq.MPI(timing_model=slow, give_up_after=give_up)
    return aq.Ray(
        WORKERS,
        address="auto",
        timing_model=slow,
        give_up_after=give_up,
        restarts=WORKERS,
        start_timeout=120.0,
    )


def main(kind: str, commits: int, give_up: float) -> None:
    engine = engine_named(kind, give_up)
    problem = rebuild(
        {
            "kind": "matrix-factorization",
            "source": str(Path(RATINGS).absolute()),
            "rank": 3,
        }
    )

    def tell(now: Progress) -> None:
        with Path("progress").open("a") as progress:
            progress.write(f"{time.time():.3f} {now.commit} {now.workers}\n")

    if any(Path("checkpoints", generation).is_dir() for generation in "ab"):
        run = aq.resume(
            "checkpoints", problem, engine=engine, callback=tell, checkpoint_every=1.0
        )
    else:
        run = aq.minimize(
            problem,
            aq.ASLBFGS(
                h=1e-6,
                gamma=0.1,
                beta=1e4,
                memory=3,
                batch=2000,
                overlap=1000,
                initial_scale=1e-4,
            ),
            engine=engine,
            commits=commits,
            seed=1,
            evaluate=1,
            callback=tell,
            checkpoint="checkpoints",
            checkpoint_every=1.0,
        )
    if run is None:
        return
    run.save("run")
    replayed = aq.replay(run).theta.tobytes() == run.theta.tobytes()
    lost = run.manifest["engine"]["workers_lost"]
    print(
        json.dumps(
            {
                "status": run.status,
                "commits": run.nit,
                "lost": lost,
                "replayed": replayed,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        float(sys.argv[3]) if len(sys.argv) > 3 else math.inf,
    )
