"""Linear models from files: the section [problem] of a job with `data`, rows held out, and their score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from asyncqn.models.data_file import read_columns
from asyncqn.models.feature_rows import Vector, feature_rows
from asyncqn.models.held_out import HeldOut, r2
from asyncqn.models.parameters import Prior, recipe_of
from asyncqn.models.validation import theta_of
from asyncqn.parameters import File, Precision, Seed, checked, parameter
from asyncqn.types import Rows

if TYPE_CHECKING:
    from asyncqn.models.linear_model import LinearModel

Model = TypeVar("Model", bound="LinearModel")


class FromFile:
    """The part of a linear model that reads files and scores held-out rows."""

    held_out: HeldOut | None
    score_name: ClassVar[str] = "r2"
    """Name of the number that `score` returns."""

    @classmethod
    @checked
    def from_file(  # type: ignore[misc]
        cls: type[Model],
        data: File,
        label: str | None = None,
        features: Sequence[str] | None = None,
        weights: str | None = None,
        offset: str | None = None,
        format: Literal["csv", "parquet", "libsvm"] | None = None,
        prior: Prior = 1.0,
        intercept: bool = True,
        holdout: Annotated[float, parameter(ge=0.0, lt=1.0)] = 0.0,
        seed: Seed = 0,
        dtype: Precision = np.float64,
    ) -> Model:
        """Make the problem from a file; `score` scores its held-out rows.

        Parameters
        ----------
        data : path
            A CSV or Parquet file (extra `data`), or a libsvm file (extra `sklearn`).
        label : str
            The column to predict; None for a libsvm file, whose lines begin with the label.
        features : list of str, optional
            The columns to predict from; None: all columns without another role.
        weights, offset : str, optional
            Columns of the weights of rows, and of terms that are added to x'theta.
        format : "csv", "parquet" or "libsvm", optional
            None: by the file's suffix.
        prior : float, default 1.0
            Precision of the Gaussian prior.
        intercept : bool, default True
            Whether theta ends with an intercept, to which the prior does not apply.
        holdout : float, default 0.0
            Share of the rows that are drawn at random and held out.
        seed : int, default 0
            Seed of that draw.
        dtype : float64 or float32
            Type of the features and of theta.

        Returns
        -------
        LinearModel
            The problem.  A saved run of it reads the file again for a replay, and reports if its data
            changed.
        """
        # Every argument, so that a saved run reads the same rows and holds out the same ones.
        recipe = recipe_of(locals())
        # Absolute, because a saved run may be replayed from another folder.
        path = Path(data).absolute()
        recipe["data"] = str(path)
        columns = read_columns(path, format, label, features, weights, offset, dtype)
        rows = feature_rows(columns.X)
        held = held_out_rows(len(rows), holdout, seed)
        # Sorted, so that the training rows keep the order of the file.
        training = np.setdiff1d(np.arange(len(rows)), held)
        problem = cls(
            rows.take(training) if len(held) else rows,
            columns.y[training],
            prior,
            recipe,
            intercept=intercept,
            feature_names=columns.names,
            weights=_part(columns.weights, training),
            offset=_part(columns.offset, training),
        )
        if len(held):
            y = problem._known(columns.y[held])
            own = HeldOut(rows.take(held), y, _part(columns.offset, held))
            object.__setattr__(problem, "held_out", own)
        return problem

    def _known(self: LinearModel, y: npt.NDArray[Any]) -> Vector:  # type: ignore[misc]
        """Return the responses of held-out rows as the loss takes them."""
        return np.ascontiguousarray(self._checked_responses(y), np.float64)

    def score(self: LinearModel, run: Any) -> float | None:  # type: ignore[misc]
        """Return how well a run, or a theta, predicts the held-out rows; None if there are none.

        The score is the accuracy for labels, d2 (the share of the deviance that is explained) for counts, and
        r2 for other numbers.
        """
        theta = theta_of(self, run)
        if self.held_out is None:
            return None
        z = self.held_out.predictors(theta, self._outputs)
        return self._score(z, self.held_out.y)

    def _score(self, z: Vector, y: Vector) -> float:
        return r2(z, y)


def held_out_rows(n: int, share: float, seed: int) -> Rows:
    """Draw a share of n rows at random, but never all, and return them sorted."""
    # The second word of the key separates this stream from others with the same seed.
    rng = np.random.Generator(np.random.Philox(key=[seed, 0x401D]))
    return np.sort(rng.permutation(n)[: min(n - 1, round(share * n))])


def _part(column: npt.NDArray[Any] | None, rows: Rows) -> Vector | None:
    return None if column is None else np.asarray(column[rows], np.float64)
