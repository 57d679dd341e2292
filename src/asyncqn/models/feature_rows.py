"""Rows of features as a user brings them, dense or sparse, and the sums over them that linear models need.

A sparse matrix is known by what it offers (`tocsr`, then `indptr`, `indices` and `data`), so that nothing of
SciPy is imported.  Rows are read where they lie; only what is not in C order, or not in CSR form, is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.kernels import dense_rows, gram, sparse_rows
from asyncqn.models.sparse_layout import checked_csr
from asyncqn.types import Array, Rows

Loss: TypeAlias = tuple[int, float]
"""Which of `kernels.losses`, and its width."""
Vector: TypeAlias = npt.NDArray[np.float64]

_ENOUGH_ROWS, _ENOUGH_ENTRIES = (4096, 65_536), 16
"""Rows, and entries of a column among them that tell about its mean square: else more rows are looked at."""
_WIDE = 300
"""Columns beyond which x x' is made of products in float32, in half the time: a sample knows fewer digits of
it.  What is beyond the range of float32 leaves the diagonal, which is always float64, as the metric."""


@dataclass(frozen=True, eq=False)
class DenseRows:
    """A matrix in C order, of float64 or float32."""

    X: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[1]

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: Rows) -> DenseRows:
        """Return some of the rows, copied."""
        return DenseRows(self.X[rows])

    def sums(
        self, loss: Loss, y: Vector, weights: Vector, prior: float, theta: Array, rows: Rows, out: Array,
        diagonal: Vector,
    ) -> tuple[bool, float]:  # fmt: skip
        """`kernels.dense_rows.sums`; an empty `out` asks for U alone.

        The gradient costs less than compiling a kernel without it.  At theta = 0, where most runs start, U
        alone needs no column, and none is read.
        """
        X = self.X
        if out.size == 0:
            if not theta[: X.shape[1]].any():
                X, theta = X[:, :0], theta[X.shape[1] :]
            out = np.empty_like(theta)
        room = theta.size + diagonal.size
        found: tuple[bool, float] = dense_rows.sums(
            *loss, X, y, weights, prior, theta, rows, out, diagonal,
            np.zeros(room, theta.dtype), np.zeros(room),
        )  # fmt: skip
        return found

    def second_moments(
        self, loss: Loss, y: Vector, weights: Vector, theta: Array, rows: Rows, block: Rows, S: Vector
    ) -> None:
        """`kernels.dense_rows.second_moments`; the block must be all columns."""
        dtype = np.float32 if theta.size > _WIDE else theta.dtype
        x = np.empty((theta.size, gram.CHUNK), dtype)
        dense_rows.second_moments(*loss, self.X, y, weights, theta, rows, S, x)

    def column_squares(self, weights: Vector) -> tuple[Vector, Vector]:
        """Sums of weight x_j^2, and how many x_j are not 0; of as many rows as show it."""
        out = np.zeros((2, self.shape[1]))
        lacking = np.arange(self.shape[1])
        for rows in (*_ENOUGH_ROWS, len(self.X)):
            if len(lacking) and rows <= len(self.X):
                stride = len(self.X) // rows
                dense_rows.column_squares(self.X, weights, lacking, stride, out[0], out[1])
                lacking = lacking[out[1][lacking] < _ENOUGH_ENTRIES]
        return out[0], out[1]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A matrix of `columns` columns in compressed sparse rows, of float64 or float32."""

    indptr: npt.NDArray[np.integer[Any]]
    indices: npt.NDArray[np.integer[Any]]
    data: Array
    columns: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.columns

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    def take(self, rows: Rows) -> SparseRows:
        """Return some of the rows, copied."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(self.indptr.dtype)
        starts = np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths)
        entries = starts + np.arange(indptr[-1])
        return SparseRows(indptr, self.indices[entries], self.data[entries], self.columns)

    @property
    def arrays(self) -> tuple[Any, Any, Array, int]:
        """Return what kernels take."""
        return self.indptr, self.indices, self.data, self.columns

    def sums(
        self, loss: Loss, y: Vector, weights: Vector, prior: float, theta: Array, rows: Rows, out: Array,
        diagonal: Vector,
    ) -> tuple[bool, float]:  # fmt: skip
        """`kernels.sparse_rows.sums`; an empty `out` asks for U alone."""
        given = (*loss, *self.arrays, y, weights, prior, theta, rows)
        found: tuple[bool, float]
        if out.size:
            found = sparse_rows.sums(*given, out, diagonal, np.zeros(theta.size + diagonal.size))
        else:
            found = sparse_rows.value(*given)
        return found

    def second_moments(
        self, loss: Loss, y: Vector, weights: Vector, theta: Array, rows: Rows, block: Rows, S: Vector
    ) -> None:
        """`kernels.sparse_rows.second_moments` of the columns of the block."""
        places = np.full(self.columns, -1, np.int64)
        own = block[block < self.columns]
        places[own] = np.arange(len(own))
        room = np.empty(self.columns + 1, np.int64), np.empty(self.columns + 1)
        sparse_rows.second_moments(*loss, *self.arrays, y, weights, theta, rows, places, S, *room)

    def column_squares(self, weights: Vector) -> tuple[Vector, Vector]:
        """Sums of weight x_j^2, and how many x_j are not zero."""
        out = np.zeros((2, self.columns))
        sparse_rows.column_squares(self.indptr, self.indices, self.data, weights, out[0], out[1])
        return out[0], out[1]


def feature_rows(X: Any) -> DenseRows | SparseRows:
    """The rows of `X`, checked: a matrix of numbers, or a sparse matrix; float32 stays float32."""
    if isinstance(X, (DenseRows, SparseRows)):
        return X
    if hasattr(X, "tocsr"):
        return _sparse(checked_csr(X, "X"))
    try:
        matrix = plain(X)
    except ValueError:
        raise BadInput("the rows of X have different lengths: X must be a matrix.") from None
    require(
        matrix.ndim == 2,
        f"X must be a matrix with a row for every data point, but it has {matrix.ndim} "
        f"dimension{'s' * (matrix.ndim != 1)}: reshape it to (n_data, n_features).",
    )
    require(matrix.size > 0, f"X is empty, of shape {matrix.shape}: it needs a row and a column.")
    matrix = np.ascontiguousarray(_numbers(matrix, "X"))
    require(_all_finite(matrix), "X contains NaN or infinity: remove or fix those rows.")
    return DenseRows(matrix)


def plain(data: Any) -> npt.NDArray[Any]:
    """An array of `data`; of a frame's columns of numbers and truth values, which NumPy mixes as objects."""
    array = np.asarray(data)
    if array.dtype != object or not hasattr(data, "to_numpy"):
        return array
    kinds: Any = getattr(data, "dtypes", None)
    if all(getattr(kind, "kind", "O") in "biuf" for kind in np.ravel(kinds)):
        array = data.to_numpy(np.float64, na_value=np.nan)
    return array


def one_number_per_row(name: str, given: Any, n: int) -> Vector:
    """The numbers as a vector of float64; `BadInput` where they are not one finite number per row."""
    array = plain(given)
    require(
        array.shape == (n,), f"{name} must have one entry per row of X, {n}, but the shape is {array.shape}."
    )
    require(array.dtype.kind in "biuf", f"{name} must hold numbers, not {array.dtype}: encode them.")
    made = np.ascontiguousarray(array, np.float64)
    require(bool(np.isfinite(made).all()), f"{name} must be finite and not NaN: remove or fix those rows.")
    return made


def _sparse(X: Any) -> SparseRows:
    if not getattr(X, "has_canonical_format", True):
        X = X.copy()
        X.sum_duplicates()  # the square of a sum is not the sum of squares
    n, d = X.shape
    require(n > 0 and d > 0, f"X is empty, of shape {X.shape}: it needs a row and a column.")
    data = np.ascontiguousarray(_numbers(X.data, "X"))
    indptr, indices = np.ascontiguousarray(X.indptr), np.ascontiguousarray(X.indices)
    require(_all_finite(data), "X contains NaN or infinity: remove or fix those rows.")
    return SparseRows(indptr, indices, data, int(d))


def _numbers(array: npt.NDArray[Any], name: str) -> Array:
    """float64 and float32 as they are, whole numbers and booleans as float64."""
    if array.dtype in (np.float64, np.float32):
        return array
    require(
        array.dtype.kind in "biuf",
        f"{name} must hold numbers, best float64 or float32, not {array.dtype}: encode those columns.",
    )
    return array.astype(np.float64)


def _all_finite(array: Array) -> bool:
    """Looked at in parts: a mask of all entries would be large."""
    step = max(1, 1_000_000 // (array.shape[1] if array.ndim == 2 else 1))
    return all(bool(np.isfinite(array[at : at + step]).all()) for at in range(0, len(array), step))
