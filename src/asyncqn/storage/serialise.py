"""Parameters as JSON data and back: by registered name, or as "module:Class" where imports are allowed.

`to_json` turns objects into plain data; `make_own` is the only function of the package that imports a name
from a file, and only with the user's permission.  `asyncqn.parameters` describes what constructors take.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncqn.errors import BadInput
from asyncqn.parameters import from_json

Json = dict[str, Any]


def to_json(value: Any) -> Any:
    """Return JSON data; infinities and NaN become the words "inf", "-inf" and "nan", as JSON lacks them."""
    if hasattr(type(value), "__json__"):  # the class defines its own plain data
        return value.__json__()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: to_json(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if f.init
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def is_own(kind: Any) -> bool:
    """Return whether a kind names a user's own class, as "module:Class"."""
    return isinstance(kind, str) and ":" in kind


def own_kind(cls: type) -> str | None:
    """Return "module:Class" if another process could import the class by that name, else None."""
    # "<" occurs in the names of classes that were defined inside a function.
    importable = cls.__module__ != "__main__" and "<" not in cls.__qualname__
    return f"{cls.__module__}:{cls.__qualname__}" if importable else None


def own_parameters(value: Any) -> Json | None:
    """Return the parameters of a user's dataclass if all are plain numbers, texts and lists, else None."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    given = [getattr(value, f.name) for f in dataclasses.fields(value) if f.init]
    return to_json(value) if all(_is_plain(item) for item in given) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    if dataclasses.is_dataclass(value):
        return own_parameters(value) is not None
    return value is None or isinstance(value, (bool, int, float, str, np.number))


def make_own(
    kind: str, parameters: Mapping[str, Any], what: str, allow_imports: bool
) -> Any:
    """Import "module:Class" and build one from JSON data; raise `BadInput` unless imports are allowed."""
    if not allow_imports:
        raise BadInput(
            f"{what} '{kind}' is your own class, and importing it runs its code: use --allow-imports, or "
            "allow_imports=True, if you trust it."
        )
    module, _, name = kind.partition(":")
    # Restored afterwards, so that loading a run leaves no trace in the caller's path.
    here = sys.path[:]
    sys.path.insert(0, "")  # the current folder, where a user's module usually is
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"{what} '{kind}' cannot be imported ({error}).") from None
    finally:
        sys.path[:] = here
    if not callable(found):
        raise BadInput(f"{what} '{kind}' is not a class: name it as \"module:Class\".")
    return from_json(found, parameters, f"{what} '{kind}'")
