"""The parameters that several models share, described once each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from asyncqn.parameters import ARRAY, parameter

Dim = Annotated[int, parameter("How many numbers theta has", ge=1, le=2**31 - 1)]
Size = Annotated[int, parameter("How many observations there are", unit="rows", ge=1, le=2**31 - 1)]
Prior = Annotated[float, parameter("Precision of the Gaussian prior", unit="curvature", ge=0.0)]
Recipe = Annotated[
    dict[str, Any] | None, parameter("The arguments that made it, from which a saved run makes it again")
]
Features = Annotated[Any, ARRAY, parameter("A row of numbers per data point, dense or sparse")]
Responses = Annotated[Any, ARRAY, parameter("One per row")]
Offset = Annotated[
    Annotated[Any, ARRAY] | None, parameter("Added to x'theta of each row, such as a log exposure; None: 0")
]
FeatureNames = Annotated[
    Sequence[str] | None,
    parameter("Names of the columns of X; None: those of a data frame"),
]
Weights = Annotated[Annotated[Any, ARRAY] | None, parameter("How much each row counts; None: all the same")]
