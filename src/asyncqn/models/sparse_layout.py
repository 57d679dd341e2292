"""Sparse matrices of users, checked before any compiled code reads them.

SciPy checks its arrays when a matrix is made, but not when they are replaced, and its conversions trust them:
with an `indptr` beyond the end of `indices` they read and write memory outside the arrays.
"""

from __future__ import annotations

from typing import Any

from asyncqn.errors import BadInput, require

__all__ = ["checked_csr"]


def checked_csr(matrix: Any, name: str) -> Any:
    """Convert a sparse matrix to CSR form, after checking that its arrays fit its shape.

    Parameters
    ----------
    matrix : sparse matrix or array
        A matrix of any format of SciPy.
    name : str
        The name in messages.

    Returns
    -------
    sparse matrix in CSR form
        `matrix` itself if it is in that form already.
    """
    dimensions = len(matrix.shape)
    require(
        dimensions == 2,
        f"{name} must have two dimensions, but it has {dimensions}.",
    )
    try:
        if matrix.format == "coo":
            # The constructor compares the places with the shape.
            matrix = type(matrix)((matrix.data, (matrix.row, matrix.col)), matrix.shape)
        elif hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        return matrix.tocsr()
    except (TypeError, ValueError, AttributeError, IndexError):
        raise BadInput(
            f"{name} is not a valid sparse matrix: its indptr and indices do not fit its shape."
        ) from None
