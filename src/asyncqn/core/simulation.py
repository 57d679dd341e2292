"""The discrete-event simulation: a cluster and a pattern of messages give a schedule.

Times never depend on the numbers computed, so nothing here knows of theta.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.core.cluster import Cluster
from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.core.streams import check_seed
from asyncqn.errors import BadInput, require
from asyncqn.kernels import events
from asyncqn.kernels.blocks import blocks
from asyncqn.types import Asynchronous, Blocks, Growing, Pattern, Rounds, Staged

_LATER = 1 << 62
"""Times after a warm-up are drawn with the seed changed by this bit."""


class Timing(NamedTuple):
    """What the event queues ask of a cluster; the first four by the names of `Cluster`."""

    m: npt.NDArray[np.float64]
    s: npt.NDArray[np.float64]
    message: float
    master: float
    birth: npt.NDArray[np.float64]
    death: npt.NDArray[np.float64]


def simulate(cluster: Cluster, pattern: Pattern, commits: int, seed: int) -> Schedule:
    """The schedule of `commits` commits on the cluster; shorter if every worker dies before."""
    require(
        isinstance(commits, (int, np.integer)) and 1 <= commits < 2**31,
        f"commits must be an integer of at least 1, not {commits!r}.",
    )
    seed = check_seed(seed)
    if isinstance(pattern, Staged):
        return _staged(cluster, pattern, commits, seed)
    return _simulate(_timing(cluster), pattern, commits, seed)


def _timing(cluster: Cluster) -> Timing:
    m, s = cluster.time_law()
    workers = range(cluster.workers)
    birth = np.array([cluster.joins.get(w, 0.0) for w in workers])
    death = np.array([cluster.deaths.get(w, np.inf) for w in workers])
    return Timing(m, s, cluster.message, cluster.master, birth, death)


def _simulate(timing: Timing, pattern: Pattern, commits: int, seed: int) -> Schedule:
    W = timing.m.size
    if isinstance(pattern, Asynchronous):
        worker, read = np.empty(commits, np.int32), np.empty(commits, np.int32)
        time = np.empty(commits)
        n = events.asynchronous(*timing, seed, worker, read, time)
        return Schedule(worker[:n], read[:n], np.arange(1, n + 1, dtype=np.int32), time[:n])
    if isinstance(pattern, Rounds):
        capacity = commits * W
        columns = [np.zeros(capacity, np.int32) for _ in range(3)] + [np.zeros(capacity)]
        n, rows = events.rounds(*timing, pattern.timeout, pattern.quorum, seed, commits, *columns)
        order = np.argsort(columns[3][:rows], kind="stable")
        return Schedule(*(column[:rows][order] for column in columns)).until(n)  # type: ignore[arg-type]
    if isinstance(pattern, (Blocks, Growing)):
        # The cluster's times are those of a block of all rows.
        shares = np.ones(commits)
        if isinstance(pattern, Growing):
            early = np.repeat(pattern.shares, pattern.versions)[:commits]
            shares[: early.size] = early
            pattern = pattern.blocks
        capacity = 2 * commits * pattern.n_parts + W
        while capacity > 0:
            columns = [np.zeros(capacity, np.int32) for _ in range(3)]
            columns += [np.zeros(capacity), np.zeros(capacity, np.int32)]
            n, rows, capacity = blocks(*timing, *pattern, seed, shares, *columns)
        order = np.argsort(columns[3][:rows], kind="stable")
        return Schedule(*(column[:rows][order] for column in columns)).until(n)  # type: ignore[arg-type]
    raise BadInput(f"the simulator does not know the message pattern {type(pattern).__name__}.")


def _staged(cluster: Cluster, pattern: Staged, commits: int, seed: int) -> Schedule:
    """The two stages one after the other; the cluster's times are those of a part of the warm-up.

    A block takes longer than such a part in the ratio of their sizes.  A worker takes up its first
    block when it has answered what it was computing as the warm-up ended.
    """
    timing = _timing(cluster)
    warm = min(pattern.warmup, commits)
    first = _simulate(timing, Asynchronous(), warm, seed) if warm else Schedule.serial(0)
    end = float(first.time[-1]) if len(first) else 0.0
    half = cluster.message / 2.0
    free = timing.birth.copy()
    under_way: list[tuple[int, int, float]] = []
    for w in range(cluster.workers):
        mine = np.flatnonzero(first.worker == w)
        begun = float(first.time[mine[-1]]) if mine.size else float(timing.birth[w])
        version = int(first.commit[mine[-1]]) if mine.size else int((first.time <= begun).sum())
        if version >= warm or begun > end:
            continue
        finish = begun + half + float(cluster.compute_times(seed, w, mine.size + 1)[-1])
        free[w] = finish + half if finish <= timing.death[w] else np.inf
        if free[w] < np.inf:
            under_way.append((w, version, max(float(free[w]), end)))
    under_way.sort(key=lambda row: row[2])
    rest = pattern.blocks
    if commits > warm == first.commits:
        longer = pattern.batches / rest.n_blocks
        later = timing._replace(
            m=np.where(timing.s > 0, timing.m + np.log(longer), timing.m * longer),
            birth=np.maximum(free - end, 0.0), death=timing.death - end,
        )  # fmt: skip
        second = _simulate(later, rest, commits - warm, seed ^ _LATER)
    else:
        second = Schedule.serial(0)
    dropped = np.array(under_way, np.float64).reshape(-1, 3)
    worker = np.concatenate([first.worker, dropped[:, 0], second.worker]).astype(np.int32)
    read = np.concatenate([first.read, dropped[:, 1], second.read + warm]).astype(np.int32)
    after = np.where(second.commit == DROPPED, DROPPED, second.commit + warm)
    commit = np.concatenate([first.commit, np.zeros(len(dropped)), after]).astype(np.int32)
    time = np.concatenate([first.time, dropped[:, 2], second.time + end])
    part = np.zeros(worker.size, np.int32)
    warming = len(first) + len(dropped)
    # In the order in which computations begin, the parts of the warm-up are handed out in turn.
    begins = np.argsort(read[:warming], kind="stable")
    part[begins] = np.arange(warming) % pattern.batches
    if second.part is not None:
        part[warming:] = second.part
    order = np.argsort(time, kind="stable")
    whole = Schedule(worker[order], read[order], commit[order], time[order], part[order])
    return whole.until(whole.commits)
