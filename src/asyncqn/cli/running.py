"""A run from the command line: the job, the engine, live progress, and the run's results."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncqn.cli.ending import INTERRUPTED, TERMINATED, complain, exit_code
from asyncqn.cli.options import JobOptions, Section, parse_settings
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.core.outcome import Outcome
from asyncqn.errors import require

if TYPE_CHECKING:
    from asyncqn.cli.jobfile import Job
    from asyncqn.runs.run import Run
    from asyncqn.types import Engine

SIMULATOR = "simulator"
Once = Callable[[], AbstractContextManager[None]]
"""Makes a context that merges the errors of all MPI ranks into one sentence."""


def run_job(
    options: JobOptions,
    run: Section,
    kind: str | None,
    out: Output,
    *,
    slow: bool = False,
) -> int:
    """Run a job on an engine, print and save its results, and return the exit code.

    Parameters
    ----------
    options : JobOptions
        The options that override the job file.
    run : dict
        The given options of the section [run].
    kind : str or None
        The engine: the simulator, a real one, or None for that of the job file.
    out : Output
        Output of the command.
    slow : bool, default False
        Whether a real engine stretches its times to those of the job's cluster.
    """
    from asyncqn.cli.jobfile import load_job
    from asyncqn.cli.results import check_results, write_results
    from asyncqn.minimize import minimize

    # The job file may name MPI; until it is read, only the launcher's variables tell.
    perhaps_mpi = kind == "mpi" or (kind is None and under_mpiexec())
    # A mistake in the job file is found by every rank; inside this context they report it once.
    _, once = output_of_rank(out, mpi=perhaps_mpi)
    with once():
        overrides = job_overrides(options, run, kind, slow)
        job = load_job(options.job, overrides, allow_imports=options.allow_imports)
    on_mpi = kind != SIMULATOR and job.engine["kind"] == "mpi"
    out, once = output_of_rank(out, mpi=on_mpi)
    with once():
        check_run_folder(options.save)  # before the work, not after it
        check_results(options, job.problem)
        engine = make_engine(job, kind, slow)
    # The choice may call the problem's functions, and a mistake in them is reported once.
    with once():
        algorithm, compared = job.choose(engine)
    out.say(f"{algorithm}\n{job.cluster if kind == SIMULATOR else engine}")
    begin = partial(
        minimize,
        job.problem,
        algorithm,
        engine=engine,
        check=not compared,
        checkpoint=options.checkpoint,
        checkpoint_every=options.checkpoint_every,
        **vars(job.run),
    )
    return show_run(
        begin,
        job.run.commits,
        options.save,
        out,
        once,
        simulated=kind == SIMULATOR,
        results=partial(write_results, options, out),
    )


def job_overrides(
    options: JobOptions, run: Section, kind: str | None, slow: bool = False
) -> dict[str, Section]:
    """Return the given options, by section of a job file."""
    overrides = parse_settings(options.settings or [])
    overrides["run"] |= run
    if options.algorithm is not None:
        overrides["algorithm"]["kind"] = options.algorithm
    if options.workers is not None:
        # The cluster has workers where it is simulated or imitated.
        place = "cluster" if kind == SIMULATOR or slow else "engine"
        overrides[place]["workers"] = options.workers
    if kind == SIMULATOR:
        require(
            not overrides["engine"],
            "the simulator has no section [engine]: set values of the cluster.",
        )
        return overrides
    if kind is not None:
        overrides["engine"]["kind"] = kind
    require(
        slow or not overrides["cluster"],
        "a real engine has no section [cluster], unless --slow imitates one.",
    )
    return overrides


def make_engine(job: Job, kind: str | None, slow: bool = False) -> Engine:
    """Build the engine of a job; the default number of workers is that of the cluster it imitates."""
    from asyncqn.cli.jobfile import DEFAULT_WORKERS
    from asyncqn.engines.named import engine_class
    from asyncqn.engines.simulator import Simulator

    if kind == SIMULATOR:
        return Simulator(job.cluster)
    arguments = dict(job.engine)
    cls = engine_class(arguments.pop("kind"))
    if slow:
        arguments["timing_model"] = job.cluster
    model = arguments.get("timing_model")
    # Under MPI the launcher decides how many workers there are.
    if job.engine["kind"] != "mpi":
        # Imitating forty workers needs forty threads; they sleep most of the time.
        usual = DEFAULT_WORKERS if model is None else model.workers
        arguments.setdefault("workers", usual)
    engine: Engine = cls(**arguments)
    return engine


def output_of_rank(out: Output, mpi: bool) -> tuple[Output, Once]:
    """Return this process's output, and what merges the errors of all MPI ranks into one sentence."""
    if not mpi:
        return out, nullcontext
    from asyncqn.engines.mpi.engine import first_rank, mistakes_at_rank_0

    # All ranks run the same command, and only the first one speaks.
    if not first_rank():
        warnings.simplefilter("ignore")
        out = Output(quiet=True)
    return out, mistakes_at_rank_0


def under_mpiexec() -> bool:
    """Return whether OpenMPI, MPICH or Slurm's PMI started this process as one of several."""
    # Each launcher sets a variable of its own; a job of a single rank needs no MPI.
    names = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
    return any(int(os.environ.get(name, "1")) > 1 for name in names)


def show_run(
    begin: Callable[..., Run | None],
    commits: int,
    save: Path | None,
    out: Output,
    once: Once = nullcontext,
    *,
    simulated: bool,
    results: Callable[[Run], Section],
) -> int:
    """Run with live progress, save the run, print its numbers, and return the exit code.

    `begin` returns None on an MPI rank that does not hold the run.  `results` receives the run after its end
    and returns more entries to print.
    """
    from asyncqn.view.progress import as_callback

    label = "simulate" if simulated else "run"
    with out.progress(label, commits) as advance, once():
        run = begin(callback=as_callback(advance, simulated=simulated), progress=False)
    if run is None:
        return 0
    if save is not None:
        run.save(save)
    numbers = run.summary() if simulated else run.summary() | _of_real_run(run)
    # The results come after saving: should they fail, the run is on disk.
    numbers = {**numbers, **results(run), "run": None if save is None else str(save)}
    code = exit_code(run)
    by_signal = code in (INTERRUPTED, TERMINATED)
    if code:
        # The message about a signal starts with the status.
        complain(run.message if by_signal else f"{run.status}: {run.message}")
    # The numbers of a run that diverged say no more than the error, which was printed above.
    if not (out.quiet and run.status is Outcome.DIVERGED):
        out.numbers({**numbers, "message": None} if code else numbers)
    out.result(numbers)
    # `typer.Exit` with 130 would reach `main` as typer's own reaction to Ctrl-C.
    if by_signal:
        sys.stdout.flush()
        sys.exit(code)
    return code


def _of_real_run(run: Run) -> Section:
    """Return the numbers that only a real run has; `seconds` excludes evaluations."""
    # The manifest and not the engine itself: a resumed run may have had several.
    engine: dict[str, Any] = run.manifest["engine"]
    seconds = run.time * float(engine.get("time_unit", 1.0))
    return {
        "engine": engine["kind"],
        "workers": engine["workers"],
        "workers_lost": engine.get("workers_lost", 0),
        "workers_joined": engine.get("workers_joined", 0),
        "seconds": seconds,
        "commits_per_second": run.schedule.commits / seconds if seconds > 0 else 0.0,
        "resumed_from": engine.get("resumed_from"),
    }
