"""`asyncqn run [JOB]`: run a job on threads, processes, MPI or Ray."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.options import JobOptions, option
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.result import Result
from asyncqn.cli.running import output_of_rank, show_run, under_mpiexec
from asyncqn.errors import require

if TYPE_CHECKING:
    from asyncqn.cli.jobfile import Job
    from asyncqn.types import Engine

_ENGINE = "Engine"


@dataclass(frozen=True)
class EngineOptions:
    """What the command line says of the engine: the fields of its class, over the job file's section."""

    engine: Annotated[str | None, option(_ENGINE, "One of {engines}; threads if not given.")] = None
    slow: Annotated[
        bool, option(_ENGINE, "Stretch computations to times drawn from the job's cluster.", "--slow")
    ] = False
    time_unit: Annotated[float | None, option(_ENGINE, "Seconds of one unit of time; 1 if not given.")] = None
    max_staleness: Annotated[
        int | None, option(_ENGINE, "Drop an asynchronous update that is more commits old than this.")
    ] = None
    give_up_after: Annotated[
        float | None,
        option(
            _ENGINE, "Give up a worker that has not answered for so many units of time; inf if not given."
        ),
    ] = None
    start_timeout: Annotated[
        float | None,
        option(_ENGINE, "Of processes and ray: seconds until workers must be ready; 120 if not given."),
    ] = None
    start_method: Annotated[
        str | None, option(_ENGINE, "Of processes: fork or spawn; fork where it is safe, if not given.")
    ] = None
    address: Annotated[str | None, option(_ENGINE, "Of ray: an existing cluster, auto or host:port.")] = None
    restarts: Annotated[
        int | None, option(_ENGINE, "Of ray: how many lost workers are replaced; 10 if not given.")
    ] = None
    cpus: Annotated[float | None, option(_ENGINE, "Of ray: what a worker counts as in Ray's books.")] = None
    wire: Annotated[
        str | None,
        option(_ENGINE, "Of mpi: numbers between ranks are exact or float32; exact if not given."),
    ] = None
    shared: Annotated[
        bool | None,
        option(
            _ENGINE,
            "Of mpi: whether ranks on one machine pass numbers in shared memory; they do if not told.",
            "--shared/--no-shared",
        ),
    ] = None

    def overrides(self, workers: int | None) -> dict[str, Any]:
        """Return what is given, as in the section [engine] of a job file."""
        said = {**vars(self), "kind": self.engine, "workers": workers}
        return {
            name: value
            for name, value in said.items()
            if name not in ("engine", "slow") and value is not None
        }


def make_engine(job: Job, slow: bool) -> Engine:
    """The engine of a job; where no number of workers is said, with those of the cluster it imitates."""
    from asyncqn.cli.jobfile import DEFAULT_WORKERS
    from asyncqn.engines.named import engine_class

    arguments = {**job.engine, "timing_model": job.cluster if slow else job.engine.get("timing_model")}
    kind, model = arguments.pop("kind"), arguments["timing_model"]
    if kind != "mpi":
        arguments.setdefault("workers", DEFAULT_WORKERS if model is None else model.workers)
    engine: Engine = engine_class(kind)(**arguments)
    return engine


_INSTEAD = "Instead of a run"
_RESULT = "Result"


def run(
    options: JobOptions,
    real: EngineOptions,
    out: Output,
    theta: Annotated[
        Path | None, option(_RESULT, "Write theta to this .npy file.", "--theta", metavar="FILE")
    ] = None,
    coefficients: Annotated[
        Path | None,
        option(
            _RESULT,
            "Of a linear model: write a table of coefficients by name to this .csv file.",
            "--coefficients",
            metavar="FILE",
        ),
    ] = None,
    schema: Annotated[
        bool, option(_INSTEAD, "Print the JSON schema of job files, for editors.", "--schema")
    ] = False,
    warm: Annotated[
        str | None,
        option(
            _INSTEAD,
            "Compile kernels ahead: of what the defaults run, or of all algorithms.",
            metavar="defaults|all",
        ),
    ] = None,
) -> None:
    """Run a job on a real engine of this machine or cluster.

    Ctrl-C with --checkpoint ends in good order (exit 130); `asyncqn resume DIR` continues.
    Exits with 3 if the run diverged, with 4 if every worker was gone before its end.
    """
    from asyncqn.cli.jobfile import job_schema, load_job
    from asyncqn.minimize import minimize

    if schema:
        typer.echo(dumps(job_schema(), indent=1))  # JSON it is, asked for or not
        return
    if warm is not None:
        from asyncqn.cli.warming import compile_ahead

        compile_ahead(warm, out)
        return
    overrides = {**options.overrides(), "engine": real.overrides(options.workers)}
    if not real.slow:
        overrides["cluster"].pop("workers", None)  # of the engine then, not of the timing model
        said = [name if hasattr(options, name) else "cluster" for name in overrides["cluster"]]
        idle = ", ".join(f"--{name.replace('_', '-')}" for name in dict.fromkeys(said))
        require(not idle, f"{idle} describes a cluster to imitate: say --slow, or leave it out.")
    perhaps_mpi = real.engine == "mpi" or (real.engine is None and under_mpiexec())
    _, mistakes_at_rank_0 = output_of_rank(out, mpi=perhaps_mpi)
    with mistakes_at_rank_0():
        job = load_job(options.job, overrides, allow_imports=options.allow_imports)
    out, mistakes_at_rank_0 = output_of_rank(out, mpi=job.engine["kind"] == "mpi")
    with mistakes_at_rank_0():
        check_run_folder(options.save)  # before the work, not after it
        result = Result(theta, coefficients)
        result.check(job.problem)
        engine = make_engine(job, real.slow)
    algorithm = job.algorithm_for(engine.workers)
    out.say(f"{algorithm}\n{engine}")
    arguments = {**options.checkpoints(), **vars(job.run)}
    go = partial(minimize, job.problem, algorithm, engine=engine, **arguments)
    raise typer.Exit(
        show_run(go, job.run.commits, options.save, out, mistakes_at_rank_0, further=result.write)
    )
