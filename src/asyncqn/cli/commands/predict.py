"""`asyncqn predict RUN FILE`: predict the rows of a file by a saved run of a linear model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncqn.cli.options import AllowImports
from asyncqn.cli.output import Output
from asyncqn.cli.results import csv_of, log_chances
from asyncqn.columns import Table
from asyncqn.errors import BadInput, require
from asyncqn.models.data_file import numbers, read_table
from asyncqn.models.feature_rows import feature_rows
from asyncqn.models.held_out import HeldOut
from asyncqn.models.linear_model import LinearModel
from asyncqn.models.poisson import PoissonRegression
from asyncqn.parameters import suggestion
from asyncqn.runs.archive import load_run
from asyncqn.storage import check_output, write_whole

if TYPE_CHECKING:
    from asyncqn.runs.run import Run


def predict(
    run: Path,
    file: Path,
    out: Output,
    save: Path | None = None,
    allow_imports: AllowImports = False,
) -> None:
    """Predict the rows of a file: a number, an expected count, or a label with its probability.

    The columns are found by the names that the run was fitted with.

    Parameters
    ----------
    run : Path
        Folder of a saved run.
    file : Path
        CSV or Parquet file of rows.
    save : Path, optional
        Write to this .csv file, not to the screen.
    """
    if save is not None:
        check_output(save)
    table = predictions(load_run(run, allow_imports=allow_imports), file)
    text = csv_of(table)
    if save is not None:
        out.say(f"predictions: {write_whole(save, text)}")
    else:
        out.show(text.rstrip("\n"))
    columns = {name: column.tolist() for name, column in table.items()}
    place = None if save is None else str(save)
    out.result({"run": str(run), "file": place, **columns})


def predictions(run: Run, path: Path) -> Table:
    """Return the predictions for the rows of a file, as columns.

    The column `prediction` holds numbers, expected counts or labels; labels come with the probability of each
    class, in `probability of LABEL`.
    """
    problem: Any = run.problem
    require(
        isinstance(problem, LinearModel),
        "predict needs a run of a linear model, and one whose data can be read again.",
    )
    names = problem.feature_names
    if names is None:
        raise BadInput("predict needs named columns, which this run's data have not.")
    table = read_table(path)
    require(table.num_rows > 0, f"{str(path)!r} has no rows.")
    offset = (problem.recipe or {}).get("offset")
    for name in [*names, *([] if offset is None else [offset])]:
        require(
            name in table.column_names,
            f"{str(path)!r} has no column {name!r}; {suggestion(name, table.column_names)}.",
        )
    X = np.column_stack([numbers(table.column(name), name) for name in names])
    shift = None if offset is None else numbers(table.column(offset), offset)
    rows = HeldOut(feature_rows(X), np.zeros(len(X)), shift)
    z = rows.predictors(run.theta, problem._outputs)
    classes = getattr(problem, "classes", None)
    if classes is None:
        mean = np.exp(z) if isinstance(problem, PoissonRegression) else z
        return Table({"prediction": mean})
    chances = np.exp(log_chances(z))
    columns = {"prediction": np.asarray(classes)[chances.argmax(axis=1)]}
    for label, chance in zip(classes, chances.T, strict=True):
        columns[f"probability of {label}"] = chance
    return Table(columns)
