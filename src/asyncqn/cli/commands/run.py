"""`asyncqn run`: run a job on a real engine; and how a real run is shown, which `resume` shares."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from asyncqn.cli.options import AllowImports, Commits, MaxPasses, MaxTime, Metric, Target, Tol
from asyncqn.cli.output import INTERRUPTED, Json, Output, Quiet, check_run_folder, exit_code
from asyncqn.errors import BadInput, require

if TYPE_CHECKING:
    from asyncqn.core.cluster import Cluster
    from asyncqn.core.run import Run
    from asyncqn.types import Callback, Engine, Progress


class Options(NamedTuple):
    """What the command line says of the engine."""

    workers: int | None
    slow: Cluster | None
    time_unit: float
    address: str | None
    wire: str


def _threads(options: Options) -> Engine:
    from asyncqn.engines.threads import Threads

    usual = options.slow.workers if options.slow is not None else 2
    return Threads(
        options.workers if options.workers is not None else usual,
        timing_model=options.slow,
        time_unit=options.time_unit,
    )


def _processes(options: Options) -> Engine:
    from asyncqn.engines.processes.engine import Processes

    usual = options.slow.workers if options.slow is not None else 2
    return Processes(
        options.workers if options.workers is not None else usual,
        timing_model=options.slow,
        time_unit=options.time_unit,
    )


def _mpi(options: Options) -> Engine:
    from asyncqn.engines.mpi.engine import MPI

    require(options.workers is None, "under MPI mpiexec -n says how many workers there are: no --workers.")
    return MPI(wire=options.wire, timing_model=options.slow, time_unit=options.time_unit)


def _ray(options: Options) -> Engine:
    from asyncqn.engines.ray.engine import Ray

    usual = options.slow.workers if options.slow is not None else 2
    return Ray(
        options.workers if options.workers is not None else usual,
        address=options.address,
        timing_model=options.slow,
        time_unit=options.time_unit,
    )


ENGINES: dict[str, Callable[[Options], Engine]] = {
    "threads": _threads,
    "processes": _processes,
    "mpi": _mpi,
    "ray": _ray,
}
"""How each engine is made from the options, by its name on the command line."""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""

    @app.command()
    def run(
        job: Annotated[
            Path | None, typer.Argument(help="TOML file with sections problem, algorithm, cluster and run.")
        ] = None,
        engine: Annotated[str, typer.Option(help=f"One of {', '.join(ENGINES)}.")] = "threads",
        workers: Annotated[int | None, typer.Option(help="How many workers.")] = None,
        commits: Commits = None,
        tol: Tol = None,
        max_passes: MaxPasses = None,
        max_time: MaxTime = None,
        target: Target = None,
        metric: Metric = None,
        seed: Annotated[int | None, typer.Option(help="Of minibatches, noise and start.")] = None,
        evaluate: Annotated[int | None, typer.Option(help="Commits between two rows of metrics.")] = None,
        checkpoint: Annotated[
            Path | None, typer.Option(help="Keep checkpoints in this folder.", metavar="DIR")
        ] = None,
        checkpoint_every: Annotated[float, typer.Option(help="Seconds between two checkpoints.")] = 30.0,
        slow: Annotated[
            bool, typer.Option("--slow", help="Stretch computations to times drawn from the job's cluster.")
        ] = False,
        time_unit: Annotated[float, typer.Option(help="Seconds of one unit of time.")] = 1.0,
        address: Annotated[str | None, typer.Option(help="Of an existing Ray cluster.")] = None,
        wire: Annotated[str, typer.Option(help="Numbers between MPI ranks: exact or float32.")] = "exact",
        save: Annotated[Path | None, typer.Option(help="Save the run in this folder.", metavar="DIR")] = None,
        allow_imports: AllowImports = False,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """Run a job on a real engine of this machine or cluster.

        Ctrl-C with --checkpoint ends in good order (exit 130); `asyncqn resume DIR` goes on.
        Exits with 3 if the run diverged, with 4 if every worker was gone before its end.
        """
        from asyncqn.cli.jobfile import load_job
        from asyncqn.minimize import minimize

        if engine not in ENGINES:
            raise BadInput(f"there is no engine '{engine}'; there are {', '.join(ENGINES)}.")
        out, one_voice = speaking(json, quiet, mpi=engine == "mpi")
        for name, value, meant in (("--address", address, "ray"), ("--wire", wire, "mpi")):
            unused = value in (None, "exact") or engine == meant
            require(unused, f"{name} is for the engine {meant}: leave it out, or say --engine {meant}.")
        given = {
            "commits": commits,
            "seed": seed,
            "evaluate": evaluate,
            "tol": tol,
            "metric": metric,
            "max_passes": max_passes,
            "max_time": max_time,
            "target": target,
        }
        overrides: dict[str, dict[str, Any]] = {"run": {k: v for k, v in given.items() if v is not None}}
        if workers is not None and slow:
            overrides["cluster"] = {"workers": workers}
        with one_voice():
            plan = load_job(job, overrides, allow_imports=allow_imports)
            if save is not None:
                check_run_folder(save)  # before the work, not after it
            slowed = plan.cluster if slow else None
            chosen = ENGINES[engine](Options(workers, slowed, time_unit, address, wire))
        out.say(f"{plan.algorithm}\n{chosen}")
        raise typer.Exit(
            show_run(
                lambda callback: minimize(
                    plan.problem, plan.algorithm, engine=chosen, callback=callback,
                    checkpoint=checkpoint, checkpoint_every=checkpoint_every, **plan.run.arguments(),
                ),
                plan.run.commits, save, out, one_voice,
            )
        )  # fmt: skip


def speaking(json: bool, quiet: bool, mpi: bool) -> tuple[Output, Callable[[], AbstractContextManager[None]]]:
    """Where this process talks, and a context in which the mistakes of several become one sentence."""
    if not mpi:
        return Output(json, quiet), nullcontext
    from asyncqn.engines.mpi.engine import first_rank, one_voice

    if first_rank():
        return Output(json, quiet), one_voice
    warnings.simplefilter("ignore")
    return Output(False, True), one_voice


def under_mpiexec() -> bool:
    """Whether a launcher of OpenMPI, MPICH or Slurm's PMI started this process among others."""
    return any(
        int(os.environ.get(name, "1")) > 1 for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
    )


def show_run(
    go: Callable[[Callback], Run | None], commits: int, save: Path | None, out: Output,
    one_voice: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:  # fmt: skip
    """Run with live progress, save, print; returns the exit code.  None: another rank has the run."""
    with out.progress("run", commits) as advance, one_voice():
        run = go(_Live(advance).progressed)
    if run is None:
        return 0
    if save is not None:
        run.save(save)
    numbers = {**real_summary(run), "run": None if save is None else str(save)}
    code = exit_code(run)
    if code:
        said = run.status in ("interrupted", "terminated")  # their messages begin with the word
        out.fail(run.message if said else f"{run.status}: {run.message}")
    if not out.json and not (out.quiet and run.status == "diverged"):
        for name, value in numbers.items():
            if value is not None:
                out.show(f"{name:<18} {f'{value:.6g}' if isinstance(value, float) else value}")
    out.result(numbers)
    if code == INTERRUPTED:
        sys.exit(code)  # it was said above: the program need not say it again
    return code


def real_summary(run: Run) -> dict[str, Any]:
    """What `simulate` prints, and what only a real run has; seconds are those of the time axis."""
    engine = run.manifest["engine"]
    seconds = run.time * float(engine.get("time_unit", 1.0))
    return {
        **run.summary(),
        "engine": engine["kind"],
        "workers": engine["workers"],
        "workers_lost": engine.get("workers_lost", 0),
        "workers_joined": engine.get("workers_joined", 0),
        "seconds": seconds,
        "commits_per_second": run.schedule.commits / seconds if seconds > 0 else 0.0,
        "resumed_from": engine.get("resumed_from"),
    }


class _Live:
    """Turns a `Progress` into a line: objective, commits per second, staleness, workers."""

    def __init__(self, advance: Callable[..., None]) -> None:
        self.advance = advance
        self.commit, self.time = 0, time.monotonic()

    def progressed(self, progress: Progress) -> None:
        now, metrics = time.monotonic(), progress.metrics
        rate = (progress.commit - self.commit) / max(now - self.time, 1e-9)
        self.commit, self.time = progress.commit, now
        note = f"error {metrics['error']:.4g}" if "error" in metrics else f"U {metrics['fun']:.6g}"
        note += f", {rate:.0f} commits/s, staleness {progress.staleness:.1f}, {progress.workers} workers"
        self.advance(progress.commit, note)
