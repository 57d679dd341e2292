"""`as_ratings`: ratings from any object that a user has."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from asyncqn.errors import BadInput, require
from asyncqn.models.sparse_layout import checked_csr
from asyncqn_recommender.data.cache import load
from asyncqn_recommender.data.duplicates import check_policy
from asyncqn_recommender.data.ratings import Ratings, checked


def as_ratings(
    obj: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    duplicates: str | None = None,
    clicks: bool = False,
) -> Ratings:
    """Make `Ratings` from a name or path, a table, a sparse matrix, or (users, items, values).

    Parameters
    ----------
    obj : Ratings, str, path, table, sparse matrix or tuple of arrays
        The ratings. A table is one of pandas, polars or pyarrow. A tuple may have the times as its fourth
        column.
    user : str, optional
        Name of the column with the user; by default it is recognised.
    item : str, optional
        Name of the column with the item; by default it is recognised.
    rating : str, optional
        Name of the column with the rating; by default it is recognised.
    time : str, optional
        Name of the column with the time; by default it is recognised.
    duplicates : "error", "last", "first", "mean" or "sum", optional
        How several ratings of one item by one user are resolved; by default "error", and "sum" for clicks.
    clicks : bool, default False
        Whether rows are clicks: a table may lack ratings and a tuple may be (users, items); each row then
        counts 1.

    Returns
    -------
    Ratings
        The ratings, with sorted tables of ids.

    Examples
    --------
    >>> from asyncqn_recommender import as_ratings
    >>> as_ratings(([1, 1, 2], [10, 20, 20], [5.0, 3.0, 4.0]))
    Ratings(3 ratings of 2 users on 2 items)
    """
    names = {"user": user, "item": item, "rating": rating, "time": time}
    policy = duplicates or ("sum" if clicks else "error")
    check_policy(policy)
    if isinstance(obj, str | os.PathLike):
        return load(obj, **names, duplicates=duplicates, clicks=clicks)
    if hasattr(obj, "columns"):
        return Ratings.from_table(obj, **names, duplicates=policy, clicks=clicks)
    require(
        not any(names.values()),
        f"{type(obj).__name__} has no named columns: leave user= and so on out.",
    )
    if isinstance(obj, Ratings):
        return obj
    if hasattr(obj, "tocsr"):
        return _from_sparse(obj)
    if clicks and isinstance(obj, tuple | list) and len(obj) == 2:
        obj = (*obj, [1.0] * len(obj[0]))
    if isinstance(obj, tuple | list) and len(obj) in (3, 4):
        return Ratings.from_arrays(*obj, duplicates=policy)
    raise BadInput(
        f"Ratings cannot be made from {type(obj).__name__}: give a data frame, an Arrow table, a sparse "
        "matrix, (users, items, ratings), or the name or path of a set."
    )


def _from_sparse(matrix: Any) -> Ratings:
    """Make ratings from a sparse matrix, users x items; ids are row and column numbers.

    Stored entries are ratings, including stored zeros; entries stored twice are added, as SciPy defines it.
    """
    entries = checked_csr(matrix, "the sparse matrix").tocoo()
    require(
        entries.dtype.kind in "fiub",
        f"the sparse matrix holds {entries.dtype}, not real numbers: convert its entries.",
    )
    rows = entries.row.astype(np.int32)
    columns = entries.col.astype(np.int32)
    tables = (np.arange(size) for size in entries.shape)
    return checked(
        Ratings(rows, columns, entries.data.astype(np.float32), *tables), "sum"
    )
