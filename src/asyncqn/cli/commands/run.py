"""`asyncqn run [JOB]`: run a job on threads, processes, MPI, Ray or the simulator."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from asyncqn.cli.jobfile import RunOptions, job_schema
from asyncqn.cli.options import Generated, JobOptions, Section
from asyncqn.cli.output import Output
from asyncqn.cli.running import SIMULATOR, run_job
from asyncqn.engines.named import REAL_ENGINES

ENGINES = ", ".join([*REAL_ENGINES, SIMULATOR])


def run(
    options: JobOptions,
    section: Annotated[Section, Generated(RunOptions)],
    out: Output,
    engine: Annotated[
        str | None, typer.Option(help=f"One of {ENGINES}; by default threads.")
    ] = None,
    slow: Annotated[
        bool,
        typer.Option(
            "--slow", help="Stretch computations to times drawn from the job's cluster."
        ),
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the JSON schema of job files, and do not run."
        ),
    ] = False,
) -> None:
    """Run a job on a real engine of this machine or cluster.

    With --checkpoint, Ctrl-C finishes the current commit and writes a checkpoint (exit code 130);
    `asyncqn resume DIR` continues.  Exit code 3: the run diverged.  4: it reached a limit, or lost all
    workers.
    """
    if schema:
        # Always JSON, whether --json is given or not.
        typer.echo(dumps(job_schema(), indent=1))
        return
    raise typer.Exit(run_job(options, section, engine, out, slow=slow))
