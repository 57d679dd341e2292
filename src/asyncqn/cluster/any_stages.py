"""The simulation of any sequence of stages, one event after the other in Python.

The compiled queues of `cluster.simulate` handle the stages that our own algorithms declare.  All other
sequences are simulated here, with the very objects that the real engines use: `HandOut` chooses the part of
the data for a computation, `WaitingUpdates` decides which updates make a commit.  It is slower, and it cannot
disagree with the engines.

Read `_Simulation.run` first: it pops events (a worker joins, an update arrives, a worker dies) in the order
of time, and looks at deadlines between them.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.handout import HandOut
from asyncqn.cluster.waiting import ROUND, Arrival, WaitingUpdates
from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.core.stages import Stages, stage_at, time_share
from asyncqn.errors import require

# The order decides between events of one worker at the same time: an update arrives before a death.
_JOINS, _ARRIVES, _DIES = range(3)
_TIMES_AT_FIRST = 256
"""Number of times drawn in advance for every worker; four times as many when they are used up.  Any number
gives the same times, because they are a function of the seed and the worker."""


@dataclass(slots=True)
class _Member:
    """A worker that is present; `read` is the version that it computes on, None while it is idle."""

    since: float = 0.0
    finish: float = 0.0
    read: int | None = None
    last_read: int | None = None
    part: int | None = None
    waiting: bool = False
    leaves: bool = False
    """The worker has died, and its last update is on its way."""


@dataclass(slots=True)
class _Rows:
    """The rows of a schedule, in the order in which computations ended."""

    worker: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    commit: list[int] = field(default_factory=list)
    time: list[float] = field(default_factory=list)
    part: list[int] = field(default_factory=list)

    def add(self, arrival: Arrival, commit: int, time: float) -> None:
        self.worker.append(arrival.worker)
        self.read.append(arrival.read)
        self.commit.append(commit)
        self.time.append(time)
        if arrival.part is not None:
            self.part.append(arrival.part)


def simulate_any(cluster: Cluster, stages: Stages, commits: int, seed: int) -> Schedule:
    """Return the schedule of `commits` commits on the cluster; shorter if every worker dies before."""
    # The link would delay every message by those before it, which this simple queue does not model.
    require(
        cluster.link == 0.0,
        "a link can be simulated only with the stages of asyncqn's own algorithms: set link to 0.",
    )
    return _Simulation(cluster, stages, seed).run(commits)


class _Simulation:
    """The event queue of the master and the state of every worker."""

    def __init__(self, cluster: Cluster, stages: Stages, seed: int) -> None:
        self.cluster, self.stages, self.seed = cluster, stages, seed
        # Half of the message time goes each way.
        self.half, self.version = cluster.message / 2.0, 0
        self.free = 0.0
        """When the master is free."""
        self.stage = stage_at(stages, 0)
        self.handout = HandOut(stages, seed) if stages[0].parts is not None else None
        self.waiting = WaitingUpdates(
            stages, self.handout, None, self.half, lambda update: update
        )
        self.waiting.open_round(self.stage, 0.0)
        self.members: dict[int, _Member] = {}
        self.rows = _Rows()
        self.computed = [0] * cluster.workers
        self.times: list[list[float]] = [[] for _ in range(cluster.workers)]
        self.events: list[tuple[float, int, int]] = []
        for worker in range(cluster.workers):
            heapq.heappush(
                self.events, (cluster.joins.get(worker, 0.0), worker, _JOINS)
            )
        for worker, time in cluster.deaths.items():
            heapq.heappush(self.events, (time, worker, _DIES))

    def run(self, commits: int) -> Schedule:
        """Process events until the last commit is made."""
        # A deadline that changes nothing must not be looked at again, or the loop would not end.
        looked_at = -math.inf
        while self.version < commits and self.events:
            deadline = max(self._deadline(), self.free)
            # Deadlines are not in the queue, because they move whenever an update arrives.
            if looked_at < deadline < self.events[0][0]:
                looked_at = deadline
                self._close_round(deadline)
                self._hand_out(deadline)
                continue
            time, worker, kind = heapq.heappop(self.events)
            # An event waits while the master is busy with a commit.
            now = max(time, self.free)
            # A recovered worker joins again, as a new member with its old number.
            if kind == _JOINS:
                self.members[worker] = _Member()
                self._ask(worker, now)
            elif kind == _DIES:
                self._die(worker, now)
            else:
                self._arrival(worker, now)
        rows = self.rows
        part = rows.part if self.handout is not None else None
        schedule = Schedule(rows.worker, rows.read, rows.commit, rows.time, part)  # type: ignore[arg-type]
        return schedule.until(self.version)

    def _deadline(self) -> float:
        """Return the time of the next event that needs no update: the end of a round, or a backup."""
        if self.handout is None:
            return self.waiting.round_ends
        some = any(member.waiting for member in self.members.values())
        return self.handout.next_backup if some else math.inf

    def _arrival(self, worker: int, now: float) -> None:
        member = self.members[worker]
        assert member.read is not None
        arrival = Arrival(worker, member.read, member.part, None)
        member.read = None
        # The worker died after it had sent this update, so the update still counts.
        if member.leaves:
            self._remove(worker, now)
        ready = self.waiting.add(arrival, self.stage, self.version, now - member.since)
        # None: the update is dropped. A list: it completes a commit. Empty: it waits for others.
        if ready is None:
            self.rows.add(arrival, DROPPED, now)
        elif ready:
            self._commit(ready, now)
        else:
            self._close_round(now)
        self._ask(worker, max(now, self.free))

    def _commit(self, arrivals: list[Arrival], now: float) -> None:
        """Make the next version, and send it to the workers that wait for it."""
        # The new version exists when the master has finished, not when the update arrived.
        self.free = now + self.cluster.master
        self.version += 1
        for arrival in arrivals:
            self.rows.add(
                arrival, self.version if arrival.counts else DROPPED, self.free
            )
        self.stage = stage_at(self.stages, self.version)
        if self.handout is not None:
            self.handout.opened(self.version)
        self.waiting.round_ends = math.inf
        self.waiting.open_round(self.stage, self.free)
        self._assign_waiting(self.free)

    def _close_round(self, now: float) -> None:
        ready = self.waiting.close_round(self.stage, self.members, now)
        if ready:
            self._commit(ready, now)

    def _assign_waiting(self, now: float) -> None:
        for worker in [
            worker for worker, member in self.members.items() if member.waiting
        ]:
            self._assign(worker, now)

    def _hand_out(self, now: float) -> None:
        """Give parts of the data to waiting workers, where there are parts."""
        if self.handout is not None:
            self._assign_waiting(now)

    def _ask(self, worker: int, now: float) -> None:
        """Assign the current version to an idle worker, or let it wait for the next one."""
        member = self.members.get(worker)
        # The worker is gone, or `_commit` has already given it something to do.
        if member is None or member.read is not None:
            return
        stage = self.stage
        # In a synchronous round a worker contributes once per version.
        if (
            stage.closes is ROUND
            and stage.updates is None
            and member.last_read == self.version
        ):
            member.waiting = True
        else:
            self._assign(worker, now)

    def _assign(self, worker: int, now: float) -> None:
        member = self.members[worker]
        part = (
            None
            if self.handout is None
            else self.handout.choose(worker, self.version, now)
        )
        # Nothing is left to compute at this version, so the worker waits for the next one.
        member.waiting = self.handout is not None and part is None
        if member.waiting:
            return
        # A cluster states the time of a computation of the first stage; a sample takes its share of it.
        share = time_share(self.stages, self.version)
        time = self.cluster.fixed + self._draw(worker) * share
        member.read = member.last_read = self.version
        member.part, member.since, member.finish = part, now, now + self.half + time
        # A computation that ends after the worker's death never arrives; after a recovery the death is past.
        if member.finish <= self.cluster.deaths.get(
            worker, math.inf
        ) or self._came_back(worker, now):
            heapq.heappush(self.events, (member.finish + self.half, worker, _ARRIVES))

    def _came_back(self, worker: int, now: float) -> bool:
        return self.cluster.recoveries.get(worker, math.inf) <= now

    def _draw(self, worker: int) -> float:
        """Draw the time of the worker's next computation, before it is scaled to the rows of its stage."""
        k, drawn = self.computed[worker], self.times[worker]
        if k == len(drawn):
            # Times are redrawn from the start, so that those already used stay the same.
            count = 4 * k or _TIMES_AT_FIRST
            self.times[worker] = drawn = self.cluster.compute_times(
                self.seed, worker, count
            ).tolist()
        self.computed[worker] = k + 1
        return drawn[k]

    def _die(self, worker: int, now: float) -> None:
        member = self.members.get(worker)
        # The computation was finished before the death: its update is on its way and will arrive.
        if member is not None and member.read is not None and member.finish <= now:
            member.leaves = True
        elif member is not None:
            self._remove(worker, now)
            if (
                self.handout is not None
                and member.read is not None
                and member.part is not None
            ):
                # The part must be handed out again, or the version would never close.
                self.handout.lost(worker, member.part, member.read, self.version)
            self._close_round(now)
            self._hand_out(now)

    def _remove(self, worker: int, now: float) -> None:
        del self.members[worker]
        again = self.cluster.recoveries.get(worker, math.inf)
        if again < math.inf:
            heapq.heappush(self.events, (max(again, now), worker, _JOINS))
