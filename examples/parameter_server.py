"""A parameter server of Ray actors that does not use asyncqn, its log, and what asyncqn finds in the log.

    python examples/parameter_server.py [--updates 400] [--log server.csv]

Four workers fit a least squares model; the last one is three times slower.  The server applies each gradient when
it arrives, and writes one row per update: worker, start, end.
"""

from __future__ import annotations

import argparse
import csv
import time

import numpy as np
import ray

import asyncqn as aq


@ray.remote(num_cpus=0)
class Worker:
    """Computes gradients on its own rows, `slowness` times slower than the others."""

    def __init__(self, seed: int, slowness: int) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((200, 20))
        self.y = self.X @ np.arange(20.0) + rng.standard_normal(200)
        self.pause = 0.004 * slowness

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        time.sleep(self.pause)
        return self.X.T @ (self.X @ theta - self.y) / len(self.y)


def serve(updates: int) -> list[tuple[int, float, float]]:
    """Run the parameter server, and return its log."""
    workers = [Worker.remote(w, 3 if w == 3 else 1) for w in range(4)]
    theta = np.zeros(20)
    ray.get([worker.gradient.remote(theta) for worker in workers])  # all have started
    log = []
    running = {}
    for w, worker in enumerate(workers):
        running[worker.gradient.remote(theta)] = (w, time.perf_counter())
    while len(log) < updates:
        (ready,), _ = ray.wait(list(running), num_returns=1)
        w, start = running.pop(ready)
        theta -= 0.05 * ray.get(ready)
        log.append((w, start, time.perf_counter()))
        running[workers[w].gradient.remote(theta)] = (w, time.perf_counter())
    return log


def analyse(path: str) -> None:
    """Read a log, and say what its straggler costs."""
    columns = np.genfromtxt(path, delimiter=",", names=True)
    schedule = aq.Schedule.from_table(columns)
    print(f"{schedule.commits} updates, mean staleness {schedule.staleness.mean():.1f}")
    for one in schedule.per_worker():
        cycle = f"{1000 * one.cycle:.0f} ms a cycle"
        print(f"worker {one.worker}: {cycle}, staleness {one.staleness:.1f}")
    # Any algorithm under exactly these delays: here with the straggler, without it, and with fresh reads.
    problem = aq.LinearGaussian.random(dim=20, n_data=800, seed=0)
    sgd = aq.AsyncSGD(h=3e-4, batch=20)
    engine = aq.Recorded(schedule)
    run = aq.minimize(problem, sgd, engine=engine, commits=schedule.commits)
    print(aq.blame(run, seeds=4, workers=[3]))


def write(log: list[tuple[int, float, float]], path: str) -> None:
    """Write a log as CSV."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["worker", "start", "end"])
        writer.writerows(log)


def main() -> None:
    """Run the server on a local Ray, and read its log."""
    parser = argparse.ArgumentParser(description="A parameter server and its log.")
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--log", default="server.csv")
    options = parser.parse_args()
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    write(serve(options.updates), options.log)
    ray.shutdown()
    analyse(options.log)


if __name__ == "__main__":
    main()
