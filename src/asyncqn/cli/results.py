"""The results of a run besides the run itself: theta, coefficients, and scores on rows held out."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asyncqn.cli.options import JobOptions, Section
from asyncqn.cli.output import Output
from asyncqn.columns import Table
from asyncqn.errors import BadInput, require
from asyncqn.models.coefficients import coefficient_table
from asyncqn.models.linear_model import LinearModel
from asyncqn.storage import check_output, write_whole

if TYPE_CHECKING:
    from asyncqn.runs.run import Run
    from asyncqn.types import Problem

Numbers = npt.NDArray[Any]


def check_results(options: JobOptions, problem: Problem) -> None:
    """Raise `BadInput` early for a file of results that could not be written later."""
    # Before the run, so that a mistyped path does not cost its result.
    for path in (options.theta, options.coefficients):
        if path is not None:
            check_output(path)
    require(
        options.coefficients is None or isinstance(problem, LinearModel),
        "--coefficients needs a linear model: use --theta for the numbers of any problem.",
    )


def write_results(options: JobOptions, out: Output, run: Run) -> Section:
    """Write theta and the coefficients where they are wanted; return the entries to print."""
    entries: Section = {}
    if options.theta is not None:
        entries["theta"] = str(write_whole(options.theta, run.theta))
    if options.coefficients is not None:
        problem: Any = run.problem
        try:
            table = coefficient_table(problem, run.theta, standard_errors=True)
        except BadInput as reason:
            out.say(f"the coefficients have no standard errors: {reason}")
            table = coefficient_table(problem, run.theta)
        entries["coefficients"] = str(write_whole(options.coefficients, csv_of(table)))
    return entries | held_out_scores(run)


def csv_of(table: Table) -> str:
    """Return a table as the text of a CSV file."""
    text = io.StringIO()
    # csv's default line end is that of DOS.
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*(table[name].tolist() for name in table.columns)))
    return text.getvalue()


def held_out_scores(run: Run) -> Section:
    """Return the scores on the rows that a linear model held out; empty where there are none."""
    problem: Any = run.problem
    held = getattr(problem, "held_out", None)
    if held is None:
        return {}
    theta = np.asarray(run.theta, np.float64)
    outputs = theta.size // (held.rows.shape[1] + problem.intercept)
    z, y = held.predictors(theta, outputs), held.y
    scores: Section = {"rows": len(y), problem.score_name: problem.score(run)}
    if problem.score_name == "accuracy":
        # The two classes of a logistic regression are -1 and 1.
        label = y if outputs > 1 else (y > 0).astype(float)
        scores["log_loss"] = log_loss(z, label)
        # Without rows of both classes there is nothing to rank.
        if outputs == 1 and 0 < label.sum() < len(label):
            scores["auc"] = auc(z, label)
    else:
        # Poisson regression predicts the mean exp(z).
        mean = np.exp(z) if problem.score_name == "d2" else z
        scores["rmse"] = float(np.sqrt(np.square(y - mean).mean()))
    return {f"held_out_{name}": value for name, value in scores.items()}


def log_chances(z: Numbers) -> Numbers:
    """Return log p of each class, from predictors by class or from the log odds of the second of two."""
    if z.ndim == 1:
        z = np.column_stack([np.zeros(len(z)), z])
    # Without the largest predictor, so that no exponential overflows.
    shifted = z - z.max(axis=1, keepdims=True)
    logs: Numbers = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


def log_loss(z: Numbers, y: Numbers) -> float:
    """Return the mean of -log p of the true classes; infinity where a class was not in the training rows."""
    if (y < 0).any():
        return float("inf")
    return float(-log_chances(z)[np.arange(len(y)), y.astype(int)].mean())


def auc(z: Numbers, y: Numbers) -> float:
    """Return the probability that a row of class 1 is ranked above a row of class 0; a tie counts half."""
    # The rank of equal predictors is their mean rank.
    _, place, counts = np.unique(z, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positive = int(y.sum())
    above = rank[y > 0].sum() - positive * (positive + 1) / 2
    return float(above / (positive * (len(y) - positive)))
