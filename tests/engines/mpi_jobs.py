"""What the ranks run in test_mpi.py: `mpiexec -n N python mpi_jobs.py CASE [FOLDER]`; rank 0 prints JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from engines.runs import EVERY, Slope, assert_replays, make_problem, run_of

import asyncqn as aq
from asyncqn.engines import run_file
from asyncqn.engines.mpi.worker import RankLink


def tell(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def show(name: str, run: aq.Run | None, problem: Any = None) -> None:
    """On rank 0: check the replay and tell what a test wants to know."""
    if run is None:
        return
    assert_replays(run, problem)
    tell(
        name=name,
        status=run.status,
        commits=run.nit,
        dropped=run.schedule.dropped,
        workers=sorted({int(w) for w in run.schedule.worker}),
        engine=run.manifest["engine"],
        rejected=run.counters["updates_rejected"],
    )


def on_slope(
    engine: aq.MPI, commits: int, problem: Any = None, **options: Any
) -> aq.Run | None:
    """Run gradient steps on a problem in plain Python."""
    problem, algorithm = problem or Slope(), aq.AsyncSGD(h=1e-3, batch=3)
    return aq.minimize(problem, algorithm, engine=engine, commits=commits, **options)


def every_algorithm() -> None:
    for name in EVERY:
        show(name, run_of(name, aq.MPI(), 60, seed=5, evaluate=20, tol=None))


def float32_wire() -> None:
    for name in ("as-lbfgs", "mb-lbfgs timeout"):
        run = run_of(name, aq.MPI(wire="float32"), 60, seed=5)
        show(name, run)
        if run is not None:
            exact = {
                **run.manifest,
                "engine": {**run.manifest["engine"], "wire": "exact"},
            }
            try:
                aq.replay(aq.Run(**{**vars(run), "manifest": exact}))
            except aq.ReplayMismatch:
                tell(name="without rounding", status="differs")


def several() -> None:
    """Cases of four ranks in one job, since starting the ranks takes longest."""
    float32_wire()
    own_problem()
    slowed()


def own_problem() -> None:
    show("plain", on_slope(aq.MPI(), 80), Slope())
    run = on_slope(aq.MPI(max_staleness=1), 80, Slope(poison=4))
    show("poisoned", run, Slope(poison=4))

    def enough(progress: Any) -> None:
        if progress.commit >= 20:
            raise StopIteration

    run = on_slope(aq.MPI(), 80, evaluate=10, callback=enough)
    show("stopped", run, Slope())


def serial_and_resumed(folder: Path) -> None:
    def interrupt(progress: Any) -> None:
        if progress.commit == 40:
            os.kill(os.getpid(), signal.SIGINT)

    part = run_of(
        "as-lbfgs",
        aq.MPI(),
        100,
        seed=2,
        evaluate=10,
        checkpoint=folder,
        checkpoint_every=15,
        callback=interrupt,
    )
    if part is not None:
        tell(name="interrupted", status=part.status, commits=part.nit)
    rest = aq.resume(folder)
    show("resumed", rest)


def slowed() -> None:
    """Worker 0 takes far longer than the others: rounds with a timeout go on without it."""
    slow = aq.Cluster(workers=3, worker_mean=[300.0, 5.0, 5.0])
    algorithm = aq.MBLBFGS(
        h=0.01, memory=3, batch=10, overlap=4, timeout=10.0, quorum=0.5
    )
    run = aq.minimize(
        make_problem(),
        algorithm,
        engine=aq.MPI(timing_model=slow, time_unit=1e-3),
        commits=30,
    )
    show("slowed", run)
    # Nobody is as quick as that: all are given up, and end in good order all the same.
    run = run_of(
        "async-sgd", aq.MPI(timing_model=slow, time_unit=1e-3, give_up_after=1.0), 30
    )
    if run is not None:
        tell(
            name="silent",
            status=run.status,
            commits=run.nit,
            engine=run.manifest["engine"],
        )


FIRST = 5
"""The call of the first step of a run, after those that are thrown away before it."""


class Faulty(Slope):
    """Fails on rank 2 as its case says."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.case = case

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        super().grad(theta, rows, out)
        if self.calls == FIRST and rank() == 2:
            if self.case == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("the data of this rank are broken")


def rank() -> int:
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.rank)


def faulty(case: str) -> None:
    logging.basicConfig()
    engine = aq.MPI()
    if case == "before" and rank() == 2:
        raise LookupError("this rank has no data")
    problem = Faulty(case)
    if case == "unlike" and rank() == 2:
        problem.n_data = 29
    if case == "killed at the end":
        problem = Slope()
        if (
            rank() == 3
        ):  # when it is told to stop, and the others are told that all ranks are there
            RankLink.carry_content = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    run = on_slope(engine, 400, problem, check=False)
    show("faulty", run, Slope())


def stopped_rank() -> None:
    """Rank 2 is stopped in its first step; rank 1 makes all commits."""
    run_file.LAST_WAIT = 1.0

    class Stopped(Slope):
        def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
            super().grad(theta, rows, out)
            if self.calls == FIRST and rank() == 2:
                os.kill(os.getpid(), signal.SIGSTOP)

    run = on_slope(aq.MPI(), 40, Stopped(), check=False)
    show("stopped rank", run, Slope())


def master_killed(folder: Path) -> None:
    """The master dies as soon as there is a checkpoint."""

    def die(progress: Any) -> None:
        if (folder / "a" / "checkpoint.json").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    options = {"callback": die, "checkpoint": folder, "checkpoint_every": 10}
    on_slope(aq.MPI(), 10**8, evaluate=10, **options)


if __name__ == "__main__":
    case, arguments = sys.argv[1], sys.argv[2:]
    {
        "every": every_algorithm,
        "several": several,
        "serial": lambda: serial_and_resumed(Path(arguments[0])),
        "faulty": lambda: faulty(arguments[0]),
        "stopped": stopped_rank,
        "master": lambda: master_killed(Path(arguments[0])),
    }[case]()
