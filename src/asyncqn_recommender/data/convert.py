"""`as_ratings`: ratings from whatever a user has at hand."""

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
    """`Ratings` from Ratings, a name or path, pandas, pyarrow, scipy.sparse, or (users, items, values).

    `user`, `item`, `rating` and `time` name columns of a table or a file.  `duplicates` says what becomes
    of several ratings of one item by one user: "error" (the default), "last", "first", "mean" or "sum".
    clicks: a table may lack ratings and a tuple be (users, items); each row then counts 1, and "sum" is the
    default.  A tuple may have the times as its fourth column.  The type's home package is asked, so that
    none of these packages is imported here.
    """
    names = {"user": user, "item": item, "rating": rating, "time": time}
    policy = duplicates or ("sum" if clicks else "error")
    check_policy(policy)
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
