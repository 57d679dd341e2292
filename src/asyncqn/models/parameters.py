"""The parameters that several models share, described once each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from asyncqn.parameters import ARRAY, Kind, RealArray, Refused, Seed, parameter

Dim = Annotated[int, parameter("How many numbers theta has", ge=1, le=2**31 - 1)]
Size = Annotated[int, parameter("How many observations there are", unit="rows", ge=1, le=2**31 - 1)]
Prior = Annotated[float, parameter("Precision of the Gaussian prior", unit="curvature", ge=0.0)]
Recipe = Annotated[
    dict[str, Any] | None, parameter("The arguments that made it, from which a saved run makes it again")
]
Features = Annotated[Any, ARRAY, parameter("A row of numbers per data point, dense or sparse")]
Responses = Annotated[Any, ARRAY, parameter("One per row")]
Weights = Annotated[Annotated[Any, ARRAY] | None, parameter("How much each row counts; None: all the same")]

# Of ratings
Users = Annotated[RealArray, parameter("The user of each rating, from 0 to n_users - 1")]
Items = Annotated[RealArray, parameter("The item of each rating, from 0 to n_items - 1")]
Values = Annotated[RealArray, parameter("The ratings, or how often a user clicked")]
Count = Annotated[int, parameter("How many there are", ge=1, le=2**31 - 1)]
Rank = Annotated[int, parameter("K: numbers of a user or an item", ge=1, le=10_000)]
Ridge = Annotated[float, parameter("The ridge of a row is prior + alpha times its ratings", gt=0.0)]
Alpha = Annotated[float, parameter("The ridge of a row is prior + alpha times its ratings", ge=0.0)]
Shuffling = Annotated[Seed | None, parameter("Of the order in which rows are kept; None: as given")]
Source = Annotated[str | Mapping[str, Any] | None, parameter("Where the ratings come from, as JSON data")]
Columns = Annotated[RealArray | None, parameter("A factor on the ridge of each column; None: 1")]


def _test_ratings(value: Any) -> Any:
    whole = all(hasattr(value, name) for name in ("users", "items", "values"))
    if value is not None and not whole and not (isinstance(value, (list, tuple)) and len(value) == 3):
        raise Refused
    return value


TestRatings = Annotated[
    Any,
    Kind(("three arrays (users, items, values)", "an object with these", "None"), _test_ratings, None),
    parameter("Ratings held out, for the metric test_rmse"),
]
