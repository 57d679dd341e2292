"""The parameters that several potentials share, described once each."""

from __future__ import annotations

from typing import Annotated, Any

from asyncqn.parameters import parameter

Dim = Annotated[int, parameter("How many numbers theta has", ge=1, le=2**31 - 1)]
Size = Annotated[int, parameter("How many observations there are", unit="rows", ge=1, le=2**31 - 1)]
Prior = Annotated[float, parameter("Precision of the Gaussian prior", unit="curvature", ge=0.0)]
Recipe = Annotated[
    dict[str, Any] | None, parameter("The arguments that made it, from which a saved run makes it again")
]
