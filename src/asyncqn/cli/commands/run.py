"""`asyncqn run [JOB]`: run a job on threads, processes, MPI or Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from asyncqn.cli.options import JobOptions, grouped, option
from asyncqn.cli.output import check_run_folder
from asyncqn.cli.running import output_of_rank, show_run
from asyncqn.errors import BadInput, require

if TYPE_CHECKING:
    from asyncqn.core.cluster import Cluster
    from asyncqn.core.run import Run
    from asyncqn.types import Callback, Engine


class Options(NamedTuple):
    """What the command line says of the engine."""

    workers: int | None
    slow: Cluster | None
    time_unit: float
    address: str | None
    wire: str

    def how_many(self) -> int:
        """The workers asked for; else those of the cluster that is imitated; else two."""
        if self.workers is not None:
            return self.workers
        return self.slow.workers if self.slow is not None else 2

    def timing(self) -> dict[str, Any]:
        """What every engine is told of the cluster that it imitates."""
        return {"timing_model": self.slow, "time_unit": self.time_unit}


def _threads(options: Options) -> Engine:
    from asyncqn.engines.threads import Threads

    return Threads(options.how_many(), **options.timing())


def _processes(options: Options) -> Engine:
    from asyncqn.engines.processes.engine import Processes

    return Processes(options.how_many(), **options.timing())


def _mpi(options: Options) -> Engine:
    from asyncqn.engines.mpi.engine import MPI

    require(options.workers is None, "under MPI mpiexec -n says how many workers there are: no --workers.")
    return MPI(wire=options.wire, **options.timing())


def _ray(options: Options) -> Engine:
    from asyncqn.engines.ray.engine import Ray

    return Ray(options.how_many(), address=options.address, **options.timing())


ENGINES: dict[str, Callable[[Options], Engine]] = {
    "threads": _threads,
    "processes": _processes,
    "mpi": _mpi,
    "ray": _ray,
}
"""How each engine is made from the options, by its name on the command line."""


@grouped
def run(
    options: JobOptions,
    engine: Annotated[str, option("Engine", f"One of {', '.join(ENGINES)}.")] = "threads",
    slow: Annotated[
        bool, option("Engine", "Stretch computations to times drawn from the job's cluster.", "--slow")
    ] = False,
    time_unit: Annotated[float, option("Engine", "Seconds of one unit of time.")] = 1.0,
    address: Annotated[str | None, option("Engine", "Of an existing Ray cluster.")] = None,
    wire: Annotated[str, option("Engine", "Numbers between MPI ranks: exact or float32.")] = "exact",
) -> None:
    """Run a job on a real engine of this machine or cluster.

    Ctrl-C with --checkpoint ends in good order (exit 130); `asyncqn resume DIR` goes on.
    Exits with 3 if the run diverged, with 4 if every worker was gone before its end.
    """
    from asyncqn.cli.jobfile import load_job
    from asyncqn.minimize import minimize

    if engine not in ENGINES:
        raise BadInput(f"there is no engine '{engine}'; there are {', '.join(ENGINES)}.")
    out, mistakes_at_rank_0 = output_of_rank(options.json, options.quiet, mpi=engine == "mpi")
    for name, value, meant in (("--address", address, "ray"), ("--wire", wire, "mpi")):
        unused = value in (None, "exact") or engine == meant
        require(unused, f"{name} is for the engine {meant}: leave it out, or say --engine {meant}.")
    overrides = options.overrides()
    if not slow:
        overrides["cluster"].pop("workers", None)  # of the engine then, not of the timing model
        said = [name if hasattr(options, name) else "cluster" for name in overrides["cluster"]]
        idle = ", ".join(f"--{name.replace('_', '-')}" for name in dict.fromkeys(said))
        require(not idle, f"{idle} describes a cluster to imitate: say --slow, or leave it out.")
    with mistakes_at_rank_0():
        plan = load_job(options.job, overrides, allow_imports=options.allow_imports)
        if options.save is not None:
            check_run_folder(options.save)  # before the work, not after it
        slowed = plan.cluster if slow else None
        chosen = ENGINES[engine](Options(options.workers, slowed, time_unit, address, wire))
    out.say(f"{plan.algorithm}\n{chosen}")

    def go(callback: Callback) -> Run | None:
        arguments = {**options.checkpoints(), **plan.run.arguments()}
        return minimize(plan.problem, plan.algorithm, engine=chosen, callback=callback, **arguments)

    raise typer.Exit(show_run(go, plan.run.commits, options.save, out, mistakes_at_rank_0))
