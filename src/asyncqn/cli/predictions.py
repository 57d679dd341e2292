"""Predictions of a fitted linear model for the rows of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncqn.columns import Table
from asyncqn.errors import BadInput, require
from asyncqn.models.data_file import numbers, read_table
from asyncqn.models.feature_rows import feature_rows
from asyncqn.models.held_out import HeldOut
from asyncqn.models.linear_model import LinearModel
from asyncqn.models.logistic import LogisticRegression
from asyncqn.models.poisson import PoissonRegression
from asyncqn.parameters import suggestion

if TYPE_CHECKING:
    from asyncqn.runs.run import Run


def predict_file(run: Run, path: Path) -> Table:
    """Return the predictions of a run for the rows of a CSV or Parquet file, as columns.

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
    if isinstance(problem, PoissonRegression):
        return Table({"prediction": np.exp(z)})
    classes = getattr(problem, "classes", None)
    if classes is None:
        return Table({"prediction": z})
    if isinstance(problem, LogisticRegression):
        z = np.column_stack([np.zeros_like(z), z])
    # Without the largest predictor, so that no exponential overflows.
    chance = np.exp(z - z.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    columns = {"prediction": np.asarray(classes)[z.argmax(axis=1)]}
    columns |= {
        f"probability of {c}": p for c, p in zip(classes, chance.T, strict=True)
    }
    return Table(columns)
