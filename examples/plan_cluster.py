"""How many workers are useful?  Record a short run, fit a cluster to it, and simulate larger ones."""

from __future__ import annotations

import numpy as np

import asyncqn as aq


class Costly:
    """A problem with expensive gradients, in place of your own."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.X = rng.standard_normal((4_000, 30))
        self.y = self.X @ rng.standard_normal(30)
        self.n_data, self.dim = self.X.shape

    def value(self, theta: np.ndarray) -> float:
        return 0.5 * float(((self.y - self.X @ theta) ** 2).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        X = self.X[rows]
        out[:] = self.n_data / len(rows) * ((X @ theta - self.y[rows]) @ X)


def main() -> None:
    """Print the predicted commits per second and the staleness of larger clusters of such workers."""
    sgd = aq.AsyncSGD(h=1e-5, batch=1_000)
    run = aq.minimize(Costly(), sgd, engine=aq.Threads(2), commits=200)
    for workers in (2, 8, 32):
        # The recorded times of two workers stand for those of every further one.
        cluster = aq.Cluster.from_run(run, workers=workers)
        # A schedule alone computes no gradient, so that 32 workers cost no more than two.
        schedule = aq.simulate(cluster, sgd.stages, commits=2_000, seed=0)
        rate = schedule.commits / schedule.time[-1]
        print(
            f"{workers:>3} workers: {rate:8.0f} commits/s, staleness {schedule.staleness.mean():.1f}"
        )


if __name__ == "__main__":
    main()
