"""python -m benchmarks.studies.posteriors.lockstep: uneven workers against lockstep, under several laws.

A worker whose step takes the random time t_w makes 1 / E t_w steps per unit of time; lockstep makes W steps
in the time of the slowest.  So the ratio of steps is

    (1/W sum_w 1 / E t_w) * E max_w t_w,

which depends on the cluster alone, not on the sampler: it says what there is to gain.  The last column is
measured: effective draws per unit of simulated time of `aq.sample`, over those of the same sampler on a
cluster in which every step takes E max_w t_w.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import asyncqn as aq
from tests.posterior_models import hierarchical

WORKERS = 16
ROUNDS = 4000


def laws(workers: int = WORKERS) -> dict[str, aq.Cluster]:
    """Clusters whose slowest worker takes four times as long as the fastest, or all alike."""

    def cluster(mean: Any, jitter: float) -> aq.Cluster:
        mean = np.broadcast_to(mean, workers)
        return aq.Cluster(workers=workers, worker_mean=mean.tolist(), worker_std=(jitter * mean).tolist())

    linear, geometric = np.linspace(1.0, 4.0, workers), np.geomspace(1.0, 4.0, workers)
    absolute = aq.Cluster(workers=workers, worker_mean=linear.tolist(), worker_std=0.3)
    return {
        "equal means, 50 % jitter": cluster(2.0, 0.5),
        "1 to 4, linear in speed, no jitter": cluster(1.0 / np.linspace(0.25, 1.0, workers), 0.0),
        "1 to 4, linear, standard deviation 0.3": absolute,
        "1 to 4, linear, 50 % jitter": cluster(linear, 0.5),
        "1 to 4, geometric, no jitter": cluster(geometric, 0.0),
        "1 to 4, geometric, 25 % jitter": cluster(geometric, 0.25),
        "1 to 4, geometric, 50 % jitter": cluster(geometric, 0.5),
        "half of them 4, the others 1, no jitter": cluster(np.repeat([1.0, 4.0], workers // 2), 0.0),
    }


def slowest(cluster: aq.Cluster) -> float:
    """E max_w t_w."""
    times = [cluster.compute_times(seed=0, worker=w, count=ROUNDS) for w in range(cluster.workers)]
    return float(np.max(times, axis=0).mean())


def predicted(cluster: aq.Cluster) -> float:
    """The ratio of steps per unit of time, by the formula above."""
    times = [cluster.compute_times(seed=0, worker=w, count=ROUNDS).mean() for w in range(cluster.workers)]
    return float(np.mean(1.0 / np.array(times))) * slowest(cluster)


def ess_per_time(cluster: aq.Cluster, draws: int, seed: int = 0) -> float:
    """The least bulk ESS of a run on a hierarchical model, per unit of time after the warm-up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = aq.sample(
            hierarchical(), chains=cluster.workers, draws=draws, engine=aq.Simulator(cluster), seed=seed
        )
    run = samples.run
    after = 1.0 - samples.run.algorithm.warm_up_commits(run.theta0.size) / run.nit
    return float(samples.ess.min()) / (run.time * after)


def main() -> None:
    """Print the table, as the page has it."""
    draws, seeds = 5000, range(3)
    print("| law of step times | steps over lockstep | ESS per time over lockstep |\n|---|---|---|")
    # In lockstep all steps take the same time, so that one run serves all laws: time is its unit.
    lockstep = [ess_per_time(aq.Cluster(workers=WORKERS, worker_std=0.0), draws, seed) for seed in seeds]
    for name, cluster in laws().items():
        unit = slowest(cluster)
        found = [ess_per_time(cluster, draws, seed) * unit / even for seed, even in zip(seeds, lockstep)]
        low, middle, high = np.sort(found)
        print(f"| {name} | {predicted(cluster):.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
