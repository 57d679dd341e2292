"""`asyncqn simulate [JOB]`: run an algorithm on a simulated cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncqn.cli.jobfile import RunOptions, paper_sections
from asyncqn.cli.options import Generated, JobOptions, Section
from asyncqn.cli.output import Output
from asyncqn.cli.running import SIMULATOR, run_job
from asyncqn.errors import require


def simulate(
    options: JobOptions,
    section: Annotated[Section, Generated(RunOptions)],
    out: Output,
    paper: Annotated[
        str | None,
        typer.Option(
            help="Use problem, cluster and algorithm of the paper's table.",
            metavar="linear-gaussian",
        ),
    ] = None,
) -> None:
    """Simulate a cluster and run an algorithm on it.  Options override the job file.

    The defaults are not the paper's. as-L-BFGS has the paper's h, gamma, beta and memory, but batches of 60
    rows with an overlap of 40, H0 = 0.02 I and a cosine floor of 0.4, chosen so that pairs are used. The
    other algorithms have step sizes that suit the default problem. The cluster has 40 workers with a mean
    time of 70, a standard deviation of 14, and messages of 10. --paper linear-gaussian uses the paper's
    numbers; with them as-L-BFGS diverges here, because the paper publishes neither its data nor its H0.

    Ctrl-C keeps what was computed; with --checkpoint, `asyncqn resume DIR` continues. Exit code 2: bad input.
    3: the run diverged. 4: it reached a limit or lost all workers (it is saved all the same).
    """
    sections = None
    if paper is not None:
        require(options.job is None, "give a job file or --paper, not both.")
        sections = paper_sections(paper, options.algorithm)
    raise typer.Exit(run_job(options, section, SIMULATOR, out, sections=sections))
