"""`asyncqn plan JOB`: find the algorithm and workers that reach a target first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from asyncqn.cli.jobfile import load_job
from asyncqn.cli.options import AllowImports, Generated, JobFile, Section
from asyncqn.cli.output import Output
from asyncqn.engines.named import engine_class
from asyncqn.errors import BadInput, require
from asyncqn.lab.plan import CANDIDATES, Plan, counted
from asyncqn.lab.plan import plan as make_plan
from asyncqn.runs.archive import load_run

GOAL = ("target", "metric", "seeds", "commits", "record", "check")


def plan(
    out: Output,
    goal: Annotated[Section, Generated(make_plan, GOAL)],
    job: JobFile = None,
    workers: str = "1..256",
    algorithms: str = "all",
    engine: str = "threads",
    recorded: list[Path] | None = None,
    allow_imports: AllowImports = False,
) -> None:
    """Record short real runs, fit a cluster to each, and simulate algorithms with several numbers of workers.

    The predicted times are for workers that each have a processor like the recorded ones to themselves.

    Parameters
    ----------
    workers : str
        Numbers of workers, as in 1..256 (doubling) or 1,2,6.
    algorithms : str
        "all", or names such as default,table-lbfgs; "job" is the job's own.
    engine : str
        Engine of the recorded runs: threads or processes.
    recorded : list of Path, optional
        A saved run of a real engine, instead of a new recording.
    """
    require(
        engine in ("threads", "processes"),
        f"--engine must be threads or processes, not {engine!r}.",
    )
    loaded = load_job(job, allow_imports=allow_imports)
    # The job's own target, where the command line gives none.
    goal = {"target": loaded.run.target, "metric": loaded.run.metric, **goal}
    if goal["target"] is None:
        raise BadInput(
            "plan needs a target: give --target, or target in the section [run] of the job."
        )
    candidates = {**CANDIDATES, "job": loaded.algorithm or CANDIDATES["default"]}
    names = [] if algorithms == "all" else algorithms.split(",")
    for name in names:
        require(
            name in candidates,
            f"--algorithms: there is no {name!r}; there are {', '.join(candidates)}.",
        )
    # The job's own problem, because a recorded run of a user's class cannot rebuild it.
    runs = [load_run(path, problem=loaded.problem) for path in recorded or ()]
    before = {str(run.manifest["algorithm"]["kind"]): run for run in runs}
    # With recorded runs, their algorithms are planned and no others.
    chosen: dict[str, Any] = {name: candidates[name] for name in names if not before}
    make_engine = engine_class(engine)
    result = make_plan(
        loaded.problem,
        workers=counts(workers),
        algorithms=chosen or None,
        recorded=before or None,
        engine=lambda many: make_engine(workers=many),
        seed=loaded.run.seed,
        tell=out.say,
        **goal,
    )
    _show(out, result)
    real = result.checked
    out.result(
        {
            "target": goal["target"],
            "predictions": [each._asdict() for each in result.predictions],
            "best": result.best._asdict(),
            "pays": result.pays,
            "clusters": result.clusters,
            "checked": real and {**real._asdict(), "ratio": real.ratio},
        }
    )


def _show(out: Output, result: Plan) -> None:
    """Print the table, the number of workers that pays, and the check."""
    out.table([each._asdict() for each in result.predictions])
    out.show(f"best: {result.best.algorithm} on {counted(result.best.workers)}")
    paying = f"{counted(result.pays)} pay{'s' * (result.pays == 1)}"
    best = result.best.algorithm
    out.show(
        f"up to {paying} with {best}: each step saves at least a tenth of the time."
    )
    if (real := result.checked) is not None:
        out.show(
            f"checked: {real.algorithm}, the best on {counted(real.workers)}, predicted "
            f"{real.predicted:.4g} s, real {real.real:.4g} s, ratio {real.ratio:.2f}"
        )


def counts(text: str) -> list[int]:
    """Return the numbers that a list, or a range in doublings, stands for."""
    first, dots, last = text.partition("..")
    try:
        if not dots:
            return [int(number) for number in text.split(",")]
        numbers = [int(first)]
        if not 0 < numbers[0] <= int(last):
            raise ValueError
        while numbers[-1] < int(last):
            numbers.append(2 * numbers[-1])
    except ValueError:
        raise BadInput(
            f"--workers must be like 1..256 or 1,2,6, not {text!r}."
        ) from None
    # The end of a range is always included, also if it is not a doubling of its beginning.
    return [*numbers[:-1], int(last)]
