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
    """The options of the engine: fields of its class, which override the job file's section."""

    engine: Annotated[
        str | None, option(_ENGINE, "One of {engines}; threads if not given.")
    ] = None
    slow: Annotated[
        bool,
        option(
            _ENGINE,
            "Stretch computations to times drawn from the job's cluster.",
            "--slow",
        ),
    ] = False
    time_unit: Annotated[
        float | None, option(_ENGINE, "Length of a unit of time in seconds.  [1]")
    ] = None
    max_staleness: Annotated[
        int | None,
        option(
            _ENGINE,
            "Drop an asynchronous update with more staleness than this, in commits.",
        ),
    ] = None
    give_up_after: Annotated[
        float | None,
        option(
            _ENGINE,
            "Give up a worker that has not sent an update for this many units of time.  [inf]",
        ),
    ] = None
    start_timeout: Annotated[
        float | None,
        option(
            _ENGINE, "Of processes and ray: seconds until workers must be ready.  [120]"
        ),
    ] = None
    start_method: Annotated[
        str | None,
        option(_ENGINE, "Of processes: fork or spawn.  [fork where it is safe]"),
    ] = None
    address: Annotated[
        str | None, option(_ENGINE, "Of ray: an existing cluster, auto or host:port.")
    ] = None
    restarts: Annotated[
        int | None,
        option(_ENGINE, "Of ray: number of lost workers that are replaced.  [10]"),
    ] = None
    cpus: Annotated[
        float | None, option(_ENGINE, "Of ray: number of CPUs that a worker reserves.")
    ] = None
    wire: Annotated[
        str | None,
        option(
            _ENGINE,
            "Of mpi: precision of numbers between ranks, exact or float32.  [exact]",
        ),
    ] = None
    shared: Annotated[
        bool | None,
        option(
            _ENGINE,
            "Of mpi: whether ranks on one machine exchange numbers in shared memory.  [shared]",
            "--shared/--no-shared",
        ),
    ] = None

    def overrides(self, workers: int | None) -> dict[str, Any]:
        """Return the given options, as in the section [engine] of a job file."""
        # The fields have the names of the engines' parameters, so they pass through unchanged.
        said = {**vars(self), "kind": self.engine, "workers": workers}
        return {
            name: value
            for name, value in said.items()
            if name not in ("engine", "slow") and value is not None
        }


def make_engine(job: Job, slow: bool) -> Engine:
    """Build the engine of a job; the default number of workers is that of the cluster it imitates."""
    from asyncqn.cli.jobfile import DEFAULT_WORKERS
    from asyncqn.engines.named import engine_class

    arguments = {
        **job.engine,
        "timing_model": job.cluster if slow else job.engine.get("timing_model"),
    }
    kind, model = arguments.pop("kind"), arguments["timing_model"]
    # Under MPI the launcher decides how many workers there are.
    if kind != "mpi":
        # Imitating forty workers needs forty threads; they sleep most of the time.
        arguments.setdefault(
            "workers", DEFAULT_WORKERS if model is None else model.workers
        )
    engine: Engine = engine_class(kind)(**arguments)
    return engine


_INSTEAD = "Instead of a run"
_RESULT = "Result"


def run(
    options: JobOptions,
    real: EngineOptions,
    out: Output,
    theta: Annotated[
        Path | None,
        option(_RESULT, "Write theta to this .npy file.", "--theta", metavar="FILE"),
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
        bool,
        option(
            _INSTEAD, "Print the JSON schema of job files, for editors.", "--schema"
        ),
    ] = False,
    warm: Annotated[
        str | None,
        option(
            _INSTEAD,
            "Compile kernels in advance: those of the defaults, or of all algorithms.",
            metavar="defaults|all",
        ),
    ] = None,
) -> None:
    """Run a job on a real engine of this machine or cluster.

    With --checkpoint, Ctrl-C finishes the current commit and writes a checkpoint (exit code 130);
    `asyncqn resume DIR` continues.  Exit code 3: the run diverged.  4: it reached a limit, or lost all
    workers.
    """
    from asyncqn.cli.jobfile import job_schema, load_job
    from asyncqn.minimize import minimize

    if schema:
        typer.echo(
            dumps(job_schema(), indent=1)
        )  # always JSON, whether --json is given or not
        return
    if warm is not None:
        from asyncqn.cli.warming import compile_ahead

        compile_ahead(warm, out)
        return
    overrides = {**options.overrides(), "engine": real.overrides(options.workers)}
    if not real.slow:
        overrides["cluster"].pop(
            "workers", None
        )  # --workers then belongs to the engine
        said = [
            name if hasattr(options, name) else "cluster"
            for name in overrides["cluster"]
        ]
        idle = ", ".join(f"--{name.replace('_', '-')}" for name in dict.fromkeys(said))
        require(
            not idle,
            f"{idle} describes a cluster to imitate: give --slow as well, or leave it out.",
        )
    # The job file may name MPI; until it is read, only the launcher's variables tell.
    perhaps_mpi = real.engine == "mpi" or (real.engine is None and under_mpiexec())
    # A mistake in the job file is found by every rank; inside this context they report it once.
    _, mistakes_at_rank_0 = output_of_rank(out, mpi=perhaps_mpi)
    with mistakes_at_rank_0():
        job = load_job(options.job, overrides, allow_imports=options.allow_imports)
    out, mistakes_at_rank_0 = output_of_rank(out, mpi=job.engine["kind"] == "mpi")
    with mistakes_at_rank_0():
        check_run_folder(options.save)  # before the work, not after it
        result = Result(theta, coefficients)
        result.check(job.problem)
        engine = make_engine(job, real.slow)
    # The choice may call the problem's functions, and a mistake in them is reported once.
    with mistakes_at_rank_0():
        algorithm, checked = job.choose(engine)
    out.say(f"{algorithm}\n{engine}")
    arguments = {**options.checkpoints(), **vars(job.run)}
    go = partial(
        minimize, job.problem, algorithm, engine=engine, check=not checked, **arguments
    )
    raise typer.Exit(
        show_run(
            go,
            job.run.commits,
            options.save,
            out,
            mistakes_at_rank_0,
            further=result.write,
        )
    )
