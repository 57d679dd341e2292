"""Kill random Ray workers with kill -9 at random times and count how the runs end.

    python -m benchmarks.faults.ray_faults [KILLS] [SEED]

Runs follow each other on one local Ray until KILLS workers are killed, about five per run.  Every
run must complete all its commits, count each loss, and replay to the bit; a replacement that is not
ready before the end never joins.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from typing import Any

import asyncqn as aq
from asyncqn.types import Progress

WORKERS, KILLS_PER_RUN, COMMITS_BETWEEN = 3, 5, 150
ALGORITHMS: dict[str, Any] = {
    "as-lbfgs": aq.ASLBFGS(h=1e-4, gamma=0.05, beta=500.0, memory=3, batch=60, overlap=40,
                           initial_scale=0.02),
    "mb-lbfgs": aq.MBLBFGS(h=0.05, memory=3, batch=60, overlap=40, timeout=0.05, quorum=0.5),
}  # fmt: skip


class Killer:
    """A callback that kills a random worker now and then."""

    def __init__(self, ray: Any, engine: aq.Ray, kills: int, chance: random.Random) -> None:
        self.ray, self.engine, self.left, self.chance = ray, engine, kills, chance
        self.next = chance.randrange(10, COMMITS_BETWEEN)

    def __call__(self, progress: Progress) -> None:
        if self.left and progress.commit >= self.next:
            office = self.engine._running[-1]
            desk = office.at[self.chance.choice(sorted(office.at))]
            try:
                process = self.ray.get(desk.actor.__ray_call__.remote(lambda self: os.getpid()))
            except self.ray.exceptions.RayError:
                return  # the last victim, whose death nobody has noticed yet
            time.sleep(self.chance.uniform(0.0, 0.01))
            os.kill(process, signal.SIGKILL)
            self.left -= 1
            self.next = progress.commit + self.chance.randrange(1, COMMITS_BETWEEN)


def trial(ray: Any, name: str, kills: int, chance: random.Random) -> dict[str, Any]:
    """One run with its kills; how it ended."""
    engine = aq.Ray(WORKERS, restarts=kills)
    killer = Killer(ray, engine, kills, chance)
    commits = (kills + 1) * COMMITS_BETWEEN + 100
    begin = time.monotonic()
    run = aq.minimize(
        aq.LinearGaussian.random(dim=50, n_data=300), ALGORITHMS[name], engine=engine, commits=commits,
        seed=chance.randrange(1000), evaluate=1, callback=killer,
    )  # fmt: skip
    again = aq.replay(run)
    about = run.manifest["engine"]
    return {
        "algorithm": name, "kills": kills - killer.left, "lost": about["workers_lost"],
        "joined": about["workers_joined"], "completed": run.schedule.commits == commits,
        "replayed": again.theta.tobytes() == run.theta.tobytes(),
        "seconds": round(time.monotonic() - begin, 1),
    }  # fmt: skip


def main(kills: int, seed: int) -> int:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    chance = random.Random(seed)
    ray.init(
        address="local", num_cpus=2, _node_ip_address="127.0.0.2", include_dashboard=False,
        logging_level=40, log_to_driver=False,
    )  # fmt: skip
    outcomes: list[dict[str, Any]] = []
    try:
        while (done := sum(outcome["kills"] for outcome in outcomes)) < kills:
            name = list(ALGORITHMS)[len(outcomes) % len(ALGORITHMS)]
            outcomes.append(trial(ray, name, min(KILLS_PER_RUN, kills - done), chance))
            print(json.dumps(outcomes[-1]), flush=True)
    finally:
        ray.shutdown()
    good = [o for o in outcomes if o["completed"] and o["replayed"] and o["lost"] == o["kills"]]
    total = {key: sum(o[key] for o in outcomes) for key in ("kills", "lost", "joined")}
    print(json.dumps({"runs": len(outcomes), "good": len(good), **total}))
    return 0 if len(good) == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(*(int(x) for x in (sys.argv[1:] + ["20", "0"][len(sys.argv) - 1 :]))))
