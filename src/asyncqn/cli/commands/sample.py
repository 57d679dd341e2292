"""`asyncqn sample [JOB]`: draw from the posterior of a job's problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from asyncqn.cli.jobfile import load_job
from asyncqn.cli.options import (
    AllowImports,
    Generated,
    JobFile,
    JobOptions,
    Section,
    Settings,
)
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.running import (
    job_overrides,
    make_engine,
    output_of_rank,
    under_mpiexec,
)
from asyncqn.draws import check_exports
from asyncqn.sample import sample as draw

if TYPE_CHECKING:
    from asyncqn.draws import Samples


def sample(
    out: Output,
    sampling: Annotated[
        Section, Generated(draw, ("draws", "chains", "warm_up", "acceptance", "seed"))
    ],
    job: JobFile = None,
    engine: str | None = None,
    workers: int | None = None,
    settings: Settings = None,
    checkpoint: Path | None = None,
    checkpoint_every: float = 30.0,
    save: Path | None = None,
    netcdf: Path | None = None,
    csv: Path | None = None,
    allow_imports: AllowImports = False,
) -> None:
    """Draw from exp(-U) with chains on asynchronous workers, and report whether they agree.

    Of the job file, the problem, the engine or cluster, and the seed are used.  --save stores the run with
    all draws; in Python, Samples.from_run(load_run(DIR)) reads them.

    Parameters
    ----------
    engine : str, optional
        A real engine, or simulator; by default threads.
    netcdf : Path, optional
        Write draws and statistics to this netCDF file, for ArviZ.
    csv : Path, optional
        Write all draws to this CSV file.
    """
    options = JobOptions(job, workers=workers, settings=settings)
    out, once = output_of_rank(out, mpi=engine == "mpi" or under_mpiexec())
    with once():
        check_run_folder(save)
        check_exports(netcdf, csv)
        overrides = job_overrides(options, {}, engine)
        loaded = load_job(job, overrides, allow_imports=allow_imports)
        chosen = make_engine(loaded, engine)
    out.say(f"{chosen}")
    with once():
        samples = draw(
            loaded.problem,
            engine=chosen,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            progress=False if out.quiet else None,
            **{"seed": loaded.run.seed, **sampling},
        )
    if samples is None:
        return  # another MPI rank has the draws
    if save is not None:
        samples.run.save(save)
    if csv is not None:
        samples.to_csv(csv)
    if netcdf is not None:
        samples.to_netcdf(netcdf)
    _show(samples, save, out)


def _show(samples: Samples, save: Path | None, out: Output) -> None:
    """Print the table of parameters and the diagnostics."""
    summary = samples.summary()
    out.show(str(summary))
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
    out.numbers(numbers)
    # JSON gets all parameters, although the table shows a few.
    columns = {name: column.tolist() for name, column in summary.items()}
    further = {"warnings": samples.warnings, "parameters": columns.pop("parameter")}
    out.result({**numbers, **further, "summary": columns})
