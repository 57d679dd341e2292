"""`asyncqn simulate [JOB]`: run an algorithm on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from asyncqn.cli.options import JobOptions, grouped
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.running import show_run

if TYPE_CHECKING:
    from asyncqn.core.run import Run
    from asyncqn.types import Callback


@grouped
def simulate(options: JobOptions) -> None:
    """Simulate a cluster and run an algorithm on it; flags go over the job file, both over defaults.

    Ctrl-C keeps what was computed; with --checkpoint, `asyncqn resume DIR` goes on. Exits with 3 if the
    run diverged, with 4 if every worker was gone before its end (it is saved all the same), with 2 on
    bad input.
    """
    from asyncqn.cli.jobfile import load_job
    from asyncqn.engines.simulator import Simulator
    from asyncqn.minimize import minimize

    out = Output(options.json, options.quiet)
    plan = load_job(options.job, options.overrides(), allow_imports=options.allow_imports)
    if options.save is not None:
        check_run_folder(options.save)  # before the work, not after it
    out.say(f"{plan.algorithm}\n{plan.cluster}")
    engine, kept = Simulator(plan.cluster), options.checkpoint is not None

    def go(callback: Callback) -> Run:
        arguments = {**options.checkpoints(), **plan.run.arguments()}
        return minimize(plan.problem, plan.algorithm, engine=engine, callback=callback, **arguments)

    code = show_run(go, plan.run.commits, options.save, out, simulated=True, checkpoint=kept)
    raise typer.Exit(code)
