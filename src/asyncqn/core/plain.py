"""Parameters as plain data: frozen dataclasses to JSON-able dicts and back, by name, never by code."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncqn.errors import BadInput


def to_plain(value: Any) -> Any:
    """JSON-able data; infinities become the words "inf" and "-inf", which every JSON reader takes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no plain form")


def from_plain(cls: type, data: Mapping[str, Any], what: str) -> Any:
    """Make the dataclass `cls` from plain data; unknown or missing names give one clear sentence."""
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise BadInput(f"{what} has no parameter '{unknown[0]}'; it knows {', '.join(fields)}.")
    missing = [
        name
        for name, f in fields.items()
        if name not in data and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise BadInput(f"{what} needs the parameter{'s' * (len(missing) > 1)} {', '.join(missing)}.")
    words = {"inf": math.inf, "-inf": -math.inf}
    values = {name: words.get(v, v) if isinstance(v, str) else v for name, v in data.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise BadInput(f"{what} has a parameter of the wrong type ({error}).") from None
