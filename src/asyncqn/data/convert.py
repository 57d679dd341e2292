"""`as_ratings`: ratings from whatever a user has at hand."""

from __future__ import annotations

import os
from typing import Any

from asyncqn.data.cache import load
from asyncqn.data.ratings import Ratings
from asyncqn.errors import BadInput


def as_ratings(obj: Any) -> Ratings:
    """`Ratings` from Ratings, a name or path, pandas, pyarrow, scipy.sparse, or (users, items, values).

    The type's home package is asked, so that none of these packages is imported here.
    """
    if isinstance(obj, Ratings):
        return obj
    if isinstance(obj, str | os.PathLike):
        return load(obj)
    homes = {kind.__module__.partition(".")[0] for kind in type(obj).__mro__}
    if "pandas" in homes and hasattr(obj, "columns"):
        return Ratings.from_pandas(obj)
    if "pyarrow" in homes and hasattr(obj, "schema"):
        return Ratings.from_arrow(obj)
    if "scipy" in homes and hasattr(obj, "tocoo"):
        return Ratings.from_sparse(obj)
    if isinstance(obj, tuple | list) and len(obj) == 3:
        return Ratings.from_arrays(*obj)
    raise BadInput(
        f"Ratings cannot be made from {type(obj).__name__}: give a data frame, an Arrow table, a sparse "
        "matrix, (users, items, ratings), or the name or path of a set."
    )
