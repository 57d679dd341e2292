"""`asyncqn sample [JOB]`: draw from the posterior of a job's problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.options import AllowImports, CheckpointEvery, Save, option
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.running import output_of_rank, under_mpiexec

if TYPE_CHECKING:
    from asyncqn.cli.jobfile import Job
    from asyncqn.samples import Samples
    from asyncqn.types import Engine, Progress

_SAMPLING = "Sampling"
MAX_TABLE_ROWS = 30
"""Number of parameters in the printed table; the JSON object has all of them."""


def sample(
    out: Output,
    job: Annotated[
        Path | None,
        typer.Argument(
            help="TOML file whose problem, engine, cluster and seed are used."
        ),
    ] = None,
    draws: Annotated[
        int, option(_SAMPLING, "Draws after the warm-up, of all chains together.")
    ] = 10_000,
    chains: Annotated[
        int, option(_SAMPLING, "Smallest number of chains; workers have equally many.")
    ] = 8,
    warm_up: Annotated[
        int | None,
        option(_SAMPLING, "Commits until the metric is fixed.  [by chains and dim]"),
    ] = None,
    acceptance: Annotated[
        float, option(_SAMPLING, "Acceptance rate to which the step is tuned.")
    ] = 0.8,
    engine: Annotated[
        str | None, option("Engine", "One of {engines}; threads if not given.")
    ] = None,
    simulated: Annotated[
        bool,
        option("Engine", "Draw on the job's simulated cluster instead.", "--simulated"),
    ] = False,
    workers: Annotated[int | None, option("Engine", "Number of workers.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all random numbers.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        option("Checkpoints", "Keep checkpoints in this folder.", metavar="DIR"),
    ] = None,
    checkpoint_every: CheckpointEvery = 30.0,
    save: Save = None,
    allow_imports: AllowImports = False,
) -> None:
    """Draw from exp(-U) with chains on asynchronous workers, and report whether they agree.

    Of the job file, the problem, the engine or cluster, and the seed are used.  --save stores the run with
    all draws; in Python, Samples.from_run(load_run(DIR)) reads them.
    """
    from asyncqn.cli.jobfile import load_job
    from asyncqn.sample import sample as draw

    # --workers belongs to the cluster or to the engine, whichever is used.
    where = {} if workers is None else {"workers": workers}
    overrides: dict[str, dict[str, Any]] = {
        "run": {} if seed is None else {"seed": seed},
        "cluster": where if simulated else {},
        "engine": {**where, **({} if engine is None else {"kind": engine})}
        if not simulated
        else {},
    }
    out, mistakes_at_rank_0 = output_of_rank(
        out, mpi=engine == "mpi" or under_mpiexec()
    )
    with mistakes_at_rank_0():
        check_run_folder(save)
        loaded = load_job(job, overrides, allow_imports=allow_imports)
        chosen = _engine(loaded, simulated)
    out.say(f"{chosen}")
    # The default warm-up is chosen later; the bar then ends early, which is better than never.
    total = draws + (warm_up or 0)
    with out.progress("sample", total) as advance, mistakes_at_rank_0():

        def progressed(progress: Progress) -> None:
            advance(min(progress.commit, total), f"U {progress.metrics['fun']:.6g}")

        samples = draw(
            loaded.problem,
            chains=chains,
            draws=draws,
            engine=chosen,
            seed=loaded.run.seed,
            warm_up=warm_up,
            acceptance=acceptance,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            callback=progressed,
            progress=False,
        )
    if samples is None:
        return  # another MPI rank has the draws
    if save is not None:
        samples.run.save(save)
    _show(samples, save, out)


def _engine(job: Job, simulated: bool) -> Engine:
    """Return the engine that the job names, or a simulator of its cluster."""
    from asyncqn.cli.commands.run import make_engine
    from asyncqn.engines.simulator import Simulator

    return Simulator(job.cluster) if simulated else make_engine(job, slow=False)


def _show(samples: Samples, save: Path | None, out: Output) -> None:
    """Print the table of parameters and the diagnostics."""
    summary = samples.summary()
    head, *rows = summary.table().splitlines()
    for line in [head, *rows[:MAX_TABLE_ROWS]]:
        out.show(line)
    if len(rows) > MAX_TABLE_ROWS:
        out.show(f"... and {len(rows) - MAX_TABLE_ROWS} more parameters")
    numbers = {
        "draws": sum(map(len, samples.chains)),
        "chains": [len(chain) for chain in samples.chains],
        "rhat_max": float(samples.rhat.max()),
        "ess_min": float(samples.ess.min()),
        "accept": samples.accept,
        "step": samples.step,
        "divergent": samples.divergent,
        "gradients": samples.gradients,
        "run": None if save is None else str(save),
    }
    for name, value in numbers.items():
        if value is not None:
            out.show(
                f"{name:<12} {f'{value:.6g}' if isinstance(value, float) else value}"
            )
    # JSON gets all parameters, although the table shows a few.
    columns = {name: column.tolist() for name, column in summary.columns.items()}
    out.result(
        {
            **numbers,
            "warnings": samples.warnings,
            "parameters": summary.names,
            "summary": columns,
        }
    )
