"""The simulated cluster: a heap of events drives the machine that assigns work (`core.assignment`).

Times never depend on the numbers computed, so nothing here knows of theta.  `VirtualTime.turns` yields what
`core.execute` computes, version by version; `simulate` collects a whole `Schedule`.

What a message, a computation and a commit take is here, and who waits for whom:

- A message takes half of `cluster.message` each way, and `link` on the master's network link, one after another.
- A worker that is free at time t knows the master as of t - message / 2, so that is when it asks, if its stage
  `listens`; otherwise it asks with its update, or when that is committed.
- While the master is busy with a commit, updates that are judged on their arrival wait in a line.  Who joins
  reads the version that exists.
- A worker computes the parts of its block until it hears of the next version.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Annotated

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.assignment import Apply, Assign, Assignment, Drop
from asyncqn.core.schedule import Recorder, Schedule, Turn
from asyncqn.core.stages import Arrival, Stage, Stages, check_stages, time_share
from asyncqn.parameters import Seed, checked, parameter

# Events of one worker at the same time happen in this order.
_READY, _REACHES, _RECEIVED, _GONE, _DIES, _JOINS, _COMMITTED = range(7)
_FIRST_TIMES = 64
"""Number of times that are drawn for a worker at first; four times as many when they are used up."""


def worker_times(
    cluster: Cluster, seed: int, worker: int, first: int = 0
) -> Iterator[float]:
    """Yield the times of a worker's computations, which follow from the seed and its number, from `first` on."""
    count = max(_FIRST_TIMES, 4 * first)
    while True:
        # Drawn from the start again: the times already used stay the same.
        times = cluster.compute_times(seed, worker, count)
        yield from times[first:].tolist()
        first, count = count, 4 * count


@dataclass(slots=True)
class _Worker:
    """A simulated worker, and the computation that it has begun."""

    times: Iterator[float]
    death: float
    back: float
    read: int = 0
    part: int | None = None
    last: int | None = None
    since: float = 0.0
    pace: float = 0.0
    finish: float = 0.0
    received: float = 0.0
    busy: bool = False
    """Whether its update has still to arrive."""
    doomed: bool = False
    """Whether it dies in this computation."""
    under_way: list[tuple[int, int | None]] = field(default_factory=list)
    """(version, part) of every computation that will end and has not been recorded."""


class VirtualTime:
    """A simulated run without numbers.

    Parameters
    ----------
    cluster : Cluster
        The timing model.
    stages : tuple of Stage
        The stages of the algorithm.
    seed : int
        Seed of the computation times, and of parts that are assigned at random.
    """

    def __init__(self, cluster: Cluster, stages: Stages, seed: int) -> None:
        self.cluster = cluster
        self.stages = stages
        self.commits = None
        self.workers = cluster.workers
        self.recorder = Recorder()
        self._half, self._link = cluster.message / 2.0, float(cluster.link)
        self._reply = 0.0 if cluster.sending == "free" else float(cluster.link)
        self._machine = Assignment(stages, seed)
        self._share = time_share(stages, 0)
        self._free = 0.0  # when the master's link is free
        self._made = 0.0  # when the newest version was made
        self._line: deque[int] = deque()  # updates that wait for the master
        self._commit: tuple[list[Arrival], int | None] = ([], None)
        self._begins: list[tuple[int, int | None]] = []
        self._ends: list[Arrival] = []
        self._turn: Turn | None = None  # the version that this event has made
        self._looked_at = -math.inf
        self._heap: list[tuple[float, int, int]] = []
        self._all: list[_Worker] = []
        for w in range(cluster.workers):
            death = cluster.deaths.get(w, math.inf)
            back = cluster.recoveries.get(w, math.inf)
            self._all.append(_Worker(worker_times(cluster, seed, w), death, back))
            self._heap.append((cluster.joins.get(w, 0.0), w, _JOINS))
            if death < math.inf:
                self._heap.append((death, w, _DIES))
        heapify(self._heap)

    # -- what comes out

    def turns(self, commits: int) -> Iterator[Turn]:
        """Yield a turn for every version that makes one of `commits` commits.

        If every worker is gone before, the last turn has no commit.
        """
        heap = self._heap
        machine = self._machine
        handlers = (
            self._is_ready,
            self._reaches,
            self._deliver,
            self._is_gone,
            self._dies,
            self._joins,
            self._is_committed,
        )
        while machine.version < commits:
            now = heap[0][0] if heap else math.inf
            deadline = machine.deadline
            # A deadline that changes nothing must not be looked at again.
            if deadline < now and deadline > self._looked_at:
                self._looked_at = now = deadline
                self._settle(now)
            elif not heap:
                break
            else:
                now, w, kind = heappop(heap)
                handlers[kind](w, now)
                if not (machine.stage.at_once or (heap and heap[0][0] == now)):
                    self._settle(now)
            if self._turn is not None:
                yield self._turn
                self._turn = None
        if machine.version < commits:
            useless = [arrival._replace(counts=False) for arrival in machine.waiting]
            self._record(useless, self.recorder.last_time)
            time = self.recorder.last_time
            yield Turn(machine.version, self._begins, self._ends, time)

    def until(self, commit: int) -> Schedule:
        """Return the schedule at the end, after the last turn, with what is under way as dropped."""
        recorder = self.recorder
        for w, worker in enumerate(self._all):
            for read, part in worker.under_way:
                # The last version is there, but nobody computes on it any more.
                if read < commit:
                    recorder.dropped(w, read, recorder.last_time, part)
        return recorder.schedule()

    # -- events

    def _joins(self, w: int, now: float) -> None:
        worker, machine = self._all[w], self._machine
        # It has died before it joins; where updates are judged one by one its first message finds out.
        if now >= worker.death and not machine.stage.at_once:
            self._come_back(w, now)
            return
        machine.join(w)
        # On a busy link a newcomer waits for its turn.
        if self._reply and machine.stage.at_once:
            now = max(now, self._free)
        self._ask(w, now)

    def _is_ready(self, w: int, now: float) -> None:
        if w in self._machine.present:
            self._ask(w, now)

    def _reaches(self, w: int, now: float) -> None:
        """Receive an update, or let it wait."""
        machine = self._machine
        if self._link:
            start = self._free = max(now, self._free) + self._link
            # What follows keeps the link, and so does not interfere with other events.
            if machine.stage.at_once:
                self._deliver(w, start)
            else:
                heappush(self._heap, (start, w, _RECEIVED))
        elif machine.closing and machine.stage.at_once:
            self._line.append(w)
        else:
            self._deliver(w, now)

    def _is_gone(self, w: int, now: float) -> None:
        """Lose a worker in its computation."""
        self._machine.lost(w)
        worker = self._all[w]
        worker.busy = worker.doomed = False
        worker.finish = 0.0
        # A message that is on its way reaches it first.
        self._come_back(w, max(now, worker.received))

    def _dies(self, w: int, now: float) -> None:
        """Lose a worker that computes nothing; else `_is_gone` follows."""
        worker, stage = self._all[w], self._machine.stage
        if w not in self._machine.present or worker.doomed or stage.at_once:
            return
        # The update of a round that is on its way still counts, but nobody waits for another.
        if stage.listens or not worker.busy:
            self._is_gone(w, now)

    def _come_back(self, w: int, now: float) -> None:
        worker = self._all[w]
        if worker.back < math.inf:
            heappush(self._heap, (max(worker.back, now), w, _JOINS))
        worker.death = worker.back = math.inf

    def _deliver(self, w: int, now: float) -> None:
        """Let the machine judge an update."""
        worker, machine = self._all[w], self._machine
        read, part = (
            worker.under_way[0] if machine.stage.listens else (worker.read, worker.part)
        )
        # A slow worker is slow through its whole block: its pieces tell how long that takes.
        spent = now - worker.since
        if part is not None:
            spent += (machine.stage.pieces - 1) * worker.pace
        order = machine.deliver(w, read, part, None, spent)
        if isinstance(order, Drop):
            self._record([order.arrival._replace(counts=False)], now)
        if not machine.stage.listens:
            worker.busy = False
        asks = None if machine.stage.listens else w
        if isinstance(order, Apply):
            self._make(order.arrivals, now, asks)
        elif asks is not None:
            self._go_on(w, now)

    def _go_on(self, w: int, now: float) -> None:
        """Let a worker begin the next part of its block, or ask for work."""
        worker = self._all[w]
        if worker.part is not None and worker.part < worker.last:  # type: ignore[operator]
            worker.part += 1
            worker.since += worker.pace
            worker.finish += worker.pace
            self._compute(w, now)
        elif now >= worker.death and not self._machine.stage.at_once:
            self._is_gone(w, now)
        else:
            self._ask(w, now)

    def _make(self, arrivals: list[Arrival], now: float, asks: int | None) -> None:
        """Begin a commit; `asks` is a worker that wants work when it is made."""
        self._commit = arrivals, asks
        master, end = self.cluster.master, now + self.cluster.master
        if self._link:
            self._free = max(now, self._free) + master
            if self._machine.stage.at_once:
                self._is_committed(-1, self._free)
                return
            if master:
                self._delay(now)
        heap = self._heap
        # Where updates are judged together, those of the moment in which the commit ends go before it; else it
        # goes first, so that who joins reads the new version.
        place = -1 if self._machine.stage.at_once else self.workers
        # Nothing happens before it is made, and no other commit was made in this event.
        if self._turn is None and (not heap or heap[0][:2] > (end, place)):
            self._is_committed(place, end)
        else:
            heappush(heap, (end, place, _COMMITTED))

    def _delay(self, now: float) -> None:
        """Delay the updates that wait for the link by a commit."""
        heap, master = self._heap, self.cluster.master
        heap[:] = [
            (t + master, w, kind) if kind == _RECEIVED and t > now else (t, w, kind)
            for t, w, kind in heap
        ]
        heapify(heap)

    def _is_committed(self, _: int, now: float) -> None:
        """End a commit: a turn is complete, and those who waited for the version get it."""
        machine = self._machine
        arrivals, asks = self._commit
        if machine.stage.pieces > 1:
            self._finish_in_vain(now + self._half)
        self._record(arrivals, now)
        self._turn = Turn(machine.version, self._begins, self._ends, now)
        self._begins, self._ends = [], []
        self._made = now
        machine.committed(now)
        if len(self.stages) > 1:
            self._share = time_share(self.stages, machine.version)
        if asks is not None:
            self._go_on(asks, now)
        line = self._line
        while line and not machine.closing:
            self._deliver(line.popleft(), now)
        # A change of stage may leave workers that wait.
        if machine.stage.at_once:
            self._settle(now)

    def _finish_in_vain(self, hears: float) -> None:
        """Let every worker finish the part in which it hears that its version is over."""
        version = self._machine.version
        for w, worker in enumerate(self._all):
            if not worker.busy or worker.doomed or worker.read != version:
                continue
            assert worker.part is not None
            assert worker.last is not None
            part, finish = worker.part, worker.finish
            while part < worker.last and finish < hears:
                part += 1
                finish += worker.pace
                if finish > worker.death:
                    break
                self._begins.append((w, part))
                worker.under_way.append((version, part))
            worker.last = part

    def _settle(self, now: float) -> None:
        """Carry out what the machine decides when all events of a moment are in."""
        tree = self.cluster.sending == "tree"
        reached = 1
        sent = 0
        while orders := self._machine.settle(now):
            for order in orders:
                if isinstance(order, Apply):
                    self._make(order.arrivals, now, None)
                    now = max(now, self._made)
                elif isinstance(order, Assign):
                    sent += 1
                    # In a tree every worker that has the message passes it on: 1, 3, 7, ... have it in turn.
                    costs = (
                        not (tree and self._machine.stage.listens) or sent == reached
                    )
                    if costs:
                        reached *= 2
                    self._assign(order, now, costs=costs)

    # -- work

    def _ask(self, w: int, now: float) -> None:
        order = self._machine.ready(w, now)
        if order is not None:
            self._assign(order, now, costs=True)

    def _assign(self, order: Assign, now: float, *, costs: bool) -> None:
        """Send an order to a worker, and let it begin."""
        w, read, part, last = order
        worker = self._all[w]
        received = now + self._half
        if self._reply:
            if costs:
                self._free = max(now, self._free) + self._reply
            received = self._free + self._half
        worker.read = read
        worker.part = part
        worker.last = last
        worker.received = 0.0 if self._machine.stage.listens else received
        begins = received
        if self._machine.stage.listens:
            # It may still be computing when the message comes.
            begins = max(received, worker.finish)
            if begins >= worker.death:
                worker.doomed = True
                heappush(self._heap, (max(now, worker.death), w, _GONE))
                return
        worker.since = now
        worker.pace = self.cluster.fixed + next(worker.times) * self._share
        worker.finish = begins + worker.pace
        self._compute(w, now)

    def _compute(self, w: int, now: float) -> None:
        """Enter the end of a worker's computation, or of the worker."""
        worker, heap = self._all[w], self._heap
        finish = worker.finish
        if finish > worker.death:
            worker.doomed = True
            heappush(heap, (max(worker.death, now), w, _GONE))
            return
        worker.busy = True
        heappush(heap, (finish + self._half, w, _REACHES))
        if self._machine.stage.listens:
            heappush(heap, (finish - self._half, w, _READY))
        # The last parts of an old version were entered when it was over.
        if worker.read == self._machine.version:
            self._begins.append((w, worker.part))
            worker.under_way.append((worker.read, worker.part))

    def _record(self, arrivals: list[Arrival], time: float) -> None:
        """Record computations that have ended."""
        time = max(time, self.recorder.last_time)
        for arrival in arrivals:
            self._all[arrival.worker].under_way.pop(0)
        self.recorder.delivered(arrivals, time)
        self._ends += arrivals


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
        Who read which version, and which commit delivered it, with its time; without the computations that are
        under way at the end.

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
    simulated = VirtualTime(cluster, stages, seed)
    deque(simulated.turns(commits), maxlen=0)
    return simulated.recorder.schedule()
