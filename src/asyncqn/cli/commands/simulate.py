"""`asyncqn simulate [JOB]`: run an algorithm on a simulated cluster."""

from __future__ import annotations

from functools import partial

import typer

from asyncqn.cli.options import JobOptions
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.running import show_run


def simulate(options: JobOptions, out: Output) -> None:
    """Simulate a cluster and run an algorithm on it; flags go over the job file, both over defaults.

    Ctrl-C keeps what was computed; with --checkpoint, `asyncqn resume DIR` goes on. Exits with 3 if the
    run diverged, with 4 if every worker was gone before its end (it is saved all the same), with 2 on
    bad input.
    """
    from asyncqn.cli.jobfile import load_job
    from asyncqn.engines.simulator import Simulator
    from asyncqn.minimize import minimize

    job = load_job(options.job, options.overrides(), allow_imports=options.allow_imports)
    check_run_folder(options.save)  # before the work, not after it
    algorithm = job.algorithm_for(job.cluster.workers)
    out.say(f"{algorithm}\n{job.cluster}")
    arguments = {**options.checkpoints(), **vars(job.run)}
    go = partial(minimize, job.problem, algorithm, engine=Simulator(job.cluster), **arguments)
    kept = options.checkpoint is not None
    raise typer.Exit(show_run(go, job.run.commits, options.save, out, simulated=True, checkpoint=kept))
