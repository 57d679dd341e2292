"""The parameters that several models share, described once each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from asyncqn.parameters import ARRAY, parameter

Dim = Annotated[int, parameter(ge=1, le=2**31 - 1)]
Size = Annotated[int, parameter(unit="rows", ge=1, le=2**31 - 1)]
Prior = Annotated[float, parameter(unit="curvature", ge=0.0)]
Recipe = dict[str, Any] | None
Features = Annotated[Any, ARRAY]
Responses = Annotated[Any, ARRAY]
Offset = Annotated[Any, ARRAY] | None
FeatureNames = Sequence[str] | None
Weights = Annotated[Any, ARRAY] | None
