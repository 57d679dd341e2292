"""The parameters that factorizations and the estimator share, described once each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from asyncqn.parameters import Kind, RealArray, Refused, Seed, parameter

Users = RealArray
Items = RealArray
Values = RealArray
Count = Annotated[int, parameter(ge=1, le=2**31 - 1)]
Rank = Annotated[int, parameter(ge=1, le=10_000)]
Ridge = Annotated[float, parameter(gt=0.0)]
Alpha = Annotated[float, parameter(ge=0.0)]
Confidence = Annotated[float, parameter(gt=0.0)]
Shuffling = Seed | None
Source = str | Mapping[str, Any] | None
Columns = RealArray | None
ListLength = Annotated[int, parameter(ge=1)]
Policy = Literal["error", "last", "first", "mean", "sum"] | None


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
]
