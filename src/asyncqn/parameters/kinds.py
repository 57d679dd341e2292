"""Elementary kinds of values: numbers, texts, words, paths, arrays, and unions of kinds.

A `Kind` holds a phrase for the values that it accepts, used in the sentence about a wrong value; a function
that converts or refuses a value; and the type of the value in a file.  `asyncqn.parameters` finds the kind of
an annotation.
"""

from __future__ import annotations

import math
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from types import NoneType
from typing import Any, NamedTuple

import msgspec
import numpy as np

MAX_INTEGER = 2**63 - 1
"""The largest integer: no array can hold a larger one, or has more elements."""


class Refused(ValueError):
    """A value that is not of a kind; its text, if any, describes the value in the sentence."""


class Kind(NamedTuple):
    """The values that a parameter accepts."""

    words: tuple[str, ...]
    """The alternatives, each with its article: ("a positive finite number", "None")."""
    convert: Callable[[Any], Any]
    """Returns the value as the parameter stores it; raises `Refused`."""
    in_files: Any
    """The type in a file, as msgspec spells it; None if files cannot represent it."""

    @property
    def sentence(self) -> str:
        """The accepted values as a phrase."""
        *others, last = self.words
        return f"{', '.join(others)} or {last}" if others else last


def _limits(note: msgspec.Meta) -> dict[str, Any]:
    return {
        at: getattr(note, at)
        for at in ("gt", "ge", "lt", "le")
        if getattr(note, at) is not None
    }


def brief(value: Any) -> str:
    """Return a value as one line of at most 80 characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # the `repr` of a user's class may raise anything
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def that(holds: Callable[[Any], bool], value: Any) -> Any:
    """Return the value if `holds` is true for it; raise `Refused` otherwise."""
    if not holds(value):
        raise Refused
    return value


def none(value: Any) -> None:
    """Accept None alone."""
    if value is not None:
        raise Refused


def boolean(value: Any) -> bool:
    """Accept True and False, including NumPy's, but no numbers."""
    return bool(that(lambda given: isinstance(given, (bool, np.bool_)), value))


def text(patterns: Sequence[str], value: Any) -> str:
    """Accept a text that matches every pattern."""
    import re

    if not isinstance(value, str) or not all(
        re.search(pattern, value) for pattern in patterns
    ):
        raise Refused
    return str(value)


def path(value: Any) -> Any:
    """Accept anything that can be the path of a file."""
    if not isinstance(value, (str, os.PathLike)) or "\0" in str(value):
        raise Refused
    return value


def word(words: tuple[Any, ...], value: Any) -> Any:
    """Accept one of these words."""
    if not isinstance(value, str) or value not in words:
        raise Refused
    return str(value)


def precision(value: Any) -> np.dtype[Any]:
    """Accept float64 or float32, in any of NumPy's spellings."""
    try:
        dtype = np.dtype(value)
    except Exception:  # NumPy raises errors of many kinds here
        raise Refused from None
    allowed = value is not None and dtype in (np.float64, np.float32)
    return that(lambda _: allowed, dtype)  # type: ignore[no-any-return]


def number(of: type[int] | type[float], notes: list[msgspec.Meta]) -> Kind:
    """Return the kind of 64-bit integers, or of real numbers, within the limits."""
    limits: dict[str, Any] = {}
    for note in notes:
        limits |= _limits(note)
    # An annotation without a description, such as a plain float, has no limits.
    infinite = not notes or any((note.extra or {}).get("infinite") for note in notes)
    gt, ge, lt, le = (limits.get(at) for at in ("gt", "ge", "lt", "le"))
    wanted: type[Any] = Integral if of is int else Real

    def convert(value: Any) -> Any:
        # bool is a subclass of int in Python.
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, wanted):
            raise Refused
        try:
            number = of(value)
        except (OverflowError, ValueError):
            raise Refused(f"{brief(value)}, which is too large") from None
        if of is int and not -MAX_INTEGER <= number <= MAX_INTEGER:
            raise Refused(f"{brief(value)}, which has more than 64 bits")
        if notes and (math.isnan(number) or (math.isinf(number) and not infinite)):
            raise Refused
        if (gt is not None and not number > gt) or (
            ge is not None and not number >= ge
        ):
            raise Refused
        if (lt is not None and not number < lt) or (
            le is not None and not number <= le
        ):
            raise Refused(f"{number}, which is more than {le}" if of is int else "")
        return number

    words = (
        _integer_words(ge, le) if of is int else _number_words(gt, ge, lt, le, infinite)
    )
    if not notes:
        words = words[:1]
    return Kind(words, convert, of)


def _integer_words(least: int | None, most: int | None) -> tuple[str, ...]:
    if (
        least is None or most is None or most >= 1000
    ):  # a limit that few ever meet is named only when met
        return (
            ("an integer",) if least is None else (f"an integer of at least {least}",)
        )
    return (f"an integer from {least} to {most}",)


def _number_words(
    gt: Any, ge: Any, lt: Any, le: Any, infinite: bool
) -> tuple[str, ...]:
    low = f"({gt:g}" if gt is not None else f"[{ge:g}" if ge is not None else None
    high = f"{lt:g})" if lt is not None else f"{le:g}]" if le is not None else None
    if low and high:
        return (f"a number in {low}, {high}",)
    # Most parameters must be finite, and the sentence says so.
    finite = "" if infinite else "finite "
    if gt == 0:
        words = f"a positive {finite}number"
    elif low is not None:
        words = (
            f"a {finite}number {'above' if gt is not None else 'of at least'} {low[1:]}"
        )
    else:
        words = f"a {finite}number"
    return (words, "infinity") if infinite else (words,)


def union(kinds: list[Kind]) -> Kind:
    """Return the kind that accepts what any of these accepts; the first that does converts the value."""

    def convert(value: Any) -> Any:
        reason = ""
        for kind in kinds:
            try:
                return kind.convert(value)
            except Refused as refusal:
                reason = reason or str(refusal)
        raise Refused(reason)

    # Two kinds may share a phrase, which is then listed once.
    words = tuple(dict.fromkeys(word for kind in kinds for word in kind.words))
    said = [kind.in_files for kind in kinds if kind.in_files is not None]
    known = said and said != [NoneType]
    return Kind(words, convert, typing.Union[tuple(said)] if known else None)  # noqa: UP007 - at run time


def real_array(value: Any) -> np.ndarray[Any, Any]:
    """Accept an array of real numbers or booleans without masked entries."""
    try:
        array = np.asanyarray(value)
    except (ValueError, TypeError):
        raise Refused("a ragged or unreadable array") from None
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise Refused("a masked array with masked entries: fill or remove them")
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise Refused(f"an array of {array.dtype}")
    return array


def array_like(value: Any) -> Any:
    """Accept an array, a data frame, a tensor or a list; its numbers are checked where it is used."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise Refused("a masked array with masked entries: fill or remove them")
    if getattr(getattr(value, "dtype", None), "kind", "") == "c" or (
        isinstance(value, (list, tuple))
        and any(isinstance(each, complex) for each in value)
    ):
        raise Refused("an array of complex numbers")
    # A dict is not an array, although it has a length.
    keyed = isinstance(value, Mapping) and not hasattr(
        value, "tocsr"
    )  # SciPy's DOK matrix is a dict
    if keyed or isinstance(value, (str, bytes, type)) or not hasattr(value, "__len__"):
        raise Refused
    return value
