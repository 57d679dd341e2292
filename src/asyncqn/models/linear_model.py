"""The base of linear models: U is a sum of losses of z_i = x_i'theta, and a Gaussian prior.

    U(theta) = sum_i w_i loss(y_i, x_i'theta + intercept + offset_i) + (prior / 2) |theta|^2

Rows are dense or sparse.  The intercept is the last number of theta, and the prior does not apply to it; a
model of several classes has such a vector for each class, one after the other.  Curvature is computed in the
same pass: a summary holds (n / |S|) sum_S w_i loss'' x_i x_i' (for very many columns, of a block of them),
the diagonal of the same sum over all rows, and the number of rows of the sample.  `sampled_metric` makes H0
from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.kernels.gram import pack_upper
from asyncqn.kernels.shuffling import fill_strata
from asyncqn.models.coefficients import NamedCoefficients, names_of_columns
from asyncqn.models.feature_rows import (
    DenseRows,
    Loss,
    SparseRows,
    Terms,
    Vector,
    feature_rows,
    one_number_per_row,
    plain,
)
from asyncqn.models.from_file import FromFile
from asyncqn.models.held_out import HeldOut
from asyncqn.models.one_line import one_line
from asyncqn.models.parameters import (
    Dim,
    FeatureNames,
    Features,
    Offset,
    Prior,
    Recipe,
    Responses,
    Size,
    Weights,
    recipe_of,
)
from asyncqn.models.remote import ArrivingRows, FromServer
from asyncqn.models.sampled_metric import (
    DENSE,
    InverseMetric,
    frequent,
    metric_of,
    rows_for_block,
    rows_for_metric,
)
from asyncqn.models.validation import is_vector, misfit
from asyncqn.parameters import Checked, Precision, Seed, checked, parameter
from asyncqn.types import Array, Rows

_ROWS_PER_DRAW = 65_536
"""Rows that `random` draws at a time, so that its memory stays bounded.  Draws follow each other in the
stream, so another number would make other problems from the same seed."""
_EMPTY: Vector = np.zeros(0)
"""Stands for weights that are all 1, and for a diagonal that is not wanted."""
Model = TypeVar("Model", bound="LinearModel")


@dataclass(frozen=True, eq=False, repr=False)
class LinearModel(NamedCoefficients, FromFile, FromServer, Checked):
    """A sum of losses of x_i'theta with a Gaussian prior; a subclass defines the loss.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_data, n_features)
        The rows, one per data point; NumPy, pandas, polars or SciPy. float32 is kept, and is then the type
        of theta.
    y : array-like of shape (n_data,)
        The responses, one per row: numbers or counts, and labels of any type for the classes of logistic
        and softmax regression.
    prior : float, default 1.0
        Precision of the Gaussian prior of the coefficients, in units of curvature; 0 means no prior.
    recipe : dict, optional
        The arguments from which a saved run rebuilds the problem; set by `random` and by readers of files.
    weights : array-like of shape (n_data,), optional
        Weight of each row; without it, all rows weigh 1.
    intercept : bool, default True
        Whether theta ends with an intercept, to which the prior does not apply.
    offset : array-like of shape (n_data,), optional
        Known term that is added to x'theta of each row, such as the logarithm of an exposure; without it, 0.
        Logistic and softmax regression take none.
    feature_names : sequence of str, optional
        Names of the columns of X; without it, those of a data frame.
    """

    X: Features = field(repr=False)
    y: Responses = field(repr=False)
    prior: Prior = 1.0
    recipe: Recipe = None
    """The arguments of `random`, from which a saved run can rebuild the problem."""
    weights: Weights = field(default=None, repr=False, kw_only=True)
    intercept: bool = field(default=True, kw_only=True)
    offset: Offset = field(default=None, repr=False, kw_only=True)
    feature_names: FeatureNames = field(default=None, repr=False, kw_only=True)
    held_out: HeldOut | None = field(default=None, init=False, repr=False)
    """Held-out rows of a file; see `from_file`."""
    source: ArrivingRows | None = field(default=None, init=False, repr=False)
    """Where rows come from when they are used; see `from_server`."""

    kind: ClassVar[str]
    """The name in `models.PROBLEMS`."""
    sampled_metric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = feature_rows(self.X)
        n = rows.shape[0]
        y = plain(self.y)
        require(
            y.shape == (n,),
            f"y must have one label per row of X, {n}, but has shape {y.shape}.",
        )
        # The dataclass is frozen, so what was checked replaces what was given in this way.
        checked_fields = self.__dict__
        if self.weights is not None:
            checked_fields["weights"] = _checked_weights(self.weights, n)
        if self.offset is not None:
            require(
                self._without_offset is not None,
                f"{type(self).__name__} takes no offset; least squares, robust and Poisson regression do.",
            )
            checked_fields["offset"] = one_number_per_row("offset", self.offset, n)
        names = names_of_columns(self.X, self.feature_names, rows.shape[1])
        checked_fields["feature_names"] = names
        checked_fields["X"] = rows.X if isinstance(rows, DenseRows) else rows
        y = self._checked_responses(y)
        checked_fields["y"] = np.ascontiguousarray(y, np.float64)
        # Computed now, so that an unusable offset is refused here.
        _ = self._responses_and_weights

    def __repr__(self) -> str:
        recipe = self.recipe or {}
        source = recipe.get("data") or recipe.get("url", "")
        optional = {
            "intercept": self.intercept,
            "weights": self.weights is not None,
            "offset": self.offset is not None,
        }
        return one_line(
            self,
            f"{self.X.shape[1]:,} {'sparse ' * isinstance(self.X, SparseRows)}features",
            f"{self._outputs} classes" if self._outputs > 1 else "",
            f"prior {self.prior:g}",
            *self._chosen,
            *(name for name, present in optional.items() if present),
            f"of {source}" if source else "",
        )

    @property
    def _chosen(self) -> tuple[str, ...]:
        """Further parameters, for the representation."""
        return ()

    def _checked_responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return y as numbers; raise `BadInput` unless there is one finite number per row."""
        require(
            y.dtype.kind in "biuf",
            f"y must hold numbers, not {'texts' if y.dtype.kind in 'OUS' else y.dtype}: map yours to numbers.",
        )
        require(
            bool(np.isfinite(y).all()),
            "y contains NaN or infinity: remove or fix those rows.",
        )
        return self._responses(y)

    def _responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return y as the loss needs it; raise `BadInput` where that is impossible."""
        return y

    _without_offset: ClassVar[
        Callable[[Any, Vector, Vector, Vector], tuple[Vector, Vector]] | None
    ] = None
    """Returns responses and weights that give the same loss without an offset, from (y, weights, offset)."""

    @property
    def _loss(self) -> Loss:
        raise NotImplementedError

    @property
    def _outputs(self) -> int:
        """The number of classes of a row: theta holds one vector for each, one after the other."""
        return 1

    @property
    def _typical_weight(self) -> float:
        """A typical second derivative of the loss, used for rows that a sample does not contain."""
        return 1.0

    # -- random problems

    @classmethod
    @checked
    def random(
        cls: type[Model],
        n_data: Size = 10_000,
        dim: Dim = 20,
        condition: Annotated[float, parameter(ge=1.0)] = 10.0,
        correlation: Annotated[float, parameter(gt=-1.0, lt=1.0)] = 0.5,
        signal: Annotated[float, parameter(gt=0.0)] = 2.0,
        scale: Annotated[float, parameter(gt=0.0)] = 1.0,
        prior: Prior = 1.0,
        seed: Seed = 0,
        dtype: Precision = np.float64,
    ) -> Model:
        """Make a problem with correlated Gaussian features, and responses drawn from the model.

        The true theta gives x'theta the standard deviation `signal`, to which all columns contribute equally.

        Parameters
        ----------
        n_data : int, default 10,000
            Number of rows.
        dim : int, default 20
            Number of columns, and of parameters in theta.
        condition : float, default 10.0
            Factor by which the standard deviations of the columns fall, from `scale` to scale / condition.
        correlation : float, default 0.5
            Correlation of neighbouring columns, as in an autoregression.
        signal : float, default 2.0
            Standard deviation of x'theta.
        scale : float, default 1.0
            Standard deviation of the first column.
        prior : float, default 1.0
            Precision of the Gaussian prior.
        seed : int, default 0
            Seed of features and responses.
        dtype : float64 or float32
            Type of the features and of theta.
        """
        recipe = recipe_of(locals())
        # The second word of the key separates this stream from others with the same seed.
        rng = np.random.Generator(np.random.Philox(key=[seed, 0x106]))
        # Columns are scaled after the responses are drawn, so `condition` changes the conditioning and not
        # the labels.
        spread = scale * np.geomspace(1.0, 1.0 / condition, dim)
        # For features with standard deviation 1.
        truth = signal / np.sqrt(dim) * rng.choice([-1.0, 1.0], dim)
        X, y = np.empty((n_data, dim), dtype), np.empty(n_data)
        for first in range(0, n_data, _ROWS_PER_DRAW):
            last = min(first + _ROWS_PER_DRAW, n_data)
            Z = rng.standard_normal((last - first, dim))
            for j in range(1, dim):
                # An autoregression over the columns; every column keeps variance 1.
                Z[:, j] *= np.sqrt(1.0 - correlation**2)
                Z[:, j] += correlation * Z[:, j - 1]
            y[first:last] = cls._drawn((Z * truth).sum(axis=1), rng)
            X[first:last] = Z * spread
        return cls(X, y, prior, recipe, intercept=False)

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Draw responses of the model to the predictor z."""
        raise NotImplementedError

    @classmethod
    def example(cls: type[Model], dtype: str = "float64") -> Model:
        """Return a small problem for tests."""
        return cls.random(60, 5, seed=3, dtype=dtype)

    def reference(self) -> dict[str, Any] | None:
        return None if self.recipe is None else {"kind": self.kind, **self.recipe}

    def predictors(self, theta: npt.NDArray[Any]) -> Vector:
        """Return x'theta + intercept + offset of each row."""
        return HeldOut(self._rows, self.y, self.offset).predictors(theta, self._outputs)

    # -- the members of a problem

    @cached_property
    def _rows(self) -> DenseRows | SparseRows:
        return self.X if isinstance(self.X, SparseRows) else DenseRows(self.X)

    @cached_property
    def _responses_and_weights(self) -> tuple[Vector, Vector]:
        """Responses and weights for the kernels: without an offset, and with empty weights if all are 1."""
        weights: Vector = _EMPTY if self.weights is None else self.weights
        # An offset is folded into responses and weights once, so that kernels need not know it.
        if self.offset is None or self._without_offset is None:
            return self.y, weights
        return self._without_offset(self.y, weights, self.offset)

    @property
    def _y(self) -> Vector:
        return self._responses_and_weights[0]

    @property
    def _weights(self) -> Vector:
        return self._responses_and_weights[1]

    @property
    def _columns(self) -> int:
        """The number of features, plus the intercept."""
        return int(self.X.shape[1]) + self.intercept

    @property
    def dim(self) -> int:
        return self._outputs * self._columns

    @property
    def n_data(self) -> int:
        return int(self.X.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.X.dtype
        return dtype

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_data))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of U(theta) from `rows`; the prior counts once."""
        return self._sums(theta, rows, None, _EMPTY)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        self._sums(theta, rows, out, _EMPTY)

    def grad_with_value(self, theta: Array, rows: Rows, out: Array) -> float:
        """Write the gradient's estimate from `rows` to `out`, and return that of U."""
        return self._sums(theta, rows, out, _EMPTY)

    def _sums(
        self, theta: Array, rows: Rows, out: Array | None, diagonal: Vector
    ) -> float:
        """Return U; write its gradient and the diagonal where there is room."""
        # Compiled code trusts the sizes, so they are compared here first.
        fits = is_vector(theta) and theta.size == self.dim and is_vector(rows, "iu")
        fits = fits and (out is None or (is_vector(out) and out.size == self.dim))
        if not fits:
            raise misfit(self)
        if self.source is not None:
            self._fetch(rows)
        room = theta[:0] if out is None else out
        fits, value = self._kernel_sums(theta, rows, room, diagonal)
        if not fits:
            raise misfit(self)
        return float(value)

    def _kernel_sums(
        self, theta: Array, rows: Rows, out: Array, diagonal: Vector
    ) -> tuple[bool, float]:
        """Return whether sizes fit, and U; write its gradient and the diagonal where there is room."""
        return self._rows.sums(self._terms, theta, rows, out, diagonal)

    def _second_moments(self, theta: Array, rows: Rows, S: Vector) -> None:
        """Add the sum of loss'' x x' to the upper triangle of S, over the columns of the block."""
        self._rows.second_moments(self._terms, theta, rows, self._block, S)

    @property
    def _terms(self) -> Terms:
        return *self._loss, self._y, self._weights, self.prior

    # -- curvature

    @property
    def curvature_size(self) -> int:
        """The length of a summary: the upper triangle of the block of the Hessian, the diagonal, and m."""
        # Fixed for a problem, because a summary travels in messages of one size.
        size = len(self._block)
        return size * (size + 1) // 2 + self.dim + 1

    def grad_with_curvature(
        self,
        theta: Array,
        rows: Rows,
        out: Array,
        curvature: Vector,
        sample: int | None = None,
    ) -> float:
        """Compute `grad_with_value` and the curvature of the same rows; an empty `curvature` skips the
        latter.

        `sample` says that `rows` are part of a sample of this size, on which alone U is minimised for a
        while.  The sample is extended by one pseudo-row per number of theta, which pulls that number to 0,
        because a feature that does not occur in the sample must not diverge.
        """
        n, D = self.n_data, self.dim
        m = n if sample is None else sample
        # A view: the kernel writes the diagonal into the summary itself.
        diagonal = curvature[-1 - D : -1]
        # Without a curvature the slice is empty, and the kernel leaves the diagonal out.
        value = self._sums(theta, rows, out, diagonal)
        if curvature.size:
            curvature[-1] = m
            if size := len(self._block):
                pick = self._picked(rows, len(rows) if sample is None else sample)
                S = np.zeros((size, size))
                self._second_moments(theta, pick, S)
                pack_upper(S, curvature[: -1 - D])
                # Scaled to all rows, as the gradient is.
                curvature[: -1 - D] *= n / len(pick)
        if m < n:
            # The pseudo-rows are scaled to all data, as the rows of the sample are.
            held = n / m * self._unseen
            value += 0.5 * float((held * np.square(theta, dtype=np.float64)).sum())
            out += (held * theta).astype(out.dtype)
        return value

    def _picked(self, rows: Rows, sample: int) -> Rows:
        """Return the rows that contribute to x x': their share of what the whole sample uses."""
        size = len(self._block)
        if size < self._columns:
            # A block of frequent columns needs fewer rows than the metric of all columns.
            wanted = rows_for_block(size, sample)
        else:
            wanted = rows_for_metric(self.n_data, size, sample)
        share = wanted / sample
        # Every stride-th row, one from each stratum, so that sorted data are represented evenly.
        stride = max(1, int(1.0 / share))
        pick = np.empty(-(-len(rows) // stride), np.int64)
        # Seed 0: the same rows of a sample contribute at every version.
        fill_strata(0, stride, 0, len(rows), pick)
        return rows[pick]

    @cached_property
    def _block(self) -> Rows:
        """The columns whose curvature the summary holds in full; see `sampled_metric`."""
        columns, shown = self._columns, self.X.shape[1]
        if columns <= DENSE:
            return np.arange(columns)
        # The diagonal alone: a dense x x' would cost too much, and classes have one matrix for all their
        # columns.
        if self._outputs > 1 or not isinstance(self._rows, SparseRows):
            return np.arange(0)
        # Only sparse rows have frequent and rare columns.
        _, counts = self._column_squares
        return np.append(frequent(counts, self.dim), np.arange(shown, columns))

    @cached_property
    def _column_squares(self) -> tuple[Vector, Vector]:
        return self._rows.column_squares(self._weights)

    @cached_property
    def _unseen(self) -> Vector:
        """The curvature that one more row adds to a feature: the mean of its nonzero x_j^2."""
        squares, counts = self._column_squares
        unseen = np.ones((self._outputs, self._columns))
        # A column without entries keeps 0, and `metric_of` gives it any positive curvature.
        unseen[:, : len(squares)] = squares / np.maximum(counts, 1.0)
        if self._weights.size:
            unseen[:, len(squares) :] = self._mean_weight
        return unseen.reshape(-1) * self._typical_weight

    @cached_property
    def _mean_weight(self) -> float:
        return float(self._weights.mean())

    def inverse_metric_from(
        self, curvature: Vector, step: float = 0.0, batch: int | None = None
    ) -> InverseMetric:
        """Return H0 from a summary of `grad_with_curvature`, or from a mean of such summaries.

        For steps of size `step` on gradients of `batch` rows it is damped by step * (n_data / batch) times
        what one row adds to dim numbers, because a few rows say little about many numbers.
        """
        ridge = np.full((self._outputs, self._columns), self.prior)
        # The prior excludes the intercept.
        ridge[:, self.X.shape[1] :] = 0.0
        damping = 0.0 if batch is None else step * self.n_data / batch * self.dim
        block = self._block if 0 < len(self._block) < self._columns else None
        summary = np.asarray(curvature, np.float64)
        precisions = ridge.reshape(-1) + damping * self._unseen
        n, K = self.n_data, self._outputs
        return metric_of(summary, precisions, self._unseen, n, K, block)


def _checked_weights(weights: Any, n: int) -> Vector:
    vector = one_number_per_row("weights", weights, n)
    sound = bool((vector >= 0.0).all())
    require(sound, "weights must not be negative: leave out rows that do not count.")
    require(bool(vector.any()), "all weights are 0: at least one row must count.")
    return vector
