"""The parameters that several models share, described once each."""

from __future__ import annotations

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
Weights = Annotated[Annotated[Any, ARRAY] | None, parameter("How much each row counts; None: all the same")]
