"""`asyncqn simulate [JOB]`: run an algorithm on a simulated cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncqn.cli.jobfile import RunOptions
from asyncqn.cli.options import Generated, JobOptions, Section
from asyncqn.cli.output import Output
from asyncqn.cli.running import SIMULATOR, run_job
from asyncqn.minimize import minimize


def simulate(
    options: JobOptions,
    section: Annotated[Section, Generated(RunOptions, described_by=minimize)],
    out: Output,
) -> None:
    """Simulate a cluster and run an algorithm on it: `run --engine simulator`.

    The defaults are not the paper's. as-L-BFGS has the paper's h, gamma, beta and memory, but batches of 60
    rows with an overlap of 40, H0 = 0.02 I and a cosine floor of 0.4, chosen so that pairs are used. The
    other algorithms have step sizes that suit the default problem. The cluster has 40 workers with a mean
    time of 70, a standard deviation of 14, and messages of 10.
    """
    raise typer.Exit(run_job(options, section, SIMULATOR, out))
