"""`asyncqn reproduce [NAME...]`: the paper's experiments, from cells to the page."""

from __future__ import annotations

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

    A figure takes minutes; fig1, fig4, fig5 and theory need ml-1m (`asyncqn recommender data ml-1m`).
    """
    from asyncqn.errors import require
    from asyncqn_paper.cells import Store
    from asyncqn_paper.cells import compute as compute_cells
    from asyncqn_paper.experiment import find
    from asyncqn_paper.page import judged, write_page

    if settings:
        from asyncqn_paper.own_setting import run_setting

        require(
            names == ["fig2"],
            "--set belongs to fig2: asyncqn reproduce fig2 --set lambda_max=20.",
        )
        out.result(run_setting(settings, output, out.show))
        return
    cells = [cell for experiment in find(names or []) for cell in experiment.cells()]
    folder = output / "tables"
    store = Store(folder)
    require(
        compute or len(store) > 0,
        f"there are no finished cells in {folder}: name another folder with --output (those of the "
        "repository are in docs/results).",
    )
    if compute:
        finished = sum(cell in store for cell in cells)
        out.say(f"{len(cells)} cells, of which {finished} are finished")
        with out.progress("cells", len(cells)) as tell:
            compute_cells(cells, store, processes, tell)
    # The page shows all experiments that are complete, whichever were computed in this call.
    everything = find()
    store.publish(cell for one in everything for cell in one.cells())
    # The page is drawn from the tables, which round their numbers.
    store = Store(folder)
    page = output / "reproduction.md"
    write_page(everything, store, page)
    words = {}
    for name, (word, _, stated) in judged(everything, store).items():
        words[name] = word._asdict()
        if sum(word.counts) or stated is not None:
            counts = "/".join(map(str, word.counts))
            out.show(f"  {name}: {str(word).replace('*', '')} (map {counts})")
    out.show(f"the page is {page}")
    out.result({"page": str(page), "claims": words})
