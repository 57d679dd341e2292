"""Sparse matrices of users, checked before any compiled code reads them.

A matrix is recognised by its attributes (`tocsr`, `format`), so SciPy is not imported.  SciPy checks its
arrays when a matrix is made, but not when they are replaced, and its conversions trust them: with an `indptr`
beyond the end of `indices` they read and write memory outside the arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.errors import BadInput, require

__all__ = ["checked_csr"]

_COMPRESSED = {"csr": 0, "csc": 1, "bsr": 0}
"""Formats with `indptr` and `indices`, and the axis of `indptr`."""


def checked_csr(matrix: Any, name: str) -> Any:
    """Convert a sparse matrix to CSR form, after checking that its arrays fit its shape.

    Parameters
    ----------
    matrix : sparse matrix or array
        A matrix of any format with the method `tocsr`.
    name : str
        The name in messages.

    Returns
    -------
    sparse matrix in CSR form
        `matrix` itself if it is in that form already.
    """
    try:
        shape = tuple(int(size) for size in matrix.shape)
        require(
            len(shape) == 2,
            f"{name} must have two dimensions, but it has {len(shape)}.",
        )
        sound = _sound(matrix, shape)
        rows = matrix.tocsr() if sound else None
        # The conversion is checked as well, because formats that we do not know convert themselves.
        sound = sound and (rows is matrix or _sound(rows, shape))
    except BadInput:
        raise
    except (TypeError, ValueError, AttributeError, IndexError):
        sound = False
    require(
        sound,
        f"{name} is not a valid sparse matrix: its indptr and indices do not fit its shape.",
    )
    return rows


def _sound(matrix: Any, shape: tuple[int, ...]) -> bool:
    """Return whether the arrays of a matrix fit its shape; formats made of Python objects need no check."""
    kind = getattr(matrix, "format", "csr")
    if kind in _COMPRESSED:
        # BSR counts blocks of entries, so its shape is divided by that of a block.
        axis, block = (
            _COMPRESSED[kind],
            matrix.data.shape[1:] if kind == "bsr" else (1, 1),
        )
        if any(
            size < 1 or whole % size for size, whole in zip(block, shape, strict=True)
        ):
            return False
        counts = [whole // size for size, whole in zip(block, shape, strict=True)]
        return _compressed(
            matrix.indptr,
            matrix.indices,
            len(matrix.data),
            counts[axis],
            counts[1 - axis],
        )
    if kind == "coo":
        places = (matrix.row, matrix.col)
        return all(
            len(place) == len(matrix.data) and _inside(place, size)
            for place, size in zip(places, shape, strict=True)
        )
    if kind == "dia":
        return bool(
            matrix.data.ndim == 2 and np.shape(matrix.offsets) == matrix.data.shape[:1]
        )
    return True


def _compressed(indptr: Any, indices: Any, stored: int, major: int, minor: int) -> bool:
    if not (_integers(indptr) and len(indptr) == major + 1 and len(indices) == stored):
        return False
    # Stored entries beyond the last row are allowed by SciPy, and never read.
    ends = bool(indptr[0] == 0 and indptr[-1] <= stored)
    return ends and bool((np.diff(indptr) >= 0).all()) and _inside(indices, minor)


def _inside(indices: Any, size: int) -> bool:
    if not _integers(indices):
        return False
    return len(indices) == 0 or (int(indices.min()) >= 0 and int(indices.max()) < size)


def _integers(array: Any) -> bool:
    return (
        isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "iu"
    )
