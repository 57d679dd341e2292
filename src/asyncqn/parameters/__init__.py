"""Public parameters, each described once: its type and range here, its meaning and unit in the docstring.

The annotation of a field of a dataclass, or of an argument of a function, holds type and range:

    h: Annotated[float, parameter(gt=0.0)]

The check, the sentence about a wrong value and the conversion of values in files all follow from it.
Dataclasses derive from `Checked`; functions are decorated with `checked`.  Help texts read the docstring, too
(`parameters.docstrings`).

A bool is not a number.  NumPy scalars are converted to the Python numbers that they hold.  Integers have 64
bits.  A number with `parameter(...)` is finite unless that says otherwise, and never NaN.

Other modules use `parameter`, `Checked` and `checked`; `kind_of` turns an annotation into a `Kind`.

May import: errors.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.parameters import kinds
from asyncqn.parameters.docstrings import descriptions_of
from asyncqn.parameters.kinds import (
    Kind,
    Limits,
    Refused,
    array_like,
    brief,
    real_array,
)

__all__ = [
    "Checked",
    "Kind",
    "Precision",
    "RealArray",
    "Refused",
    "Seed",
    "Workers",
    "array_like",
    "brief",
    "checked",
    "descriptions_of",
    "from_json",
    "parameter",
    "parameters_of",
    "real_array",
    "suggestion",
]

P = ParamSpec("P")
R = TypeVar("R")


class Parameter(NamedTuple):
    """One parameter of a class or of a function."""

    kind: Kind
    hint: Any
    default: Any
    """`inspect.Parameter.empty` if the parameter is required."""

    @property
    def needed(self) -> bool:
        return self.default is inspect.Parameter.empty

    def checked(self, name: str, value: Any) -> Any:
        """Return the converted value; raise `BadInput` if it is not of the parameter's kind."""
        try:
            return self.kind.convert(value)
        except Refused as refusal:
            shown = str(refusal) or brief(value)
            raise BadInput(
                f"{name} must be {self.kind.sentence}, not {shown}."
            ) from None
        except BadInput as error:  # from building an object out of a mapping
            raise BadInput(f"{name}: {error}") from None


def parameter(
    *, words: str | None = None, infinite: bool = False, **limits: Any
) -> Limits:
    """Return the limits of a parameter, for `typing.Annotated`.

    Parameters
    ----------
    words : str, optional
        Description of valid values, where type and limits do not describe them well.
    infinite : bool, default False
        Whether infinity is allowed.
    **limits
        gt, ge, lt and le of numbers, pattern of texts.
    """
    return Limits(words, infinite, **limits)


class Checked:
    """Base of dataclasses whose fields are checked, and converted, when an object is made."""

    def __post_init__(self) -> None:
        for name, about in parameters_of(type(self)).items():  # type: ignore[arg-type]
            # Frozen dataclasses allow no plain assignment.
            value = about.checked(name, getattr(self, name))
            object.__setattr__(self, name, value)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that checks and converts its arguments before the call."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        # At the first call and not at import: annotations may refer to names that are defined later.
        parameters = parameters_of(function)
        for name in bound.arguments.keys() & parameters.keys():
            argument = bound.arguments[name]
            bound.arguments[name] = parameters[name].checked(name, argument)
        return function(*bound.args, **bound.kwargs)

    return call


def from_json(make: Callable[..., Any], data: Mapping[str, Any], what: str) -> Any:
    """Call `make`, a class or a function, with JSON data; raise `BadInput` for any mistake in them."""
    values = arguments_from_json(make, data, what)
    # After the given values: a wrong value is reported before a missing one.
    missing = [
        name
        for name, about in parameters_of(make).items()
        if about.needed and name not in data
    ]
    names = f"parameter{'s' * (len(missing) > 1)} {', '.join(missing)}"
    require(not missing, f"{what} lacks the {names}.")
    try:
        return make(**values)
    except TypeError as error:
        raise BadInput(f"{what} has a parameter of the wrong type ({error}).") from None


def arguments_from_json(
    make: Callable[..., Any], data: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Return JSON data as arguments of `make`, which may be incomplete."""
    parameters = parameters_of(make)
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in parameters:
            near = suggestion(name, parameters)
            raise BadInput(f"{what} has no parameter '{name}'; {near}.")
        about = parameters[name]
        values[name] = _with_infinities(value)
        if about.kind.in_files:
            values[name] = about.checked(f"{what}: {name}", values[name])
    return values


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return a hint: the one of these names that was probably meant, or all of them."""
    near = difflib.get_close_matches(name, list(names), 1)
    if near:
        return f"perhaps '{near[0]}' is meant"
    return f"it knows {', '.join(names)}"


@cache
def parameters_of(make: Callable[..., Any]) -> dict[str, Parameter]:
    """Return every parameter of a class or a function, by name."""
    function: Any = make.func if isinstance(make, partial) else make
    call = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    hints = _hints(inspect.unwrap(call))
    if dataclasses.is_dataclass(function):
        hints |= _hints(function)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = {}
    for name, p in inspect.signature(make).parameters.items():
        if p.kind not in several:
            hint = hints.get(name, Any)
            parameters[name] = Parameter(kind_of(hint), hint, p.default)
    return parameters


def _hints(owner: Any) -> dict[str, Any]:
    """Return the annotations of a class or a function; none if only a type checker can read them."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def kind_of(hint: Any) -> Kind:
    """Return the kind of values that an annotation describes."""
    metas: list[Any] = []
    if typing.get_origin(hint) is Annotated:
        hint, *metas = typing.get_args(hint)
    # Of nested annotations the outer limits win.
    limits = next((m for m in reversed(metas) if isinstance(m, Limits)), None)
    # An explicit kind replaces what the type alone would give.
    own = [meta for meta in metas if isinstance(meta, Kind)]
    if own:
        kind = own[-1]
    elif typing.get_origin(hint) in (typing.Union, UnionType):
        # Limits of `int | None` apply to the int.
        parts = typing.get_args(hint)
        kind = kinds.union(
            [_plain_kind(p, limits) if p in (int, float) else kind_of(p) for p in parts]
        )
    else:
        kind = _plain_kind(hint, limits)
    if limits is not None and limits.words:
        kind = kind._replace(words=(limits.words,))
    return kind


def _plain_kind(hint: Any, limits: Limits | None) -> Kind:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (None, NoneType):
        return Kind(("None",), kinds.none)
    if hint in (int, float):
        return kinds.number(hint, limits)
    if hint is bool:
        return Kind(("True or False",), kinds.boolean)
    if hint is str:
        pattern = None if limits is None else limits.pattern
        return Kind(("a text",), partial(kinds.text, pattern))
    if origin is Literal:
        words = tuple(repr(word) for word in parts)
        return Kind(words, partial(kinds.word, parts))
    if origin in _COLLECTIONS or hint in _COLLECTIONS:
        return _COLLECTIONS[origin or hint](parts)
    if origin is Callable or hint is Callable:
        return Kind(("a function",), kinds.function, in_files=False)
    # From Python 3.11 on, Any is a class, too.
    if isinstance(origin or hint, type) and hint is not Any:
        return _instance(origin or hint)
    return Kind(("anything",), lambda value: value)


def _sequence(parts: tuple[Any, ...]) -> Kind:
    """Return the kind of lists, tuples and vectors of one kind, which become tuples."""
    item = kind_of(parts[0] if parts else Any)

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = real_array(value)
        elif not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            raise Refused
        return tuple(item.convert(each) for each in value)

    words = f"a list whose items are each {item.sentence}"
    return Kind((words,), convert, item.in_files)


def _mapping(parts: tuple[Any, ...]) -> Kind:
    """Return the kind of mappings; an integer key may be a text, because JSON has no other keys."""
    key, item = (kind_of(part) for part in parts or (Any, Any))
    numbered = key.words[0].startswith("an integer")

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Refused
        return {key_of(k): item.convert(v) for k, v in value.items()}

    def key_of(k: Any) -> Any:
        # JSON and TOML have only texts as keys.
        is_text = numbered and isinstance(k, str)
        if is_text and k.isascii() and k.isdigit() and len(k) < 19:
            k = int(k)
        return key.convert(k)

    words = f"a mapping from {key.sentence} to {item.sentence}"
    return Kind((words,), convert, item.in_files)


_COLLECTIONS: dict[Any, Callable[[tuple[Any, ...]], Kind]] = {
    Sequence: _sequence,
    tuple: _sequence,
    list: _sequence,
    Mapping: _mapping,
    dict: _mapping,
}


def _instance(cls: type[Any]) -> Kind:
    """Return the kind of instances of a class; a dataclass accepts a mapping, a protocol any fitting
    object."""
    name = cls.__name__
    words = f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
    # A protocol is checked by its members, because users need not derive from it.
    protocol = getattr(cls, "_is_protocol", False)
    public = [member for member in vars(cls) if not member.startswith("_")]
    members = public if protocol else []

    def convert(value: Any) -> Any:
        if isinstance(value, Mapping) and dataclasses.is_dataclass(cls):
            return from_json(cls, value, name)
        lacking = [member for member in members if not hasattr(value, member)]
        if isinstance(value, type):
            fits = not lacking if protocol else issubclass(value, cls)
            if fits:
                call = f"{value.__name__}(...)"
                raise Refused(f"the class {value.__name__}: create an object, {call}")
        if lacking and lacking != members:
            raise Refused(f"{brief(value)}, which has no {lacking[0]}")
        if lacking or not (protocol or isinstance(value, cls)):
            raise Refused
        return value

    return Kind((words,), convert, dataclasses.is_dataclass(cls))


ARRAY = Kind(("an array",), array_like, in_files=False)
REAL = Kind(("an array of real numbers",), real_array)
RealArray = Annotated[npt.ArrayLike, REAL]
Precision = Annotated[npt.DTypeLike, Kind(("float64 or float32",), kinds.precision)]
Seed = Annotated[int, parameter(ge=0)]
Workers = Annotated[int, parameter(ge=1, le=1_000_000)]
Commits = Annotated[int, parameter(ge=1)]
Evaluate = Annotated[int | None, parameter(ge=0)]
Keep = Annotated[int | None, parameter(ge=1)]
CheckpointEvery = Annotated[
    int | float,
    parameter(
        words="a positive number (an integer counts commits, a float seconds)",
        gt=0,
        infinite=True,
    ),
]
Folder = Annotated[str | Path, Kind(("the path of a folder",), kinds.path)]
File = Annotated[str | Path, Kind(("the path of a file",), kinds.path)]


def _with_infinities(value: Any) -> Any:
    """Return the value with the words of `to_json` for infinities replaced by numbers."""
    if isinstance(value, Mapping):
        return {key: _with_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_infinities(item) for item in value]
    if isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    return value
