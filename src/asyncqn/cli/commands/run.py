"""`asyncqn run [JOB]`: run a job on threads, processes, MPI or Ray."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.options import JobOptions, option
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.running import output_of_rank, show_run
from asyncqn.errors import require

if TYPE_CHECKING:
    from asyncqn.core.cluster import Cluster
    from asyncqn.types import Engine

ENGINES = ("threads", "processes", "mpi", "ray")


@dataclass(frozen=True)
class EngineOptions:
    """What the command line says of the engine."""

    engine: Annotated[str, option("Engine", f"One of {', '.join(ENGINES)}.")] = "threads"
    slow: Annotated[
        bool, option("Engine", "Stretch computations to times drawn from the job's cluster.", "--slow")
    ] = False
    time_unit: Annotated[float, option("Engine", "Seconds of one unit of time.")] = 1.0
    address: Annotated[str | None, option("Engine", "Of an existing Ray cluster.")] = None
    wire: Annotated[str, option("Engine", "Numbers between MPI ranks: exact or float32.")] = "exact"

    def check(self) -> None:
        """Refuse an engine nobody knows, and what is said of another one."""
        engine = self.engine
        require(engine in ENGINES, f"there is no engine '{engine}'; there are {', '.join(ENGINES)}.")
        for name, value, meant in (("--address", self.address, "ray"), ("--wire", self.wire, "mpi")):
            unused = value in (None, "exact") or engine == meant
            require(unused, f"{name} is for the engine {meant}: leave it out, or say --engine {meant}.")

    def make(self, workers: int | None, cluster: Cluster) -> Engine:
        """The engine; where no number of workers is given, with those of the imitated cluster, or two."""
        from asyncqn.engines.named import engine_class

        told: dict[str, Any] = {"timing_model": cluster if self.slow else None, "time_unit": self.time_unit}
        if self.engine == "mpi":
            require(workers is None, "under MPI mpiexec -n says how many workers there are: no --workers.")
            told["wire"] = self.wire
        else:
            usual = cluster.workers if self.slow else 2
            told["workers"] = usual if workers is None else workers
        if self.engine == "ray":
            told["address"] = self.address
        engine: Engine = engine_class(self.engine)(**told)
        return engine


def run(options: JobOptions, real: EngineOptions, out: Output) -> None:
    """Run a job on a real engine of this machine or cluster.

    Ctrl-C with --checkpoint ends in good order (exit 130); `asyncqn resume DIR` goes on.
    Exits with 3 if the run diverged, with 4 if every worker was gone before its end.
    """
    from asyncqn.cli.jobfile import load_job
    from asyncqn.minimize import minimize

    real.check()
    out, mistakes_at_rank_0 = output_of_rank(out, mpi=real.engine == "mpi")
    overrides = options.overrides()
    if not real.slow:
        overrides["cluster"].pop("workers", None)  # of the engine then, not of the timing model
        said = [name if hasattr(options, name) else "cluster" for name in overrides["cluster"]]
        idle = ", ".join(f"--{name.replace('_', '-')}" for name in dict.fromkeys(said))
        require(not idle, f"{idle} describes a cluster to imitate: say --slow, or leave it out.")
    with mistakes_at_rank_0():
        job = load_job(options.job, overrides, allow_imports=options.allow_imports)
        check_run_folder(options.save)  # before the work, not after it
        engine = real.make(options.workers, job.cluster)
    out.say(f"{job.algorithm}\n{engine}")
    arguments = {**options.checkpoints(), **vars(job.run)}
    go = partial(minimize, job.problem, job.algorithm, engine=engine, **arguments)
    raise typer.Exit(show_run(go, job.run.commits, options.save, out, mistakes_at_rank_0))
