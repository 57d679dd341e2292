"""`as_ratings`: ratings from any object that a user has."""

from __future__ import annotations

import os
from typing import Any

from asyncqn.errors import BadInput, require
from asyncqn_recommender.data.cache import load
from asyncqn_recommender.data.duplicates import check_policy
from asyncqn_recommender.data.ratings import Ratings


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
    """Make `Ratings` from Ratings, a name or path, pandas, pyarrow, scipy.sparse, or (users, items, values).

    None of these packages is imported here: the module of the type of `obj` identifies the package.

    Parameters
    ----------
    obj : Ratings, str, path, table, sparse matrix or tuple of arrays
        The ratings. A tuple may have the times as its fourth column.
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
    # The whole MRO: a user's subclass of a data frame is a data frame.
    homes = {kind.__module__.partition(".")[0] for kind in type(obj).__mro__}
    if isinstance(obj, str | os.PathLike):
        return load(obj, **names, duplicates=duplicates, clicks=clicks)
    if "pandas" in homes and hasattr(obj, "columns"):
        return Ratings.from_pandas(obj, **names, duplicates=policy, clicks=clicks)
    if "pyarrow" in homes and hasattr(obj, "schema"):
        return Ratings.from_arrow(obj, **names, duplicates=policy, clicks=clicks)
    require(not any(names.values()), f"{type(obj).__name__} has no named columns: leave user= and so on out.")
    if isinstance(obj, Ratings):
        return obj
    if "scipy" in homes and hasattr(obj, "tocoo"):
        return Ratings.from_sparse(obj)
    if clicks and isinstance(obj, tuple | list) and len(obj) == 2:
        obj = (*obj, [1.0] * len(obj[0]))
    if isinstance(obj, tuple | list) and len(obj) in (3, 4):
        return Ratings.from_arrays(*obj, duplicates=policy)
    raise BadInput(
        f"Ratings cannot be made from {type(obj).__name__}: give a data frame, an Arrow table, a sparse "
        "matrix, (users, items, ratings), or the name or path of a set."
    )
