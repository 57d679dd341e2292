"""The discrete-event simulation: a cluster and a pattern of messages give a schedule.

Times never depend on the numbers computed, so nothing here knows of theta.
"""

from __future__ import annotations

import numpy as np

from asyncqn.cluster import Cluster
from asyncqn.errors import BadInput, require
from asyncqn.kernels import events
from asyncqn.kernels.blocks import blocks
from asyncqn.schedule import Schedule
from asyncqn.streams import check_seed
from asyncqn.types import Asynchronous, Blocks, Pattern, Rounds


def simulate(cluster: Cluster, pattern: Pattern, commits: int, seed: int) -> Schedule:
    """The schedule of `commits` commits on the cluster; shorter if every worker dies before."""
    require(
        isinstance(commits, (int, np.integer)) and 1 <= commits < 2**31,
        f"commits must be an integer of at least 1, not {commits!r}.",
    )
    seed = check_seed(seed)
    m, s = cluster.log_normal()
    workers = range(cluster.workers)
    birth = np.array([cluster.joins.get(w, 0.0) for w in workers])
    death = np.array([cluster.deaths.get(w, np.inf) for w in workers])
    timing = (m, s, cluster.message, cluster.master, birth, death)
    if isinstance(pattern, Asynchronous):
        worker, read = np.empty(commits, np.int32), np.empty(commits, np.int32)
        time = np.empty(commits)
        n = events.asynchronous(*timing, seed, worker, read, time)
        return Schedule(worker[:n], read[:n], np.arange(1, n + 1, dtype=np.int32), time[:n])
    if isinstance(pattern, Rounds):
        capacity = commits * cluster.workers
        columns = [np.zeros(capacity, np.int32) for _ in range(3)] + [np.zeros(capacity)]
        n, rows = events.rounds(*timing, pattern.timeout, pattern.quorum, seed, commits, *columns)
        order = np.argsort(columns[3][:rows], kind="stable")
        return Schedule(*(column[:rows][order] for column in columns)).until(n)  # type: ignore[arg-type]
    if isinstance(pattern, Blocks):
        capacity = 2 * commits * pattern.n_blocks + cluster.workers
        while capacity > 0:
            columns = [np.zeros(capacity, np.int32) for _ in range(3)] + [np.zeros(capacity)]
            part = np.zeros(capacity, np.int32)
            n, rows, capacity = blocks(*timing, *pattern, seed, commits, *columns, part)
        order = np.argsort(columns[3][:rows], kind="stable")
        return Schedule(*(column[:rows][order] for column in [*columns, part])).until(n)  # type: ignore[arg-type]
    raise BadInput(f"the simulator does not know the message pattern {type(pattern).__name__}.")
