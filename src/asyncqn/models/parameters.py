"""The parameters that several models share, described once each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from asyncqn.parameters import ARRAY, parameter

Dim = Annotated[int, parameter("Number of parameters in theta", ge=1, le=2**31 - 1)]
Size = Annotated[
    int, parameter("Number of observations", unit="rows", ge=1, le=2**31 - 1)
]
Prior = Annotated[
    float, parameter("Precision of the Gaussian prior", unit="curvature", ge=0.0)
]
Recipe = Annotated[
    dict[str, Any] | None,
    parameter("Arguments from which a saved run rebuilds the problem"),
]
Features = Annotated[Any, ARRAY, parameter("Rows, one per data point, dense or sparse")]
Responses = Annotated[Any, ARRAY, parameter("Responses, one per row")]
Offset = Annotated[
    Annotated[Any, ARRAY] | None,
    parameter("Added to x'theta of each row, such as a log exposure; None: 0"),
]
FeatureNames = Annotated[
    Sequence[str] | None,
    parameter("Names of the columns of X; None: those of a data frame"),
]
Weights = Annotated[
    Annotated[Any, ARRAY] | None, parameter("Weight of each row; None: 1")
]
