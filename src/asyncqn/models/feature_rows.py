"""Rows of features as a user passes them, dense or sparse, and the sums over them that linear models need.

A sparse matrix is recognised by its method `tocsr`, so SciPy is not imported.  Rows are read in place; only a
matrix that is not in C order, or not in CSR form, is copied.
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
"""The number of a loss in `kernels.losses`, and its width."""
Vector: TypeAlias = npt.NDArray[np.float64]
Terms: TypeAlias = tuple[int, float, Vector, Vector, float]
"""Loss and width, y, the weights of the rows, and the precision of the prior, as kernels take them."""

_ROWS_EXAMINED = (4096, 65_536)
"""Rows from which the mean square of a column is taken, before all of them are: the first number costs
little, and only columns that are rare need the second."""
_ENTRIES_WANTED = 16
"""Nonzero entries of a column that suffice: their mean square is then known to about a third, enough for a
pseudo-row."""
_FLOAT32_COLUMNS = 300
"""Beyond this number of columns x x' is computed in float32, in half the time: a sample has fewer digits
anyway. If it exceeds the range of float32, the diagonal, which is always float64, serves as the metric."""


@dataclass(frozen=True, eq=False)
class DenseRows:
    """A matrix in C order, in float64 or float32."""

    X: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[1]

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: Rows) -> DenseRows:
        """Return a copy of some of the rows."""
        return DenseRows(self.X[rows])

    def sums(
        self, terms: Terms, theta: Array, rows: Rows, out: Array, diagonal: Vector
    ) -> tuple[bool, float]:
        """Call `kernels.dense_rows.sums`; with an empty `out` only U is needed.

        The gradient costs less than compiling a kernel without it.  At theta = 0, where most runs start, U
        alone does not depend on X, so no column is read.
        """
        X = self.X
        if out.size == 0:
            # Rows without columns: the kernel then sees the intercept alone.
            if not theta[: X.shape[1]].any():
                X, theta = X[:, :0], theta[X.shape[1] :]
            out = np.empty_like(theta)
        # Scratch space for the gradient and, if it is wanted, the diagonal.
        room = theta.size + diagonal.size
        work, fine = np.zeros(room, theta.dtype), np.zeros(room)
        result: tuple[bool, float] = dense_rows.sums(
            X, terms, theta, rows, out, diagonal, work, fine
        )
        return result

    def second_moments(
        self,
        terms: Terms,
        theta: Array,
        rows: Rows,
        block: Rows,
        S: Vector,
    ) -> None:
        """Call `kernels.dense_rows.second_moments`; the block must be all columns."""
        dtype = np.float32 if theta.size > _FLOAT32_COLUMNS else theta.dtype
        x = np.empty((theta.size, gram.CHUNK), dtype)
        dense_rows.second_moments(self.X, terms, theta, rows, S, x)

    def column_squares(self, weights: Vector) -> tuple[Vector, Vector]:
        """Return sums of weight x_j^2 and counts of x_j != 0, from as many rows as are necessary."""
        out = np.zeros((2, self.shape[1]))
        lacking = np.arange(self.shape[1])
        # Rare columns need more rows: only those with too few entries are examined again.
        for rows in (*_ROWS_EXAMINED, len(self.X)):
            if len(lacking) and rows <= len(self.X):
                stride = len(self.X) // rows
                dense_rows.column_squares(
                    self.X, weights, lacking, stride, out[0], out[1]
                )
                lacking = lacking[out[1][lacking] < _ENTRIES_WANTED]
        return out[0], out[1]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A matrix of SciPy in compressed sparse rows, in float64 or float32."""

    matrix: Any

    @property
    def shape(self) -> tuple[int, int]:
        n, d = self.matrix.shape
        return int(n), int(d)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.matrix.dtype
        return dtype

    def take(self, rows: Rows) -> SparseRows:
        """Return a copy of some of the rows."""
        return SparseRows(self.matrix[rows])

    @property
    def arrays(self) -> tuple[Any, Any, Array, int]:
        """The matrix as kernels take it."""
        matrix = self.matrix
        return matrix.indptr, matrix.indices, matrix.data, self.shape[1]

    def sums(
        self, terms: Terms, theta: Array, rows: Rows, out: Array, diagonal: Vector
    ) -> tuple[bool, float]:
        """Call `kernels.sparse_rows.sums`; with an empty `out` only U is computed."""
        result: tuple[bool, float]
        if out.size:
            fine = np.zeros(theta.size + diagonal.size)
            result = sparse_rows.sums(
                self.arrays, terms, theta, rows, out, diagonal, fine
            )
        else:
            result = sparse_rows.value(self.arrays, terms, theta, rows)
        return result

    def second_moments(
        self,
        terms: Terms,
        theta: Array,
        rows: Rows,
        block: Rows,
        S: Vector,
    ) -> None:
        """Call `kernels.sparse_rows.second_moments` for the columns of the block."""
        d = self.shape[1]
        places = np.full(d, -1, np.int64)
        # The intercept, number d of theta, is in the block but not among the columns of the data.
        own = block[block < d]
        # Position of each column in the block; -1 leaves a column out.
        places[own] = np.arange(len(own))
        room = np.empty(d + 1, np.int64), np.empty(d + 1)
        sparse_rows.second_moments(self.arrays, terms, theta, rows, places, S, *room)

    def column_squares(self, weights: Vector) -> tuple[Vector, Vector]:
        """Return sums of weight x_j^2, and counts of x_j != 0."""
        out = np.zeros((2, self.shape[1]))
        sparse_rows.column_squares(self.arrays, weights, out[0], out[1])
        return out[0], out[1]


def feature_rows(X: Any) -> DenseRows | SparseRows:
    """Return the rows of `X`, a matrix or a sparse matrix, after checks; float32 stays float32."""
    if isinstance(X, (DenseRows, SparseRows)):
        return X
    sparse = hasattr(X, "tocsr")
    matrix: Any = checked_csr(X, "X") if sparse else plain(X)
    require(
        matrix.ndim == 2,
        f"X must be a matrix with a row for every data point, but it has {matrix.ndim} "
        f"dimension{'s' * (matrix.ndim != 1)}: reshape it to (n_data, n_features).",
    )
    n, d = matrix.shape
    require(
        n > 0 and d > 0,
        f"X is empty, of shape {matrix.shape}: it needs a row and a column.",
    )
    if not sparse:
        return DenseRows(_finite_numbers(matrix))
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        # The square of a sum is not the sum of the squares.
        matrix.sum_duplicates()
    arrays = _finite_numbers(matrix.data), matrix.indices, matrix.indptr
    # Of the same arrays, where they need no conversion.
    return SparseRows(type(matrix)(tuple(map(np.ascontiguousarray, arrays)), (n, d)))


def plain(data: Any) -> npt.NDArray[Any]:
    """Return `data` as an array; numbers and booleans of a data frame, which NumPy mixes as objects, as
    float64."""
    try:
        array = np.asarray(data)
    except (ValueError, TypeError):
        raise BadInput(
            "an array is ragged or cannot be read: give rows of one length."
        ) from None
    if array.dtype != object or not hasattr(data, "to_numpy"):
        return array
    # A frame of integers and booleans becomes an array of objects, although each column is numeric.
    kinds: Any = getattr(data, "dtypes", None)
    if all(getattr(kind, "kind", "O") in "biuf" for kind in np.ravel(kinds)):
        array = data.to_numpy(np.float64, na_value=np.nan)
    return array


def one_number_per_row(name: str, given: Any, n: int) -> Vector:
    """Return the numbers as a vector of float64; raise `BadInput` unless there is one finite number per
    row."""
    array = plain(given)
    require(
        array.shape == (n,),
        f"{name} must have one entry per row of X, {n}, but the shape is {array.shape}.",
    )
    require(
        array.dtype.kind in "biuf",
        f"{name} must hold numbers, not {array.dtype}: encode them.",
    )
    vector = np.ascontiguousarray(array, np.float64)
    require(
        bool(np.isfinite(vector).all()),
        f"{name} must be finite and not NaN: remove or fix those rows.",
    )
    return vector


def _finite_numbers(array: npt.NDArray[Any]) -> Array:
    """Return an array in C order: float64 and float32 unchanged, integers and booleans as float64."""
    require(
        array.dtype.kind in "biuf",
        f"X must hold numbers, best float64 or float32, not {array.dtype}: encode those columns.",
    )
    if array.dtype not in (np.float64, np.float32):
        array = array.astype(np.float64)
    # C order, because kernels read whole rows.
    array = np.ascontiguousarray(array)
    # In parts: a mask of all entries would be large.
    step = max(1, 1_000_000 // max(1, array[:1].size))
    parts = (array[first : first + step] for first in range(0, len(array), step))
    require(
        all(bool(np.isfinite(part).all()) for part in parts),
        "X contains NaN or infinity: remove or fix those rows.",
    )
    return array
