"""`asyncqn predict RUN FILE`: predict the rows of a file by a saved run of a linear model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli.options import AllowImports
from asyncqn.cli.output import Output
from asyncqn.cli.results import csv_of


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a saved run.")],
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file of rows.")],
    out: Output,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Write to this .csv file, not to the screen.", metavar="FILE"
        ),
    ] = None,
    allow_imports: AllowImports = False,
) -> None:
    """Predict the rows of a file: a number, an expected count, or a label with its probability.

    The columns are found by the names that the run was fitted with.
    """
    from asyncqn.cli.predictions import predict_file
    from asyncqn.runs.archive import load_run
    from asyncqn.storage import check_output, write_whole

    if save is not None:
        check_output(save)
    table = predict_file(load_run(run, allow_imports=allow_imports), file)
    text = csv_of(table)
    if save is not None:
        out.say(f"predictions: {write_whole(save, text)}")
    else:
        out.show(text.rstrip("\n"))
    columns = {name: column.tolist() for name, column in table.items()}
    place = None if save is None else str(save)
    out.result({"run": str(run), "file": place, **columns})
