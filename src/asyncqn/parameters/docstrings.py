"""Descriptions of parameters, read from the docstrings of classes and functions.

A docstring in NumPy's style has an entry for each parameter:

    h : float, default 0.1
        Step size for the sum U.  More about it.

The first sentence of an entry is the description that help texts and JSON schemas show.  A base class
describes the parameters that its subclasses share.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.M)
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : .*\n((?:[ ]+.*(?:\n|\Z)|\n)+)", re.M)
_SENTENCE_END = re.compile(r"\.(?=\s|$)")


@cache
def descriptions_of(make: Callable[..., Any]) -> dict[str, str]:
    """Return the first sentence about each parameter of a class or a function, without its full stop."""
    function: Any = make.func if isinstance(make, partial) else make
    owners = function.__mro__ if isinstance(function, type) else (function,)
    descriptions: dict[str, str] = {}
    # From the most general class on, so that a class's own words replace those of its bases.
    for owner in reversed(owners):
        descriptions |= entries(vars(owner).get("__doc__") or owner.__doc__ or "")
    return descriptions


def entries(docstring: str) -> dict[str, str]:
    """Return the first sentence of each entry of the section Parameters, by name."""
    _, *parts = _SECTION.split(inspect.cleandoc(docstring))
    sections = dict(zip(parts[::2], parts[1::2]))
    section = sections.get("Parameters", "")
    sentences: dict[str, str] = {}
    for names, text in _ENTRY.findall(section):
        words = " ".join(text.split())
        first = _SENTENCE_END.split(words)[0]
        sentences |= dict.fromkeys(names.split(", "), first)
    return sentences
