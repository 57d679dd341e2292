"""`asyncqn simulate [JOB]`: run an algorithm on a simulated cluster."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from asyncqn.cli.options import JobOptions, option
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.running import show_run
from asyncqn.errors import require


def simulate(
    options: JobOptions,
    out: Output,
    paper: Annotated[
        str | None,
        option(
            "Paper",
            "Use problem, cluster and algorithm of the paper's table; other options override them.",
            "--paper",
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
    from asyncqn.cli.jobfile import load_job, paper_sections
    from asyncqn.engines.simulator import Simulator
    from asyncqn.minimize import minimize

    sections = None
    if paper is not None:
        require(options.job is None, "give a job file or --paper, not both.")
        sections = paper_sections(paper, options.algorithm)
    job = load_job(
        options.job,
        options.overrides(),
        allow_imports=options.allow_imports,
        sections=sections,
    )
    check_run_folder(options.save)  # before the run, so that no work is lost
    # The default depends on workers and messages, so it is chosen after the cluster is known.
    engine = Simulator(job.cluster)
    algorithm, checked = job.choose(engine)
    out.say(f"{algorithm}\n{job.cluster}")
    arguments = {**options.checkpoints(), **vars(job.run)}
    go = partial(
        minimize, job.problem, algorithm, engine=engine, check=not checked, **arguments
    )
    kept = options.checkpoint is not None
    raise typer.Exit(
        show_run(
            go, job.run.commits, options.save, out, simulated=True, checkpoint=kept
        )
    )
