"""`asyncqn simulate`: run an algorithm on a simulated cluster, from flags, a TOML file, or both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.algorithms import ALGORITHMS
from asyncqn.cli.options import AllowImports, Commits, MaxPasses, MaxTime, Metric, Target, Tol
from asyncqn.cli.output import Json, Output, Quiet, check_run_folder, exit_code
from asyncqn.errors import BadInput

if TYPE_CHECKING:
    from asyncqn.types import Progress

_PROBLEM, _ALGORITHM, _CLUSTER = "Problem", "Algorithm", "Cluster"


def register(app: typer.Typer) -> None:
    """Add the command `simulate`."""

    @app.command()
    def simulate(
        job: Annotated[
            Path | None, typer.Argument(help="TOML file with sections problem, algorithm, cluster and run.")
        ] = None,
        commits: Commits = None,
        tol: Tol = None,
        max_passes: MaxPasses = None,
        max_time: MaxTime = None,
        target: Target = None,
        metric: Metric = None,
        seed: Annotated[int | None, typer.Option(help="Of minibatches, noise, delays and start.")] = None,
        evaluate: Annotated[int | None, typer.Option(help="Commits between two rows of metrics.")] = None,
        save: Annotated[Path | None, typer.Option(help="Save the run in this folder.", metavar="DIR")] = None,
        dim: Annotated[int | None, typer.Option(rich_help_panel=_PROBLEM, help="Parameters to find.")] = None,
        n_data: Annotated[int | None, typer.Option(rich_help_panel=_PROBLEM, help="Observations.")] = None,
        noise_var: Annotated[
            float | None, typer.Option(rich_help_panel=_PROBLEM, help="Variance of an observation.")
        ] = None,
        problem_seed: Annotated[
            int | None, typer.Option(rich_help_panel=_PROBLEM, help="Of the problem's data.")
        ] = None,
        algorithm: Annotated[
            str | None, typer.Option(rich_help_panel=_ALGORITHM, help=f"One of {', '.join(ALGORITHMS)}.")
        ] = None,
        parameter: Annotated[
            list[str] | None,
            typer.Option("--parameter", "-p", rich_help_panel=_ALGORITHM, metavar="KEY=VALUE",
                         help="A parameter, as in -p h=1e-3; any number of times."),
        ] = None,
        workers: Annotated[int | None, typer.Option(rich_help_panel=_CLUSTER, help="How many.")] = None,
        worker_mean: Annotated[
            float | None, typer.Option(rich_help_panel=_CLUSTER, help="Mean time of a computation.")
        ] = None,
        worker_std: Annotated[
            float | None, typer.Option(rich_help_panel=_CLUSTER, help="Its standard deviation.")
        ] = None,
        message: Annotated[
            float | None, typer.Option(rich_help_panel=_CLUSTER, help="Time of both messages together.")
        ] = None,
        master: Annotated[
            float | None, typer.Option(rich_help_panel=_CLUSTER, help="Time of a commit at the master.")
        ] = None,
        allow_imports: AllowImports = False,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:  # fmt: skip
        """Simulate a cluster and run an algorithm on it; flags go over the job file, both over defaults.

        Exits with 3 if the run diverged, with 4 if every worker was gone before its end (it is saved all
        the same), with 2 on bad input.
        """
        overrides = {
            "problem": {"dim": dim, "n_data": n_data, "noise_var": noise_var, "seed": problem_seed},
            "algorithm": {"kind": algorithm, **parse_parameters(parameter or [])},
            "cluster": {"workers": workers, "worker_mean": worker_mean, "worker_std": worker_std,
                        "message": message, "master": master},
            "run": {
                "commits": commits, "seed": seed, "evaluate": evaluate, "tol": tol, "metric": metric,
                "max_passes": max_passes, "max_time": max_time, "target": target,
            },
        }  # fmt: skip
        given = {
            name: {key: value for key, value in section.items() if value is not None}
            for name, section in overrides.items()
        }
        raise typer.Exit(run_job(job, given, save, Output(json, quiet), allow_imports))


def run_job(
    job: Path | None,
    overrides: dict[str, dict[str, Any]],
    save: Path | None,
    out: Output,
    allow_imports: bool,
) -> int:
    """Run it, print it, save it; returns the exit code."""
    from asyncqn.cli.jobfile import load_job
    from asyncqn.engines.simulator import Simulator
    from asyncqn.minimize import minimize

    plan = load_job(job, overrides, allow_imports=allow_imports)
    if save is not None:
        check_run_folder(save)  # before the work, not after it
    out.say(f"{plan.algorithm}\n{plan.cluster}")
    with out.progress("simulate", plan.run.commits) as advance:

        def progressed(progress: Progress) -> None:
            metrics = progress.metrics
            note = f"error {metrics['error']:.4g}" if "error" in metrics else f"U {metrics['fun']:.6g}"
            advance(progress.commit, note)

        run = minimize(
            plan.problem,
            plan.algorithm,
            engine=Simulator(plan.cluster),
            callback=progressed,
            **plan.run.arguments(),
        )
    if save is not None:
        run.save(save)
    numbers = {**run.summary(), "run": None if save is None else str(save)}
    code = exit_code(run)
    if code:
        out.fail(f"{run.status}: {run.message}")
    if not out.json:
        for name, value in numbers.items():
            if value is not None and not (code and name == "message"):
                out.show(f"{name:<16} {f'{value:.6g}' if isinstance(value, float) else value}")
    out.result(numbers)
    return code


def parse_parameters(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE texts as numbers where they are numbers, else as words."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key.strip() and equals and text.strip()):
            raise BadInput(f"a parameter is written key=value, as in -p h=1e-3; '{pair}' is not.")
        values[key.strip().replace("-", "_")] = _value(text.strip())
    return values


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
