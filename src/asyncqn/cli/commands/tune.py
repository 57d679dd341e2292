"""`asyncqn tune ALGORITHM [JOB]`: search parameters by simulated time to a goal."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from asyncqn.cli.options import SettingOptions
from asyncqn.cli.output import Output
from asyncqn.cli.studying import STUDIES, StudyRequest, check_study, run_study
from asyncqn.errors import BadInput


def tune(
    algorithm: Annotated[str, typer.Argument(help="One of {tunable}.")],
    options: SettingOptions,
    out: Output,
    budget: Annotated[
        int | None, typer.Option(help="Number of trials.  [20 for each parameter that is searched]")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs per trial.")] = 3,
    processes: Annotated[int, typer.Option(help="Number of processes that run trials.")] = 2,
    output: Annotated[
        Path | None,
        typer.Option(help="File of the study, which is continued if it exists.  [runs/tuned/NAME.json]"),
    ] = None,
    problem: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Search parameters by simulated time to a goal; an interrupted study continues from its file.

    The job describes the problem and the cluster; --target and --metric set the goal, and --max-time the
    limit of a run. Parameters given with -p are fixed; all others are searched.
    """
    from asyncqn.cli.tuned_job import job_problem
    from asyncqn.lab.tuning.problem import known_algorithm

    if problem is not None:
        raise BadInput(
            f"problems of the paper are tuned by their own package: python -m asyncqn_paper tune "
            f"{algorithm} --problem {problem}."
        )
    known_algorithm(algorithm)
    check_study(options.workers, seeds, processes, output)
    tuned = job_problem(algorithm, options, {"seeds": seeds, "seed": options.seed or 0})
    # The name contains the job, so that two jobs do not share a study by accident.
    path = output or STUDIES / f"{algorithm}-{options.job.stem if options.job else 'job'}.json"
    command = f"asyncqn tune {algorithm} {_words(options)}".rstrip()
    run_study(StudyRequest(tuned, path, command), out, budget=budget, processes=processes)


def _words(options: SettingOptions) -> str:
    """Return the options of the job as on a command line, without the seed, which comes later."""
    words: list[str] = []
    for f in sorted(fields(options), key=lambda f: f.name == "workers"):
        value: Any = getattr(options, f.name)
        if value == f.default or f.name == "seed":
            continue
        for one in value if isinstance(value, list) else [value]:
            words += [] if f.name == "job" else [f"--{f.name.replace('_', '-')}"]
            words += [] if one is True else [str(one)]
    return shlex.join(words)
