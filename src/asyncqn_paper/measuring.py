"""Length of a run, and what is measured along it."""

from __future__ import annotations

import numpy as np

from asyncqn import Cluster, Run
from asyncqn.types import Algorithm

HOPELESS = 1e6
"""Factor on the metric's start beyond which a run is stopped as divergent."""


def accepted_share(run: Run) -> float | None:
    """Return the share of the offered curvature pairs that a run's memories accepted."""
    accepted = run.counters.get("pairs_accepted", 0)
    offered = accepted + run.counters.get("pairs_rejected", 0)
    return accepted / offered if offered else None


def commits_within(algorithm: Algorithm, cluster: Cluster, limit: float) -> int:
    """Return a number of commits that suffices until time `limit`.

    The mean rate of commits is at most sum_w 1/cycle_w; a third more allows for a fast start.  A round may
    close with its first update, which may come early; less than 1/20 of the mean time is very rare.
    """
    cycle = cluster.means() + cluster.message + cluster.master
    stage = algorithm.stages[0]
    if not stage.at_once:
        # A round is a broadcast, a computation of the fastest worker, and an update: two turns of the link.
        shortest = (
            cluster.message
            + cluster.master
            + 2.0 * cluster.link
            + 0.05 * float(cluster.means().min())
        )
        return int(limit / max(shortest, 1e-6 * limit)) + 2
    # `rows` updates make a commit; ten commits per worker cover short runs.
    return (
        int(4 / 3 * limit * float(np.sum(1.0 / cycle)) / stage.rows)
        + 10 * cluster.workers
    )
