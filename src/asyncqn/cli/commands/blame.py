"""`asyncqn blame RUN`: estimate what staleness and each worker cost a saved run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli.options import AllowImports
from asyncqn.cli.output import Output


def blame(
    run: Annotated[Path, typer.Argument(help="Folder of a saved run.")],
    out: Output,
    seeds: Annotated[int, typer.Option(help="Number of seeds for the intervals.")] = 8,
    worker: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Only this worker; may be repeated.  [all]"),
    ] = None,
    metric: Annotated[str, typer.Option(help="Column of the metric table.")] = "fun",
    allow_imports: AllowImports = False,
) -> None:
    """Estimate what staleness, and each worker, cost a run.

    For every seed the run is computed again on its own schedule and on the changed one, with the same rows
    and noise.  The effects are the differences of these pairs, with 95 % intervals over the seeds.
    """
    from asyncqn.lab.blame import blame as blame_run
    from asyncqn.runs.archive import load_run

    loaded = load_run(run, allow_imports=allow_imports)
    # The number of runs is known only inside `blame`, so the bar has a single step and the note counts.
    with out.progress("blame", 1) as advance:
        found = blame_run(
            loaded,
            seeds=seeds,
            workers=worker,
            metric=metric,
            tell=lambda done, total: advance(done // total, f"{done} of {total} runs"),
        )
    out.show(str(found))
    out.result(
        {
            "run": str(run),
            "metric": found.metric,
            "unchanged": found.unchanged,
            "effects": [effect._asdict() for effect in found.effects],
        }
    )
