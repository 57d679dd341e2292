"""Labels of classes: numbers and texts as positions in the sorted list of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require

_WANTED = "labels must name classes, as integers or strings, one per row of X"


def classes_of(y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Return the sorted classes, and the position of each label in them; raise `BadInput` for others."""
    if y.dtype == object:  # strings of a data frame
        texts = all(isinstance(label, str) for label in y)
        require(texts, f"{_WANTED}: some are neither.")
        y = y.astype(str)
    require(y.dtype.kind in "biufUS", f"{_WANTED}, not {y.dtype}.")
    if y.dtype.kind == "f":
        finite = bool(np.isfinite(y).all())
        require(finite, "y contains NaN or infinity: remove or fix those rows.")
        broken = y[y != np.round(y)]
        require(
            not len(broken),
            f"{_WANTED}: for numbers such as {broken[:1]} use LeastSquares.",
        )
    classes, numbers = np.unique(y, return_inverse=True)
    return classes, numbers.reshape(-1)


def places_of(
    y: npt.NDArray[Any], classes: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Return the position of each label in the classes; -1 for a label that is none of them."""
    place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return np.where(classes[place] == y, place, -1).astype(np.float64)
