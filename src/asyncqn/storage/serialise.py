"""Parameters as JSON data and back: by registered name, or by "module:Class" where imports are allowed.

What a class, or a function that makes an object, takes is read from its signature; msgspec converts and
checks the values, and a mistake becomes one sentence that names the parameter.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import math
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from types import SimpleNamespace, UnionType
from typing import Any, Literal

import msgspec
import numpy as np

from asyncqn.errors import BadInput

Json = dict[str, Any]


def to_json(value: Any) -> Any:
    """JSON-able data; infinities become the words "inf" and "-inf", which every JSON reader takes."""
    if hasattr(type(value), "__json__"):  # it says itself what its plain data are
        return value.__json__()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
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


def from_json(make: Callable[..., Any], data: Mapping[str, Any], what: str) -> Any:
    """Call `make`, a class or a function, with JSON data; a mistake gives one clear sentence."""
    values = arguments_from_json(make, data, what)
    missing = [name for name in parameters_of(make)[1] if name not in data]
    if missing:
        raise BadInput(f"{what} needs the parameter{'s' * (len(missing) > 1)} {', '.join(missing)}.")
    try:
        return make(**values)
    except TypeError as error:
        raise BadInput(f"{what} has a parameter of the wrong type ({error}).") from None


def arguments_from_json(make: Callable[..., Any], data: Mapping[str, Any], what: str) -> dict[str, Any]:
    """JSON data as arguments of `make`, some of which may still be lacking."""
    known, _ = parameters_of(make)
    for name in data:
        if name not in known:
            raise BadInput(f"{what} has no parameter '{name}'; {suggestion(name, known)}.")
    return {
        name: _converted(_with_infinities(value), known[name], f"{what}: {name}")
        for name, value in data.items()
    }


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, or all of them."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"perhaps '{near[0]}' is meant" if near else f"it knows {', '.join(known)}"


IN_FILES = {"npt": SimpleNamespace(ArrayLike=Sequence[float], DTypeLike=Literal["float64", "float32"])}
"""What NumPy's words for arguments mean in a file."""


@cache
def parameters_of(make: Callable[..., Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The type of every parameter, and the names of those that must be given."""
    function = make.func if isinstance(make, partial) else make
    source = function
    if isinstance(function, type) and not dataclasses.is_dataclass(function):
        source = function.__init__  # type: ignore[misc]
    try:
        hints = typing.get_type_hints(source, localns=IN_FILES)
    except (NameError, TypeError):  # a user's class may name types that only a checker sees
        hints = {}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = [p for p in inspect.signature(make).parameters.values() if p.kind in kinds]
    known = {p.name: _convertible(hints.get(p.name, Any)) for p in parameters}
    return known, tuple(p.name for p in parameters if p.default is inspect.Parameter.empty)


def _convertible(hint: Any) -> Any:
    """The type, or Any where a file can hold nothing of it; dataclasses are made by `from_json` itself."""
    if _dataclasses_in(hint):
        return hint
    try:
        info = msgspec.inspect.type_info(hint)
    except (TypeError, NotImplementedError):
        return Any
    parts = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    return Any if any(isinstance(part, msgspec.inspect.CustomType) for part in parts) else hint


def _with_infinities(value: Any) -> Any:
    """The words of `to_json` as the numbers they stand for."""
    if isinstance(value, Mapping):
        return {key: _with_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_infinities(item) for item in value]
    return float(value) if isinstance(value, str) and value in ("inf", "-inf") else value


def _converted(value: Any, hint: Any, what: str) -> Any:
    for nested in _dataclasses_in(hint):
        if isinstance(value, Mapping):
            return from_json(nested, value, what)
        if value is None and type(None) in typing.get_args(hint):
            return None
    try:
        return msgspec.convert(value, hint, str_keys=True)
    except msgspec.ValidationError as error:
        if choices := _choices(hint):
            raise BadInput(f"{what} must be one of {', '.join(choices)}, not {value!r}.") from None
        raise BadInput(f"{what} {_told(str(error), value)}.") from None


def _choices(hint: Any) -> list[str]:
    """The words of which a value must be one; none where another value would do, too."""
    union = typing.get_origin(hint) in (typing.Union, UnionType)
    parts = [part for part in (typing.get_args(hint) if union else (hint,)) if part is not type(None)]
    words = [str(word) for part in parts for word in typing.get_args(part)]
    return words if all(typing.get_origin(part) is Literal for part in parts) else []


def _dataclasses_in(hint: Any) -> list[type]:
    return [part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part)]  # type: ignore[misc]


_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def _told(error: str, value: Any) -> str:
    """What msgspec said of a value, in our words."""
    expected = re.match(r"Expected `([^`]+)`( of length \d+)?", error)
    if expected is None:
        return f"is not allowed: {error.split(' - at ')[0][0].lower()}{error.split(' - at ')[0][1:]}"
    kinds = [kind for kind in expected[1].split(" | ") if kind != "null"]
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds) + (expected[2] or "")
    if " - at `key`" in error:
        return f"must have {wanted} as every key, not {value!r}"
    return f"must {'hold' if ' - at ' in error else 'be'} {wanted}, not {value!r}"


def is_own(kind: Any) -> bool:
    """Whether a kind names a user's own class, as "module:Class"."""
    return isinstance(kind, str) and ":" in kind


def own_kind(cls: type) -> str | None:
    """ "module:Class" where another process could import it by that name, else None."""
    importable = cls.__module__ != "__main__" and "<" not in cls.__qualname__
    return f"{cls.__module__}:{cls.__qualname__}" if importable else None


def own_parameters(value: Any) -> Json | None:
    """The parameters of a user's dataclass where all of them are plain numbers, texts and lists of these."""
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


def make_own(kind: str, parameters: Mapping[str, Any], what: str, allow_imports: bool) -> Any:
    """Import "module:Class" and make one from JSON data; refused unless imports are allowed."""
    if not allow_imports:
        raise BadInput(
            f"{what} '{kind}' is a class of your own, which must be imported and so runs its code: "
            "say --allow-imports, or allow_imports=True, if you trust it."
        )
    module, _, name = kind.partition(":")
    here = sys.path[:]
    sys.path.insert(0, "")  # a user's module most often lies in the current folder
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"{what} '{kind}' cannot be imported ({error}).") from None
    finally:
        sys.path[:] = here
    if not callable(found):
        raise BadInput(f"{what} '{kind}' is not a class.")
    return from_json(found, parameters, f"{what} '{kind}'")
