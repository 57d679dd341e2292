"""The discrete-event simulation: a cluster and an algorithm's stages give a schedule.

Times never depend on the numbers computed, so nothing here knows of theta.  `simulate` chooses a compiled
queue (`kernels.events`, `kernels.blocks`) by the stages, and falls back to `any_stages`.  A queue draws times
in advance and stops when a worker has used its own up; it is then run again with more.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from asyncqn.cluster.any_stages import simulate_any
from asyncqn.cluster.cluster import Cluster
from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.core.stages import Closes, Order, Stage, Stages, check_stages
from asyncqn.kernels import events
from asyncqn.kernels.block_rule import new_parts
from asyncqn.kernels.blocks import blocks, new_queue
from asyncqn.kernels.events import Columns, Timing
from asyncqn.kernels.random import BLOCK
from asyncqn.parameters import Seed, checked, parameter

_TIMES_IN_ADVANCE = 256
"""Number of times drawn in advance for every worker whose times follow a law."""
_AFTER_WARM_UP = 1 << 62
"""Times after a warm-up are drawn with this bit of the seed flipped.  Seeds of users are below 2**63, and few
use this bit, so both parts have streams of their own."""


@checked
def simulate(
    cluster: Cluster,
    stages: Stages | Stage,
    commits: Annotated[int, parameter(ge=1, le=2**31 - 1)],
    seed: Seed,
) -> Schedule:
    """Simulate the schedule of `commits` commits on a cluster.

    Parameters
    ----------
    cluster : Cluster
        The timing model.
    stages : Stage or sequence of Stage
        The stages of an algorithm, `algorithm.stages`.
    commits : int
        Number of commits. The schedule is shorter if every worker dies before.
    seed : int
        Seed of the computation times.

    Returns
    -------
    Schedule
        Who read which version, and which commit delivered it, with its time.

    Notes
    -----
    Compiled event queues simulate asynchronous updates, rounds, blocks on growing samples, and batches
    before such blocks. All other sequences of stages use an interpreter that is about thirty times slower.

    Examples
    --------
    >>> import asyncqn as aq
    >>> stages = aq.AsyncSGD(h=1e-4, batch=20).stages
    >>> schedule = aq.simulate(aq.Cluster(workers=10, worker_std=0.2), stages, commits=500, seed=0)
    >>> round(float(schedule.staleness.mean()))                       # W - 1
    9
    """
    stages = (stages,) if isinstance(stages, Stage) else stages
    check_stages(stages, "the algorithm")
    first, rest, timing = stages[0], stages[1:], _Clocks(cluster, seed)
    # A warm-up on batches, then exact passes: two queues, joined.
    if (
        first.closes is Closes.EACH_UPDATE
        and first.blocks is not None
        and _are_blocks(rest)
    ):
        return _batches_then_blocks(cluster, first, rest, commits, seed)
    if _are_blocks(stages):
        return _blocks(timing, stages, commits, seed)
    if not rest and (first.closes is Closes.EACH_UPDATE or first.updates is not None):
        return _asynchronous(timing, first, commits, seed)[0]
    if first.closes is Closes.ROUND and not rest:
        return _rounds(timing, first, commits, seed)
    return simulate_any(cluster, stages, commits, seed)


class _Clocks:
    """The timing of a cluster as a queue reads it; more times are drawn where a worker ran out of them."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        longer: float = 1.0,
        birth: np.ndarray | None = None,
        since: float = 0.0,
    ) -> None:
        """Fill the record of each worker.

        longer: factor on computation times.  birth: joining times, instead of the cluster's.  since: the time
        at which the queue's clock begins.
        """
        W, worker = cluster.workers, np.zeros(cluster.workers, events.WORKER)
        # Log-normal times are drawn inside the queue: m and s are mean and standard deviation of their
        # logarithm, and a constant time has s = 0 and m itself.
        m, s = cluster.time_law()
        worker["m"] = (
            np.where(s > 0, m + np.log(longer), m * longer) if longer != 1.0 else m
        )
        worker["s"] = s
        worker["birth"] = (
            [cluster.joins.get(w, 0.0) for w in range(W)] if birth is None else birth
        )
        # The queue's clock begins at `since`, so moments of the cluster's clock are shifted.
        worker["death"] = (
            np.array([cluster.deaths.get(w, np.inf) for w in range(W)]) - since
        )
        worker["rebirth"] = (
            np.array([cluster.recoveries.get(w, np.inf) for w in range(W)]) - since
        )
        self.timing = Timing(
            worker,
            float(cluster.message),
            float(cluster.master),
            float(cluster.link),
            0.0 if cluster.sending == "free" else float(cluster.link),
            cluster.sending == "tree",
            float(cluster.fixed),
            np.empty(0),
            np.empty((W, BLOCK)),
        )
        self._cluster, self._seed, self._longer = cluster, seed, longer
        self._counts = np.zeros(W, np.int64)
        if cluster.times is not None:
            self._draw(np.full(W, _TIMES_IN_ADVANCE))

    def __len__(self) -> int:
        return self._cluster.workers

    def _draw(self, counts: np.ndarray) -> None:
        drawn = [
            self._longer * self._cluster.compute_times(self._seed, w, int(n))
            for w, n in enumerate(counts)
        ]
        self._counts = counts
        worker, ends = self.timing.worker, np.cumsum(counts)
        # All workers' times stand in one array; each worker reads its own slice.
        worker["first"], worker["end"] = ends - counts, ends
        self.timing = self.timing._replace(drawn=np.concatenate(drawn))

    def capacity(self, given: int, returned: int) -> int:
        """Return the number of rows to try again with, or -1 where the queue had enough of everything."""
        # A queue returns a larger number of rows to try again with, -1 when it is done, or a code below -1
        # that names the worker whose times are used up.
        if returned >= -1:
            return returned
        counts = self._counts.copy()  # a worker ran out, and the others will soon
        counts[-2 - returned] *= 4  # the inverse of `no_time_left`
        self._draw(np.maximum(counts, np.minimum(2 * self._counts, counts.max())))
        return given


def _are_blocks(stages: Stages) -> bool:
    """Return whether all stages close with all parts and cut the data in the same way."""
    cuts = {
        (stage.closes, stage.blocks, stage.pieces, stage.backup_after)
        for stage in stages
    }
    return len(cuts) == 1 and stages[0].closes is Closes.ALL_PARTS


def _asynchronous(
    clocks: _Clocks, stage: Stage, commits: int, seed: int
) -> tuple[Schedule, np.ndarray]:
    """Return the schedule, and the part that each worker was computing at its end."""
    # Fresh rounds are the same queue with a delay of 0: an update must have read the current version.
    oldest, updates = (
        (stage.max_delay, 1) if stage.updates is None else (0, stage.updates)
    )
    # Dropped updates take rows too; twice the delivered ones is a guess that the loop corrects.
    capacity = commits * updates * (1 if oldest is None else 2)
    while capacity > 0:
        order, columns = (
            None if stage.blocks is None else stage.part_order(),
            _columns(capacity),
        )
        delay, at_work = (
            commits if oldest is None else oldest,
            events.all_at_work(clocks.timing, commits),
        )
        n, rows, returned = events.asynchronous(
            clocks.timing, seed, commits, updates, delay, order, at_work, columns
        )
        capacity = clocks.capacity(capacity, returned)
    worker, read, commit, time, part = (column[:rows] for column in columns)
    schedule = Schedule(
        worker, read, commit, time, None if stage.blocks is None else part
    )
    return schedule.until(n), at_work.hand["part"]


def _columns(rows: int) -> Columns:
    # Zeros, not `empty`: a queue leaves the columns that it does not use untouched.
    worker, read, commit, part = (np.zeros(rows, np.int32) for _ in range(4))
    return Columns(worker, read, commit, np.zeros(rows), part)


def _rounds(clocks: _Clocks, stage: Stage, commits: int, seed: int) -> Schedule:
    capacity = commits * len(clocks)
    while capacity > 0:
        columns = _columns(capacity)
        state = np.zeros(len(clocks), events.ROUND)
        n, rows, returned = events.rounds(
            clocks.timing, stage.timeout, stage.quorum, seed, commits, state, columns
        )
        capacity = clocks.capacity(capacity, returned)
    return _in_order_of_time(columns, rows, with_parts=False).until(n)


def _in_order_of_time(columns: Columns, rows: int, *, with_parts: bool) -> Schedule:
    worker, read, commit, time, part = (column[:rows] for column in columns)
    # Rows are not always written in the order of time.  The sort is stable, so that the rows of one commit
    # keep their order of summation.
    if (time[1:] < time[:-1]).any():
        order = np.argsort(time, kind="stable")
        worker, read, commit, time, part = (
            c[order] for c in (worker, read, commit, time, part)
        )
    return Schedule(worker, read, commit, time, part if with_parts else None)


def _blocks(clocks: _Clocks, stages: Stages, commits: int, seed: int) -> Schedule:
    """Simulate versions one after the other; the cluster's times are those of a block of all rows."""
    stage, shares = stages[-1], np.ones(commits)
    early = np.repeat(
        [s.share for s in stages[:-1]], [s.commits or 0 for s in stages[:-1]]
    )[:commits]
    # Versions on samples come first, each with its share of the time.
    shares[: early.size] = early
    assert stage.blocks is not None
    assert stage.parts is not None
    capacity = 2 * commits * stage.parts + len(clocks)
    while capacity > 0:
        columns, parts = _columns(capacity), new_parts(stage.blocks, stage.pieces)
        n, rows, returned = blocks(
            clocks.timing,
            new_queue(clocks.timing, commits),
            parts,
            stage.pieces,
            stage.backup_after,
            seed,
            shares,
            columns,
        )
        capacity = clocks.capacity(capacity, returned)
    return _in_order_of_time(columns, rows, with_parts=True).until(n)


def _batches_then_blocks(
    cluster: Cluster, stage: Stage, rest: Stages, commits: int, seed: int
) -> Schedule:
    """Simulate a warm-up on batches and then blocks; the cluster's times are those of a batch.

    A block takes longer than a batch in the ratio of their sizes.  A worker takes its first block when it has
    finished the batch that it was computing as the warm-up ended.
    """
    clocks = _Clocks(cluster, seed)
    assert stage.commits is not None
    assert stage.blocks is not None
    assert rest[0].blocks is not None
    warm = min(stage.commits, commits)
    first, in_hand = Schedule.serial(0), np.zeros(cluster.workers, np.int64)
    if warm:
        first, in_hand = _asynchronous(clocks, stage, warm, seed)
    end = float(first.time[-1]) if len(first) else 0.0
    free, under_way = _under_way(cluster, clocks.timing, first, warm, end, seed)
    if commits > warm == first.commits:
        # The second queue counts time from the end of the first; a worker joins it when its last batch is
        # done.
        longer, birth = stage.blocks / rest[0].blocks, np.maximum(free - end, 0.0)
        later = _Clocks(cluster, seed ^ _AFTER_WARM_UP, longer, birth, since=end)
        second = _blocks(later, rest, commits - warm, seed ^ _AFTER_WARM_UP)
    else:
        second = Schedule.serial(0)
    # What was under way when the warm-up ended arrives later and is dropped.
    dropped = np.array(under_way, np.float64).reshape(-1, 3)
    worker = np.concatenate([first.worker, dropped[:, 0], second.worker]).astype(
        np.int32
    )
    read = np.concatenate([first.read, dropped[:, 1], second.read + warm]).astype(
        np.int32
    )
    after = np.where(second.commit == DROPPED, DROPPED, second.commit + warm)
    commit = np.concatenate([first.commit, np.zeros(len(dropped)), after]).astype(
        np.int32
    )
    time = np.concatenate([first.time, dropped[:, 2], second.time + end])
    part = np.zeros(worker.size, np.int32)
    warming = len(first) + len(dropped)
    if (
        stage.order is Order.IN_TURN and stage.growth is None
    ):  # in the order in which computations begin
        part[np.argsort(read[:warming], kind="stable")] = (
            np.arange(warming) % stage.blocks
        )
    elif first.part is not None:
        part[:warming] = np.concatenate(
            [first.part, in_hand[dropped[:, 0].astype(np.int64)]]
        )
    if second.part is not None:
        part[warming:] = second.part
    order = np.argsort(time, kind="stable")
    whole = Schedule(
        worker[order], read[order], commit[order], time[order], part[order]
    )
    return whole.until(whole.commits)


def _under_way(
    cluster: Cluster, timing: Timing, first: Schedule, warm: int, end: float, seed: int
) -> tuple[np.ndarray, list[tuple[int, int, float]]]:
    """Return when each worker is free after the warm-up, and the batches then under way.

    Each batch is a tuple (worker, version, time of arrival).
    """
    half = cluster.message / 2.0
    free = timing.worker["birth"].copy()
    under_way: list[tuple[int, int, float]] = []
    for w in range(cluster.workers):
        mine = np.flatnonzero(first.worker == w)
        begun = (
            float(first.time[mine[-1]])
            if mine.size
            else float(timing.worker["birth"][w])
        )
        version = (
            int(first.commit[mine[-1]])
            if mine.size
            else int((first.time <= begun).sum())
        )
        # A worker whose update made the last version of the warm-up, or that joins later, computes nothing
        # now.
        if version >= warm or begun > end:
            continue
        finish = (
            begun
            + timing.reply
            + half
            + cluster.fixed
            + float(cluster.compute_times(seed, w, mine.size + 1)[-1])
        )
        death, again = timing.worker["death"][w], timing.worker["rebirth"][w]
        # A death that the worker has already recovered from does not interrupt this computation.
        delivers = finish <= death or again <= begun
        free[w] = finish + half if delivers else again
        if delivers:
            under_way.append((w, version, max(float(free[w]), end)))
    under_way.sort(key=lambda row: row[2])
    return free, under_way
