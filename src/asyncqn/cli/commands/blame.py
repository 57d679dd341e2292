"""`asyncqn blame RUN`: estimate what staleness and each worker cost a saved run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli.options import AllowImports, Generated, Section
from asyncqn.cli.output import Output
from asyncqn.lab.blame import blame as blame_run


def blame(
    run: Annotated[Path, typer.Argument(help="Folder of a saved run.")],
    how: Annotated[Section, Generated(blame_run, ("seeds", "metric"))],
    out: Output,
    worker: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Only this worker; any number of times."),
    ] = None,
    allow_imports: AllowImports = False,
) -> None:
    """Estimate what staleness, and each worker, cost a run.

    For every seed the run is computed again on its own schedule and on the changed one, with the same rows
    and noise.  The effects are the differences of these pairs, with 95 % intervals over the seeds.
    """
    from asyncqn.runs.archive import load_run

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
    out.result(
        {
            "run": str(run),
            "metric": result.metric,
            "unchanged": result.unchanged,
            "effects": [effect._asdict() for effect in result.effects],
        }
    )
