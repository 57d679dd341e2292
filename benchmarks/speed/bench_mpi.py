"""The MPI master against a raw mpi4py ping of the same bytes, in one job, alternating.

Both carry (theta, u) both ways with one posted receive per worker.  The ping returns what arrived; the
master commits, guards, fingerprints and records every update, and sends the new iterate.  Workers compute
nothing, so that the master is what is measured.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.engines.round_trip import Nothing
from benchmarks.mpi_start import start
from benchmarks.speed.exchange import Echo, commit_rate
from benchmarks.timing import record

REPEATS = 7
CASES = ((1, 48_730, 1_000), (2, 1_000, 4_000), (2, 48_730, 1_000), (2, 828_855, 60))
"""Workers, dimension and messages: a small model, and MovieLens 1M and 20M."""


def ping(comm: Any, mpi: Any, dim: int, messages: int) -> float:
    """Messages per second of a bare master."""
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
    receiving = [comm.Irecv(inbox[i], i + 1) for i in range(W)]
    sending = [mpi.REQUEST_NULL] * W
    served, left, begun = 0, W, time.perf_counter()
    while left:
        for i in mpi.Request.Waitsome(receiving):
            served += 1
            sending[i].Wait()
            # The last message to each worker is a single number, which ends it.
            if served <= messages - W:
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


def job(dim: int, messages: int) -> None:
    """Run all turns on this rank; rank 0 prints the rates of each: the ping's, and the engine's."""
    from mpi4py import MPI

    comm, rates = MPI.COMM_WORLD, []
    for _ in range(REPEATS + 1):  # the first turn loads kernels and touches memory
        bare = ping(comm, MPI, dim, messages)
        comm.Barrier()
        run = aq.minimize(
            Nothing(dim), Echo(), engine=aq.MPI(), commits=messages, evaluate=messages
        )
        if run is not None:
            rates.append([bare, commit_rate(run)])
    if comm.rank == 0:
        print(json.dumps(rates[1:]))


def rates_of_job(workers: int, dim: int, messages: int) -> list[list[float]]:
    """Return the rates of every turn of a job."""
    arguments = ["-m", "benchmarks.speed.bench_mpi", str(dim), str(messages)]
    process = start(workers + 1, arguments)
    out, err = process.communicate(timeout=300)
    if process.returncode != 0:
        raise RuntimeError(f"the MPI job failed: {err[-2000:]}")
    turns: list[list[float]] = json.loads(out)
    return turns


def master() -> list[dict[str, Any]]:
    records = []
    for workers, dim, messages in CASES:
        rates = rates_of_job(workers, dim, messages)
        ratio = median(ours / bare for bare, ours in rates)
        rate = median(ours for _, ours in rates)
        name = f"MPI master, d = {dim}, W = {workers}, against a raw ping"
        records.append(record(name, rate, "commits/s", ratio))
    return records


BENCHMARKS = (master,)

if __name__ == "__main__":
    job(int(sys.argv[1]), int(sys.argv[2]))
