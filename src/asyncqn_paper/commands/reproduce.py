"""`asyncqn reproduce [NAME...]`: the paper's experiments, from cells to the page."""

from __future__ import annotations

from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli import Output


def reproduce(
    out: Output,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="fig1 to fig5, theory or title; all by default."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's size, or a small one.")
    ] = False,
    output: Annotated[
        Path,
        typer.Option(help="Folder for tables, figures and the page.", metavar="DIR"),
    ] = Path("reproduced"),
    processes: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    compute: Annotated[
        bool,
        typer.Option(
            "--compute/--publish",
            help="Compute what is missing, or show what is there.",
        ),
    ] = True,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="fig2 in a setting of your own: lambda_max, pays, share, integrator, seeds.",
        ),
    ] = None,
) -> None:
    """Reproduce the paper; finished cells are not computed again, and an interrupted call continues.

    The full size takes hours. Stop it when you like: `--publish` then writes the page of what is finished.
    """
    from asyncqn.errors import BadInput, require
    from asyncqn_paper.catalogue import find
    from asyncqn_paper.cells import Store
    from asyncqn_paper.cells import compute as compute_cells
    from asyncqn_paper.page import judged, write_page

    if settings:
        from asyncqn_paper.own_setting import run_setting

        require(
            names == ["fig2"],
            "--set belongs to fig2: asyncqn reproduce fig2 --set lambda_max=20.",
        )
        out.result(run_setting(settings, output, out.show))
        return
    wanted = find(names or [])
    folder = output / "tables" if full else output / "quick" / "tables"
    store = Store(folder, any_code=full)
    # The first batches of all experiments come before the second batch of any: a run that is stopped early
    # has a little of everything instead of one figure.
    batches = zip_longest(
        *(experiment.cells(full) for experiment in wanted), fillvalue=[]
    )
    cells = [cell for batch in batches for cell in chain.from_iterable(batch)]
    if not compute and not len(store):
        hint = "those of the repository are in docs/results"
        raise BadInput(
            f"there are no finished cells in {folder}: name another folder with --output ({hint})."
        )
    if compute:
        count = len(dict.fromkeys(cells))
        out.say(
            f"{count} cells, of which {len(store.finished(list(dict.fromkeys(cells))))} are finished"
        )
        with out.progress("cells", count) as tell:
            compute_cells(cells, store, processes, tell)
    # The page always shows all experiments, whichever were computed in this call.
    everything = find([])
    store.publish(
        [cell for one in everything for batch in one.cells(full) for cell in batch]
    )
    # The page is drawn from the tables, which round their numbers.
    store = Store(folder, any_code=full)
    page = folder.parent / "reproduction.md"
    found = judged(everything, store, full)
    write_page(everything, store, full, page)
    for name, (word, _, stated) in found.items():
        if sum(word.counts) or stated is not None:
            counts = "/".join(map(str, word.counts))
            out.show(f"  {name}: {str(word).replace('*', '')} (map {counts})")
    out.show(f"the page is {page}")
    out.result(
        {
            "page": str(page),
            "claims": {name: one.word._asdict() for name, one in found.items()},
        }
    )
