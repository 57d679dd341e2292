"""The capacity of one master: service time measured, rates predicted by the simulator, checked on real ranks.

    python -m benchmarks.studies.mpi_scaling.scaling [DIM]

The service time of a commit is one over the rate at which workers that compute nothing are served;
the time of both messages is what a single such worker needs beyond it.  Then workers that sleep a
drawn time stand for computation, since more of them than cores must not compete for cores.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import asyncqn as aq
from asyncqn.core.stages import ASYNCHRONOUS
from benchmarks.mpi_start import start
from benchmarks.speed.bench_mpi import Flat, Idle

COMPUTE, UNIT = 20.0, 1e-3
"""Mean time of a worker's computation, and the unit: milliseconds."""


def rate(run: aq.Run | aq.Schedule) -> float:
    """Commits per unit of time, without the first tenth."""
    times = (run if isinstance(run, aq.Schedule) else run.schedule).commit_times()
    begin = times.size // 10
    return float((times.size - 1 - begin) / (times[-1] - times[begin]))


def job(dim: int, commits: int, compute: float) -> None:
    """Run on this rank; rank 0 prints the rate."""
    from mpi4py import MPI

    workers = MPI.COMM_WORLD.size - 1
    slow = aq.Cluster(workers, worker_mean=compute, worker_std=compute / 4) if compute else None
    engine = aq.MPI(timing_model=slow, time_unit=UNIT)
    run = aq.minimize(Flat(dim), Idle(), engine=engine, commits=commits, evaluate=commits)
    if run is not None:
        print(json.dumps({"rate": rate(run), "staleness": float(run.schedule.staleness.mean())}))


def measured(workers: int, dim: int, commits: int, compute: float = 0.0) -> dict[str, Any]:
    module = "benchmarks.studies.mpi_scaling.scaling"
    process = start(workers + 1, ["-m", module, "--job", str(dim), str(commits), str(compute)])
    out, err = process.communicate(timeout=300)
    if process.returncode != 0:
        raise RuntimeError(err[-2000:])
    result: dict[str, Any] = json.loads(out)
    return result


def predicted(workers: int, message: float, service: float, compute: float = COMPUTE) -> float:
    cluster = aq.Cluster(
        workers, worker_mean=compute, worker_std=compute / 4, message=message, master=service
    )
    return rate(aq.simulate(cluster, ASYNCHRONOUS, 4_000, 0))


def main(dim: int) -> None:
    commits = max(200, min(1_500, 50_000_000 // dim))
    service = 1.0 / measured(2, dim, commits)["rate"]
    message = max(0.0, 1.0 / measured(1, dim, commits)["rate"] - service)
    print(f"d = {dim}: service {service:.3f} ms, both messages {message:.3f} ms")
    print(f"{'workers':>8}{'predicted/s':>13}{'measured/s':>12}{'ideal/s':>10}")
    for workers in (1, 2, 4, 8):
        real = measured(workers, dim, 60 * workers, COMPUTE)["rate"]
        expected, ideal = predicted(workers, message, service), workers / (COMPUTE + message + service)
        print(f"{workers:>8}{expected * 1e3:>13.0f}{real * 1e3:>12.0f}{ideal * 1e3:>10.0f}")
    for workers in (16, 32, 64, 128, 256):
        shown = [predicted(workers, message, service / shards) * 1e3 for shards in (1, 4)]
        print(f"{workers:>8}{shown[0]:>13.0f}, in 4 shards {shown[1]:.0f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        job(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        main(int((sys.argv[1:] or ["48730"])[0]))
