"""A message to a worker and back on every real engine, with nothing computed.

`minimize(waits=False)` measures this before a run (`asyncqn.engines.round_trip`), but for Ray, whose engine
states the numbers that were measured here: a local Ray takes seconds to start.
"""

from __future__ import annotations

import json
import sys
from statistics import median
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.engines.round_trip import round_trip_seconds
from benchmarks import mpi_start

Record = dict[str, Any]
LENGTHS, REPEATS = (50, 50_000), 5
JOB = "from benchmarks.speed.bench_round_trip import on_mpi; on_mpi()"


def record(engine: str, length: int, seconds: list[float]) -> Record:
    name = f"message on {engine}, {length:,} numbers, median of {len(seconds)}"
    return {
        **dict.fromkeys(("ratio", "target", "met")),
        "name": name,
        "value": 1e6 * median(seconds),
        "unit": "us",
    }


def round_trip() -> list[Record]:
    """Threads, processes, and MPI with one worker."""
    found = [
        record(
            name,
            length,
            [engine.message_seconds(np.zeros(length)) for _ in range(REPEATS)],
        )
        for length in LENGTHS
        for name, engine in (("threads", aq.Threads(1)), ("processes", aq.Processes(1)))
    ]
    job = mpi_start.start(2, ["-c", JOB])
    text, errors = job.communicate(timeout=300)
    if job.returncode:
        print(errors, file=sys.stderr)
        raise RuntimeError(f"mpiexec ended with code {job.returncode}")
    return found + [
        record("MPI", int(length), each) for length, each in json.loads(text).items()
    ]


def ray_round_trip() -> list[Record]:
    """Measure each length once, on a local Ray of its own, which takes seconds to start."""
    found = []
    for length in LENGTHS:
        seconds = round_trip_seconds(aq.Ray(1), np.zeros(length))
        assert seconds is not None
        found.append(record("Ray", length, [seconds]))
    return found


def on_mpi() -> None:
    """Print what rank 0 measures, by the length of theta."""
    engine, found = aq.MPI(), {}
    for length in LENGTHS:
        found[length] = [
            engine.message_seconds(np.zeros(length)) for _ in range(REPEATS)
        ]
    if found[LENGTHS[0]][0] is not None:  # None: another rank
        print(json.dumps(found))


BENCHMARKS = (round_trip, ray_round_trip)
