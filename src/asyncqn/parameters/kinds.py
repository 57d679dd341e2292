"""Elementary kinds of values: numbers, texts, words, paths, arrays, and unions of kinds.

A `Kind` holds a phrase for the values that it accepts, used in the sentence about a wrong value; a function
that converts or refuses a value; and the type of the value in a file.  `asyncqn.parameters` finds the kind of
an annotation.
"""

from __future__ import annotations

import math
import os
import re
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


def brief(value: Any) -> str:
    """Return a value as one line of at most 80 characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # the `repr` of a user's class may raise anything
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def function(value: Any) -> Any:
    """Accept anything that can be called."""
    if not callable(value):
        raise Refused
    return value


def none(value: Any) -> None:
    """Accept None alone."""
    if value is not None:
        raise Refused


def boolean(value: Any) -> bool:
    """Accept True and False, including NumPy's, but no numbers."""
    if not isinstance(value, (bool, np.bool_)):
        raise Refused
    return bool(value)


def text(patterns: Sequence[str], value: Any) -> str:
    """Accept a text that matches every pattern."""
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
    if value is None or dtype not in (np.float64, np.float32):
        raise Refused
    checked: np.dtype[Any] = dtype
    return checked


def number(of: type[int] | type[float], notes: list[msgspec.Meta]) -> Kind:
    """Return the kind of 64-bit integers, or of real numbers, within the limits."""

    def limit(at: str) -> Any:
        limits = [getattr(note, at) for note in reversed(notes)]
        return next((each for each in limits if each is not None), None)

    # An annotation without a description, such as a plain float, has no limits.
    extras = [note.extra or {} for note in notes]
    infinite = not notes or any(extra.get("infinite") for extra in extras)
    gt, ge = limit("gt"), limit("ge")
    lt, le = limit("lt"), limit("le")
    numeric: type[Any] = Integral if of is int else Real

    def convert(value: Any) -> Any:
        # bool is a subclass of int in Python.
        if isinstance(value, (bool, np.bool_)):
            raise Refused
        if not isinstance(value, numeric):
            raise Refused
        try:
            number = of(value)
        except (OverflowError, ValueError):
            raise Refused(f"{brief(value)}, which is too large") from None
        if of is int and not -MAX_INTEGER <= number <= MAX_INTEGER:
            raise Refused(f"{brief(value)}, which has more than 64 bits")
        if notes and math.isnan(number):
            raise Refused
        if not infinite and math.isinf(number):
            raise Refused
        if gt is not None and not number > gt:
            raise Refused
        if ge is not None and not number >= ge:
            raise Refused
        below = (lt is None or number < lt) and (le is None or number <= le)
        if not below:
            raise Refused(f"{number}, which is more than {le}" if of is int else "")
        return number

    if of is int:
        words = _integer_words(ge, le)
    else:
        words = _number_words(gt, ge, lt, le, infinite)
    return Kind(words if notes else words[:1], convert, of)


def _integer_words(least: int | None, most: int | None) -> tuple[str, ...]:
    if least is None:
        return ("an integer",)
    # A limit that few ever meet is named only when met.
    if most is None or most >= 1000:
        return (f"an integer of at least {least}",)
    return (f"an integer from {least} to {most}",)


def _number_words(
    gt: Any, ge: Any, lt: Any, le: Any, infinite: bool
) -> tuple[str, ...]:
    low = ge if gt is None else gt
    high = le if lt is None else lt
    if low is not None and high is not None:
        opening = "[" if gt is None else "("
        closing = "]" if lt is None else ")"
        return (f"a number in {opening}{low:g}, {high:g}{closing}",)
    # Most parameters must be finite, and the sentence says so.
    finite = "" if infinite else "finite "
    words = f"a {finite}number"
    if gt == 0:
        words = f"a positive {finite}number"
    elif low is not None:
        words += f" {'of at least' if gt is None else 'above'} {low:g}"
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
    phrases = [word for kind in kinds for word in kind.words]
    words = tuple(dict.fromkeys(phrases))
    types = [kind.in_files for kind in kinds if kind.in_files is not None]
    if not types or types == [NoneType]:
        return Kind(words, convert, None)
    return Kind(words, convert, typing.Union[tuple(types)])  # noqa: UP007 - at run time


def refuse_masked(value: Any) -> None:
    """Refuse a masked array with masked entries."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise Refused("a masked array with masked entries: fill or remove them")


def real_array(value: Any) -> np.ndarray[Any, Any]:
    """Accept an array of real numbers or booleans without masked entries."""
    try:
        array = np.asanyarray(value)
    except (ValueError, TypeError):
        raise Refused("a ragged or unreadable array") from None
    refuse_masked(array)
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise Refused(f"an array of {array.dtype}")
    return array


def array_like(value: Any) -> Any:
    """Accept an array, a data frame, a tensor or a list; its numbers are checked where it is used."""
    refuse_masked(value)
    if isinstance(value, (list, tuple)):
        is_complex = any(isinstance(number, complex) for number in value)
    else:
        dtype = getattr(value, "dtype", None)
        is_complex = getattr(dtype, "kind", "") == "c"
    if is_complex:
        raise Refused("an array of complex numbers")
    # A dict is not an array, although it has a length.
    if isinstance(value, Mapping) and not hasattr(value, "tocsr"):
        raise Refused  # SciPy's DOK matrix is a dict, too
    if isinstance(value, (str, bytes, type)):
        raise Refused
    if not hasattr(value, "__len__"):
        raise Refused
    return value
