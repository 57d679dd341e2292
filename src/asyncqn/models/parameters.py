"""The parameters that several models share, and the recipe that arguments make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from asyncqn.parameters import ARRAY, parameter

Dim = Annotated[int, parameter(ge=1, le=2**31 - 1)]
Size = Annotated[int, parameter(ge=1, le=2**31 - 1)]
Prior = Annotated[float, parameter(ge=0.0)]
Recipe = dict[str, Any] | None
Features = Annotated[Any, ARRAY]
Responses = Annotated[Any, ARRAY]
Offset = Annotated[Any, ARRAY] | None
FeatureNames = Sequence[str] | None
Weights = Annotated[Any, ARRAY] | None


def recipe_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a class method, from which a saved run makes the problem again."""
    values = {name: value for name, value in arguments.items() if name != "cls"}
    return {**values, "dtype": np.dtype(values["dtype"]).name}
