"""The MPI master against a raw mpi4py ping of the same bytes, in one job, alternating.

Both carry (theta, u) both ways with one posted receive per worker and `Waitsome`.  The ping returns
what arrived; the master commits, guards, fingerprints and records every update, and sends the new
iterate: once through memory that it shares with its workers, as it does on one machine, and once by
messages of the ping's bytes, as between machines.  Workers compute nothing, so that the master is
what is measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.paper.as_lbfgs import Iterate, Update
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.kernels.vectors import add_two
from asyncqn.types import Array, Commit, Problem, Task
from benchmarks.mpi_start import start

REPEATS = 7


class Nothing(NamedTuple):
    update: Update


@dataclass(frozen=True)
class Idle:
    """as-L-BFGS's messages without its arithmetic: every update is zero."""

    stages = ASYNCHRONOUS

    def init(self, theta0: Array) -> Iterate:
        return Iterate(theta0.copy(), np.zeros_like(theta0))

    def init_worker(self, problem: Problem, theta0: Array) -> Nothing:
        return Nothing(Update(np.zeros_like(theta0), np.zeros_like(theta0)))

    def step(
        self, view: Iterate, local: Nothing, problem: Problem, task: Task
    ) -> Update:
        return local.update

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        for update in updates:
            add_two(iterate.theta, update.d_theta, iterate.u, update.d_u)
        return iterate


class Flat:
    """U = 0 in d dimensions."""

    def __init__(self, dim: int) -> None:
        self.dim, self.n_data = dim, 1

    def value(self, theta: Array) -> float:
        return 0.0

    def grad(self, theta: Array, rows: Any, out: Array) -> None:
        out[...] = 0.0


def ping(comm: Any, mpi: Any, dim: int, messages: int, adding: bool) -> float:
    """Messages per second of a bare master; with `adding` it also commits them to (theta, u)."""
    W, size = comm.size - 1, 2 * dim
    comm.Barrier()
    if comm.rank > 0:
        view, status = np.ones(size), mpi.Status()
        while True:
            comm.Send(view, 0)
            comm.Recv(view, 0, status=status)
            if status.Get_count(mpi.DOUBLE) == 1:
                return 0.0
    # Written once: untouched zeros would all be one page, which is faster than any message.
    inbox, outbox = [np.ones(size) for _ in range(W)], [np.ones(size) for _ in range(W)]
    state = np.ones(size)
    receiving = [comm.Irecv(inbox[i], i + 1) for i in range(W)]
    sending = [mpi.REQUEST_NULL] * W
    served, left, begun = 0, W, time.perf_counter()
    while left:
        for i in mpi.Request.Waitsome(receiving):
            served += 1
            sending[i].Wait()
            # The last message to each worker is a single number, which ends it.
            if served <= messages - W:
                if adding:
                    add_two(state[:dim], inbox[i][:dim], state[dim:], inbox[i][dim:])
                    outbox[i][:] = state
                else:
                    # The buffers change places: returning what arrived needs no copy.
                    inbox[i], outbox[i] = outbox[i], inbox[i]
                receiving[i] = comm.Irecv(inbox[i], i + 1)
                sending[i] = comm.Isend(outbox[i], i + 1)
            else:
                left -= 1
                sending[i] = comm.Isend(outbox[i][:1], i + 1)
    for request in sending:
        request.Wait()
    return messages / (time.perf_counter() - begun)


def commit_rate(run: aq.Run) -> float:
    """Commits per second, from the first to the last."""
    times = run.schedule.commit_times()
    # Without the start, when every worker has to be reached once.
    return float((run.nit - 1) / (times[-1] - times[0]))


def job(dim: int, messages: int) -> None:
    """Run all turns on this rank; rank 0 prints their rates."""
    from mpi4py import MPI

    comm, rates = MPI.COMM_WORLD, []
    for _ in range(REPEATS + 1):  # the first turn loads kernels and touches memory
        turn = [
            ping(comm, MPI, dim, messages, adding=False),
            ping(comm, MPI, dim, messages, adding=True),
        ]
        comm.Barrier()
        for shared in (True, False):
            engine = aq.MPI(shared=shared)
            run = aq.minimize(
                Flat(dim), Idle(), engine=engine, commits=messages, evaluate=messages
            )
            if run is not None:
                turn.append(commit_rate(run))
        rates.append(turn)
    if comm.rank == 0:
        print(json.dumps(rates[1:]))


def rates_of_job(workers: int, dim: int, messages: int) -> list[list[float]]:
    """Return the rates of every turn: both pings, the engine in shared memory, the engine by messages."""
    process = start(
        workers + 1, ["-m", "benchmarks.speed.bench_mpi", str(dim), str(messages)]
    )
    out, err = process.communicate(timeout=300)
    if process.returncode != 0:
        raise RuntimeError(f"the MPI job failed: {err[-2000:]}")
    turns: list[list[float]] = json.loads(out)
    return turns


def measure(workers: int, dim: int, messages: int) -> list[dict[str, Any]]:
    rates = rates_of_job(workers, dim, messages)
    name = f"MPI master, d = {dim}, W = {workers}"
    found = []
    for way, (ours, met) in {"shared memory": (2, 0.8), "messages": (3, None)}.items():
        for other, against in enumerate(("a raw ping", "a ping that adds")):
            ratio = median(turn[ours] / turn[other] for turn in rates)
            aim = met if other == 0 else None
            found.append(
                {
                    "name": f"{name}, by {way}, against {against}",
                    "value": median(turn[ours] for turn in rates),
                    "unit": "commits/s",
                    "ratio": ratio,
                    "target": aim and f">= {aim}",
                    "met": aim and ratio >= aim,
                }
            )
    return found


def master_alone_with_a_worker() -> list[dict[str, Any]]:
    return measure(1, 48_730, 1_000)


def master_small() -> list[dict[str, Any]]:
    return measure(2, 1_000, 4_000)


def master_movielens_1m() -> list[dict[str, Any]]:
    return measure(2, 48_730, 1_000)


def master_movielens_20m() -> list[dict[str, Any]]:
    return measure(2, 828_855, 60)


BENCHMARKS = (
    master_alone_with_a_worker,
    master_small,
    master_movielens_1m,
    master_movielens_20m,
)

if __name__ == "__main__":
    job(int(sys.argv[1]), int(sys.argv[2]))
