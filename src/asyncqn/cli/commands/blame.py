"""`asyncqn blame RUN`: estimate what staleness and each worker cost a saved run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from asyncqn.cli.options import AllowImports, Generated, Section
from asyncqn.cli.output import Output
from asyncqn.lab.blame import blame as blame_run
from asyncqn.runs.archive import load_run


def blame(
    run: Path,
    how: Annotated[Section, Generated(blame_run, ("seeds", "metric"))],
    out: Output,
    worker: list[int] | None = None,
    allow_imports: AllowImports = False,
) -> None:
    """Estimate what staleness, and each worker, cost a run.

    For every seed the run is computed again on its own schedule and on the changed one, with the same rows
    and noise.  The effects are the differences of these pairs, with 95 % intervals over the seeds.

    Parameters
    ----------
    run : Path
        Folder of a saved run.
    worker : list of int, optional
        Only this worker; any number of times.
    """
    loaded = load_run(run, allow_imports=allow_imports)
    # The number of runs is known only inside `blame`, so the bar has a single step and the note counts.
    with out.progress("blame", 1) as advance:
        result = blame_run(
            loaded,
            workers=worker,
            tell=lambda done, total: advance(done // total, f"{done} of {total} runs"),
            **how,
        )
    out.show(str(result))
    effects = [effect._asdict() for effect in result.effects]
    numbers = {"metric": result.metric, "unchanged": result.unchanged}
    out.result({"run": str(run), **numbers, "effects": effects})
