"""Public parameters, each described once: its type, range and unit here, its meaning in the docstring.

The annotation of a field of a dataclass, or of an argument of a function, holds type, range and unit:

    h: Annotated[float, parameter(unit="1 / curvature", gt=0.0)]

The check, the sentence about a wrong value, the conversion of values in files and the JSON schema of job
files all follow from it.  Dataclasses derive from `Checked`; functions are decorated with `checked`.  What a
parameter means stands in the docstring alone, where help texts read it, too (`parameters.docstrings`).

A bool is not a number.  NumPy scalars are converted to the Python numbers that they hold.  Integers have 64
bits.  A number with `parameter(...)` is finite unless that says otherwise, and never NaN.

Read `parameter`, `Checked` and `checked` first: they are what other modules use.  `kind_of` turns an
annotation into a `Kind`, which converts or refuses a value (`parameters.kinds`).

May import: errors.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial, wraps
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, is_count, require
from asyncqn.parameters import kinds
from asyncqn.parameters.docstrings import descriptions_of
from asyncqn.parameters.kinds import Kind, Refused, array_like, brief, real_array

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
    "check_seed",
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
    *,
    unit: str | None = None,
    words: str | None = None,
    infinite: bool = False,
    **limits: Any,
) -> msgspec.Meta:
    """Return the limits of a parameter, for `typing.Annotated`.

    Parameters
    ----------
    unit : str, optional
        Unit of a number.
    words : str, optional
        Description of valid values, where type and limits do not describe them well.
    infinite : bool, default False
        Whether infinity is allowed.
    **limits
        gt, ge, lt and le of numbers, pattern of texts, as in `msgspec.Meta`.

    Returns
    -------
    msgspec.Meta
        The annotation.
    """
    return msgspec.Meta(
        extra={"words": words, "infinite": infinite},
        extra_json_schema=None if unit is None else {"unit": unit},
        **limits,
    )


class Checked:
    """Base of dataclasses whose fields are checked, and converted, when an object is made."""

    def __post_init__(self) -> None:
        for name, about in fields_of(type(self)).items():  # type: ignore[arg-type]
            # Frozen dataclasses allow no plain assignment.
            object.__setattr__(self, name, about.checked(name, getattr(self, name)))


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that checks and converts its arguments before the call."""
    signature = inspect.signature(function)

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> R:
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        # At the first call and not at import: annotations may refer to names that are defined later.
        described = parameters_of(function)
        for name in bound.arguments.keys() & described.keys():
            bound.arguments[name] = described[name].checked(name, bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    return called


def from_json(make: Callable[..., Any], data: Mapping[str, Any], what: str) -> Any:
    """Call `make`, a class or a function, with JSON data; raise `BadInput` for any mistake in them."""
    values = arguments_from_json(make, data, what)
    # After the given values: a wrong value is reported before a missing one.
    missing = [
        name
        for name, about in parameters_of(make).items()
        if about.needed and name not in data
    ]
    if missing:
        raise BadInput(
            f"{what} lacks the parameter{'s' * (len(missing) > 1)} {', '.join(missing)}."
        )
    try:
        return make(**values)
    except TypeError as error:
        raise BadInput(f"{what} has a parameter of the wrong type ({error}).") from None


def arguments_from_json(
    make: Callable[..., Any], data: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Return JSON data as arguments of `make`, which may be incomplete."""
    known, values = parameters_of(make), {}
    for name, value in data.items():
        if name not in known:
            raise BadInput(
                f"{what} has no parameter '{name}'; {suggestion(name, known)}."
            )
        said = _with_infinities(value)
        # Where no type can describe the value in a file, `make` itself must interpret it.
        if known[name].kind.in_files is not None:
            said = known[name].checked(f"{what}: {name}", said)
        values[name] = said
    return values


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint: the known name that was probably meant, or all known names."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"perhaps '{near[0]}' is meant" if near else f"it knows {', '.join(known)}"


@cache
def fields_of(cls: type[Any]) -> dict[str, Parameter]:
    """Return the fields that the constructor of a dataclass takes, by name."""
    # Fields that the class computes itself need no check.
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    return {name: Parameter(kind_of(_hint(cls.__mro__, name)), None) for name in names}


@cache
def parameters_of(make: Callable[..., Any]) -> dict[str, Parameter]:
    """Return every parameter of a class or a function, by name."""
    function: Any = make.func if isinstance(make, partial) else make
    call = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    owners: Iterable[Any] = [inspect.unwrap(call)]
    if isinstance(function, type) and dataclasses.is_dataclass(function):
        owners = [*function.__mro__, *owners]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = [p for p in inspect.signature(make).parameters.values() if p.kind in kinds]
    return {p.name: Parameter(kind_of(_hint(owners, p.name)), p.default) for p in found}


@cache
def file_type(make: Callable[..., Any], kind: str | None = None) -> Any:
    """Return the msgspec structure of an object in a file: its parameters, and its kind."""
    fields: list[Any] = []
    descriptions = descriptions_of(make)
    for name, about in parameters_of(make).items():
        hint = Any if about.kind.in_files is None else about.kind.in_files
        if name in descriptions:
            hint = Annotated[hint, msgspec.Meta(description=descriptions[name])]
        endless = isinstance(about.default, float) and not math.isfinite(
            about.default
        )  # absent from JSON
        if about.needed:
            fields.append((name, hint))
        elif isinstance(about.default, int | float | str | None) and not endless:
            fields.append((name, hint, about.default))
        else:
            fields.append((name, hint | msgspec.UnsetType, msgspec.UNSET))
    return msgspec.defstruct(
        (kind or make.__name__).replace("-", "_"),
        fields,
        kw_only=True,
        tag_field="kind" if kind else None,
        tag=kind,
        forbid_unknown_fields=True,
    )


def _hint(owners: Iterable[Any], name: str) -> Any:
    """Return the annotation of a parameter; Any if there is none, or if only a type checker can read it."""
    for owner in owners:
        own = (
            vars(owner).get("__annotations__", {})
            if isinstance(owner, type)
            else owner.__annotations__
        )
        if name in own:
            # Resolved in the module of the class that declares it: annotations are texts, and a subclass may
            # live elsewhere.
            one, space = (
                SimpleNamespace(__annotations__={name: own[name]}),
                vars(sys.modules[owner.__module__]),
            )
            try:
                return typing.get_type_hints(one, space, include_extras=True)[name]
            except (NameError, TypeError, AttributeError):
                return Any
    return Any


def kind_of(hint: Any) -> Kind:
    """Return the kind of values that an annotation describes."""
    metas: list[Any] = []
    if typing.get_origin(hint) is Annotated:
        hint, *metas = typing.get_args(hint)
    parts = typing.get_args(hint)
    # An explicit kind replaces what the type alone would give.
    own = [meta for meta in metas if isinstance(meta, Kind)]
    notes = [meta for meta in metas if isinstance(meta, msgspec.Meta)]
    if not own and typing.get_origin(hint) in (
        typing.Union,
        UnionType,
    ):  # limits apply to its numbers
        # Limits of `int | None` apply to the int.
        numbers = [part in (int, float) and bool(notes) for part in parts]
        kind = kinds.union(
            [
                kind_of(Annotated[part, *notes] if yes else part)
                for part, yes in zip(parts, numbers)
            ]
        )
        in_files = kind.in_files if any(numbers) else _annotated(kind.in_files, notes)
    else:
        kind = own[-1] if own else _plain_kind(hint, notes)
        in_files = _annotated(kind.in_files, notes)
    for note in notes:
        words = (note.extra or {}).get("words")
        if words:
            kind = kind._replace(words=(words,))
    return kind._replace(in_files=in_files)


def _annotated(hint: Any, notes: list[msgspec.Meta]) -> Any:
    return Annotated[hint, *notes] if notes and hint is not None else hint


def _plain_kind(hint: Any, notes: list[msgspec.Meta]) -> Kind:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return Kind(("anything",), lambda value: value, Any)
    if hint in (None, NoneType):
        return Kind(("None",), kinds.none, NoneType)
    if hint in (int, float):
        return kinds.number(hint, notes)
    if hint is bool:
        return Kind(("True or False",), kinds.boolean, bool)
    if hint is str:
        return Kind(
            ("a text",),
            partial(kinds.text, [note.pattern for note in notes if note.pattern]),
            str,
        )
    if origin is Literal:
        return Kind(
            tuple(repr(word) for word in parts), partial(kinds.word, parts), hint
        )
    if origin in _COLLECTIONS or hint in _COLLECTIONS:
        return _COLLECTIONS[origin or hint](parts)
    if origin is Callable or hint is Callable:
        return Kind(("a function",), partial(kinds.that, callable), None)
    if isinstance(origin or hint, type):
        return _instance(origin or hint)
    return Kind(("anything",), lambda value: value, Any)


# -- the kinds


def _sequence(parts: tuple[Any, ...]) -> Kind:
    """Return the kind of lists, tuples and vectors of one kind, which become tuples."""
    item = kind_of(parts[0] if parts else Any)

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = real_array(value)
        elif not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            raise Refused
        return tuple(item.convert(each) for each in value)

    many = item.in_files
    return Kind(
        (f"a list whose items are each {item.sentence}",),
        convert,
        many and tuple[many, ...],  # type: ignore[valid-type]
    )


def _tuple(parts: tuple[Any, ...]) -> Kind:
    """Return the kind of tuples of given kinds, or of any length of one kind."""
    if parts[-1] is Ellipsis:
        return _sequence(parts)
    kinds = [kind_of(part) for part in parts]

    def convert(value: Any) -> Any:
        if (
            not isinstance(value, Sequence)
            or isinstance(value, (str, bytes))
            or len(value) != len(kinds)
        ):
            raise Refused
        return tuple(kind.convert(each) for kind, each in zip(kinds, value))

    told = [kind.in_files for kind in kinds]
    each = " and ".join(dict.fromkeys(kind.sentence for kind in kinds))
    words = f"a list of {len(kinds)} items, each {each}"
    return Kind((words,), convert, None if None in told else tuple[tuple(told)])  # type: ignore[misc]


def _mapping(parts: tuple[Any, ...]) -> Kind:
    """Return the kind of mappings; an integer key may be a text, because JSON has no other keys."""
    key, item = (kind_of(part) for part in parts or (Any, Any))
    # JSON and TOML have only texts as keys.
    numbered = key.words[0].startswith("an integer")

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Refused
        told = {
            int(k) if numbered and _is_digits(k) else k: v for k, v in value.items()
        }
        return {key.convert(k): item.convert(v) for k, v in told.items()}

    told = f"a mapping from {key.sentence} to {item.sentence}"
    return Kind((told,), convert, item.in_files and dict[key.in_files, item.in_files])  # type: ignore[name-defined]


def _is_digits(key: Any) -> bool:
    return isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 19


_COLLECTIONS: dict[Any, Callable[[tuple[Any, ...]], Kind]] = {
    Sequence: _sequence,
    tuple: _tuple,
    list: _sequence,
    Mapping: _mapping,
    dict: _mapping,
}


def _instance(cls: type[Any]) -> Kind:
    """Return the kind of instances of a class; a dataclass accepts a mapping, a protocol any fitting
    object."""
    name, protocol = cls.__name__, getattr(cls, "_is_protocol", False)
    words = f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
    members = (
        [each for each in vars(cls) if not each.startswith("_")] if protocol else []
    )

    def convert(value: Any) -> Any:
        if isinstance(value, Mapping) and dataclasses.is_dataclass(cls):
            return from_json(cls, value, name)
        # A protocol is checked by its members, because users need not derive from it.
        lacking = [each for each in members if not _has(value, each)]
        if isinstance(value, type) and (
            not lacking if protocol else issubclass(value, cls)
        ):
            raise Refused(
                f"the class {value.__name__}: create an object, {value.__name__}(...)"
            )
        if lacking:
            raise Refused(
                ""
                if lacking == members
                else f"{brief(value)}, which has no {lacking[0]}"
            )
        return (
            value
            if protocol
            else kinds.that(lambda given: isinstance(given, cls), value)
        )

    return Kind(
        (words,), convert, file_type(cls) if dataclasses.is_dataclass(cls) else None
    )


def _has(value: Any, name: str) -> bool:
    """Return whether an object has a member; a property that raises counts as present."""
    try:
        getattr(value, name)
    except AttributeError:
        return False
    except (
        Exception
    ):  # a user's property may raise anything, and reports it where it is used
        return True
    return True


ARRAY = Kind(("an array",), array_like, None)
REAL = Kind(("an array of real numbers",), real_array, tuple[float, ...])
RealArray = Annotated[npt.ArrayLike, REAL]
Precision = Annotated[
    npt.DTypeLike,
    Kind(("float64 or float32",), kinds.precision, Literal["float64", "float32"]),
]
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
Folder = Annotated[str | Path, Kind(("the path of a folder",), kinds.path, str)]
File = Annotated[str | Path, Kind(("the path of a file",), kinds.path, str)]


def _with_infinities(value: Any) -> Any:
    """Return the value with the words of `to_json` for infinities replaced by numbers."""
    if isinstance(value, Mapping):
        return {key: _with_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_infinities(item) for item in value]
    return (
        float(value) if isinstance(value, str) and value in ("inf", "-inf") else value
    )


def check_seed(seed: int) -> int:
    """Return the seed as a Python integer; `BadInput` unless it is from 0 to 2^63 - 1, as Philox takes."""
    fits = is_count(seed, 0) and seed < 2**63
    require(fits, f"seed must be an integer from 0 to 2**63 - 1, not {seed!r}.")
    return int(seed)
