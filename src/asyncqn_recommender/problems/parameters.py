"""The parameters that factorizations and the estimator share, described once each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from asyncqn.parameters import Kind, RealArray, Refused, Seed, parameter

Users = Annotated[
    RealArray, parameter("The user of each rating, from 0 to n_users - 1")
]
Items = Annotated[
    RealArray, parameter("The item of each rating, from 0 to n_items - 1")
]
Values = Annotated[RealArray, parameter("The ratings, or how often a user clicked")]
Count = Annotated[int, parameter("Number of users, or of items", ge=1, le=2**31 - 1)]
Rank = Annotated[
    int, parameter("K: number of factors of a user or an item", ge=1, le=10_000)
]
Ridge = Annotated[
    float, parameter("The ridge of a row is prior + alpha times its ratings", gt=0.0)
]
Alpha = Annotated[
    float, parameter("The ridge of a row is prior + alpha times its ratings", ge=0.0)
]
Confidence = Annotated[
    float, parameter("A click of strength r counts 1 + r times it", gt=0.0)
]
Shuffling = Annotated[
    Seed | None, parameter("Seed of the order in which rows are stored; None: as given")
]
Source = Annotated[
    str | Mapping[str, Any] | None,
    parameter("Where the ratings come from, as JSON data"),
]
Columns = Annotated[
    RealArray | None, parameter("A factor on the ridge of each column; None: 1")
]
ListLength = Annotated[int, parameter("Length of a list of items", ge=1)]
ExcludeSeen = Annotated[
    bool, parameter("Whether to leave out items that the user has rated")
]
Policy = Annotated[
    Literal["error", "last", "first", "mean", "sum"] | None,
    parameter(
        "How several ratings of one item by one user are resolved; None: error, or sum for clicks"
    ),
]


def _test_ratings(value: Any) -> Any:
    whole = all(hasattr(value, name) for name in ("users", "items", "values"))
    if (
        value is not None
        and not whole
        and not (isinstance(value, (list, tuple)) and len(value) == 3)
    ):
        raise Refused
    return value


TestRatings = Annotated[
    Any,
    Kind(
        ("three arrays (users, items, values)", "an object with these", "None"),
        _test_ratings,
        None,
    ),
    parameter("Held-out ratings, for the metric test_rmse"),
]
