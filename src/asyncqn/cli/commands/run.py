"""`asyncqn run [JOB]`: run a job on threads, processes, MPI, Ray or the simulator."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncqn.cli.jobfile import RunOptions
from asyncqn.cli.options import Generated, JobOptions, Section
from asyncqn.cli.output import Output
from asyncqn.cli.running import run_job
from asyncqn.minimize import minimize


def run(
    options: JobOptions,
    section: Annotated[Section, Generated(RunOptions, described_by=minimize)],
    out: Output,
    engine: str | None = None,
    slow: bool = False,
) -> None:
    """Run a job on a real engine of this machine or cluster.

    With --checkpoint, Ctrl-C finishes the current commit and writes a checkpoint (exit code 130);
    `asyncqn resume DIR` continues.  Exit code 3: the run diverged.  4: it reached a limit, or lost all
    workers (it is saved all the same).

    Parameters
    ----------
    engine : str, optional
        One of simulator, threads, processes, mpi and ray; by default that of the job, or threads.
    slow : bool
        Stretch computations to times drawn from the job's cluster.
    """
    raise typer.Exit(run_job(options, section, engine, out, slow=slow))
