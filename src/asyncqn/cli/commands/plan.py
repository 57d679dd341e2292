"""`asyncqn plan JOB`: find the algorithm and the number of workers that reach the job's target first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.options import AllowImports
from asyncqn.cli.output import Output
from asyncqn.errors import BadInput, require

if TYPE_CHECKING:
    from asyncqn.lab.plan import Plan


def plan(
    out: Output,
    job: Annotated[
        Path | None,
        typer.Argument(help="TOML file of a job, with the target to plan for."),
    ] = None,
    record: Annotated[
        str, typer.Option(help="Duration of the recorded real runs, as in 30s or 2m.")
    ] = "30s",
    workers: Annotated[
        str, typer.Option(help="Numbers of workers, as in 1..256 (doubling) or 1,2,6.")
    ] = "1..256",
    algorithms: Annotated[
        str,
        typer.Option(
            help='"all", or names such as default,table-lbfgs; "job" is the job\'s own.'
        ),
    ] = "all",
    engine: Annotated[
        str, typer.Option(help="Engine of the recorded runs: threads or processes.")
    ] = "threads",
    recorded: Annotated[
        list[Path] | None,
        typer.Option(
            help="A saved run of a real engine (also MPI or Ray) instead of a new recording."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for the intervals.")] = 3,
    target: Annotated[
        float | None, typer.Option(help="Target, instead of the job's.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Column of the metric table for --target.")
    ] = None,
    commits: Annotated[
        int | None,
        typer.Option(help="Commits after which the target counts as missed."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Run the best prediction for the recorded number of workers for real.",
        ),
    ] = False,
    allow_imports: AllowImports = False,
) -> None:
    """Record short real runs, fit a cluster to each, and simulate algorithms with several numbers of workers.

    The predicted times are for workers that each have a processor like the recorded ones to themselves.
    """
    from asyncqn.cli.jobfile import load_job
    from asyncqn.engines.named import engine_class
    from asyncqn.lab.plan import CANDIDATES, planned
    from asyncqn.lab.plan import plan as make_plan
    from asyncqn.runs.archive import load_run

    require(
        engine in ("threads", "processes"),
        f"--engine must be threads or processes, not {engine!r}.",
    )
    given = load_job(job, allow_imports=allow_imports)
    goal = target if target is not None else given.run.target
    if goal is None:
        raise BadInput(
            "plan needs a target: give --target, or target in the section [run] of the job."
        )
    known = {**CANDIDATES, "job": given.algorithm or CANDIDATES["default"]}
    names = list(CANDIDATES) if algorithms == "all" else algorithms.split(",")
    for name in names:
        require(
            name in known,
            f"--algorithms: there is no {name!r}; there are {', '.join(known)}.",
        )
    # The job's own problem, because a recorded run of a user's class cannot rebuild it.
    runs = [load_run(path, problem=given.problem) for path in recorded or ()]
    before = {str(run.manifest["algorithm"]["kind"]): run for run in runs}
    # With recorded runs, their algorithms are planned and no others.
    chosen: dict[str, Any] = {name: planned(name, run) for name, run in before.items()}
    cls = engine_class(engine)
    found = make_plan(
        given.problem,
        target=goal,
        metric=metric or given.run.metric,
        workers=counts(workers),
        algorithms=chosen or {name: known[name] for name in names},
        recorded=before or None,
        record=seconds(record),
        engine=lambda many: cls(workers=many),
        seeds=seeds,
        seed=given.run.seed,
        commits=commits,
        check=check,
        tell=out.say,
    )
    _show(out, found)
    c = found.checked
    out.result(
        {
            "target": goal,
            "predictions": [p._asdict() for p in found.predictions],
            "best": found.best._asdict(),
            "pays": found.pays,
            "clusters": found.clusters,
            "checked": None if c is None else {**c._asdict(), "ratio": c.ratio},
        }
    )


def _show(out: Output, found: Plan) -> None:
    """Print the table, the number of workers that pays, and the check."""
    from asyncqn.lab.plan import counted

    out.show(f"{'algorithm':<16}{'workers':>8}{'seconds':>12}{'95 % interval':>26}")
    for p in found.predictions:
        interval = f"{p.low:.4g} to {p.high:.4g}"
        mark = "  best" if p == found.best else ""
        out.show(f"{p.algorithm:<16}{p.workers:>8}{p.time:>12.4g}{interval:>26}{mark}")
    paying = f"{counted(found.pays)} pay{'s' * (found.pays == 1)}"
    out.show(
        f"up to {paying} with {found.best.algorithm}: each step saves at least a tenth of the time."
    )
    if (c := found.checked) is not None:
        out.show(
            f"checked: {c.algorithm}, the best on {counted(c.workers)}, predicted {c.predicted:.4g} s, "
            f"real {c.real:.4g} s, ratio {c.ratio:.2f}"
        )


def counts(text: str) -> list[int]:
    """Return the numbers that a list, or a range in doublings, stands for."""
    try:
        if ".." not in text:
            numbers = [int(number) for number in text.split(",")]
        else:
            first, last = (int(end) for end in text.split(".."))
            # The end of a range is always included, also if it is not a power of two.
            # 64 doublings exceed any number of workers.
            numbers = [first << k for k in range(64) if first << k < last] + [last]
            if first > last:
                raise ValueError
        if min(numbers) < 1:
            raise ValueError
    except ValueError:
        raise BadInput(
            f"--workers must be like 1..256 or 1,2,6, not {text!r}."
        ) from None
    return numbers


def seconds(text: str) -> float:
    """Return the seconds of a duration such as 30s, 2m or 45."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        value = float(text[:-1]) * unit if unit is not None else float(text)
    except ValueError:
        value = -1.0
    require(
        0.0 < value < float("inf"),
        f"--record must be a time such as 30s or 2m, not {text!r}.",
    )
    return value
