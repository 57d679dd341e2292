"""A simulated cluster in which two of ten workers are three times slower: their staleness and their
effect."""

from __future__ import annotations

import asyncqn as aq


def main() -> None:
    """Compare a-SGD, which uses stale updates of slow workers, with Rennala, which uses fresh ones only."""
    problem = aq.LinearGaussian.random(dim=40, n_data=400, noise_var=10.0, seed=0)
    mean = [1.0] * 8 + [3.0] * 2
    cluster = aq.Cluster(
        workers=10, worker_mean=mean, worker_std=[0.2 * m for m in mean], message=0.1
    )
    engine = aq.Simulator(cluster)
    one_by_one = aq.minimize(
        problem, aq.AsyncSGD(h=2e-4, batch=10), engine=engine, commits=2_000
    )
    # Ten updates per commit with ten times the step: both methods use 2,000 updates.
    rounds = aq.minimize(
        problem, aq.Rennala(h=2e-3, batch=10, collect=10), engine=engine, commits=200
    )
    for run in (one_by_one, rounds):
        workers = run.schedule.per_worker()
        fast, slow = workers[0], workers[-1]
        print(
            f"{type(run.algorithm).__name__}: error {run.metrics['error'][-1]:.3g} at time {run.time:.0f}; "
            f"delivered by a fast worker {fast.delivered} (staleness {fast.staleness:.1f}), "
            f"by a slow one {slow.delivered} ({slow.staleness:.1f})"
        )


if __name__ == "__main__":
    main()
