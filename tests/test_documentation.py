"""Every public name has a NumPy-style docstring that agrees with its signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

import asyncqn
import asyncqn.sklearn
import asyncqn_recommender
from asyncqn.parameters import descriptions_of

PACKAGES = (asyncqn, asyncqn.times, asyncqn.sklearn, asyncqn_recommender)
HEADER = re.compile(r"^(\w+)\n-{3,}$", re.M)
ENTRY = re.compile(r"^([\w*]+(?:, [\w*]+)*) : (.+)$")
NAMES = re.compile(r"^\w+(?:, \w+)*$")
"""Names alone: the description says which base class describes them."""
RESULTS = {"Draws", "Progress", "Reading", "Run", "Samples"}
"""Classes that users receive and do not make: they describe their fields under `Attributes`."""


def public() -> Iterator[tuple[str, Any]]:
    for package in PACKAGES:
        for name in package.__all__:
            thing = getattr(package, name)
            if callable(thing):  # constants have no docstring of their own
                yield f"{package.__name__}.{name}", thing


PUBLIC = dict(public())


def sections(docstring: str) -> dict[str, str]:
    """The text of every section by its title; the summary and what follows it under ""."""
    parts = HEADER.split(inspect.cleandoc(docstring))
    return {
        "": parts[0].strip(),
        **dict(zip(parts[1::2], (text.strip("\n") for text in parts[2::2]))),
    }


def entries(section: str) -> dict[str, tuple[str, str]]:
    """(type and default, description) by name, of a section whose entries are `name : type`."""
    found: dict[str, tuple[str, str]] = {}
    for block in re.split(r"^(?=\S)", section, flags=re.M):
        head, _, description = block.partition("\n")
        if match := ENTRY.match(head):
            found |= dict.fromkeys(
                match[1].split(", "), (match[2], description.strip())
            )
        elif not NAMES.match(head):
            assert not head.strip(), f"{head!r} is no entry of the form 'name : type'"
    return found


def signature(thing: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a call; none for protocols, errors and enumerations, which nobody calls."""
    if isinstance(thing, type) and (
        issubclass(thing, (BaseException, Enum))
        or getattr(thing, "_is_protocol", False)
    ):
        return {}
    return dict(inspect.signature(thing).parameters)


def spelled(default: Any) -> str:
    """A default as a docstring spells it."""
    if isinstance(default, str):
        return f'"{default}"'
    return default.__name__ if isinstance(default, type) else repr(default)


def disagreement(head: str, parameter: inspect.Parameter) -> str | None:
    """What is wrong with the default that an entry states; None where it agrees with the signature."""
    stated = re.search(r", (?:default (.+)|optional)$", head)
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return None
    if parameter.default is inspect.Parameter.empty:
        return f"states {stated[0][2:]!r} but has no default" if stated else None
    if stated is None:
        return "does not state its default"
    opaque = callable(parameter.default) and not isinstance(parameter.default, type)
    factory = "factory" in repr(parameter.default)
    if parameter.default is None or opaque or factory or stated[1] is None:
        return (
            None
            if stated[1] in (None, "None", "{}")
            else f"states {stated[1]}, not None"
        )
    said = stated[1].replace(",", "")
    if said == spelled(parameter.default).replace(",", ""):
        return None
    try:
        return (
            None
            if float(said) == float(parameter.default)
            else f"states {said}, not {parameter.default}"
        )
    except (TypeError, ValueError):
        return f"states {said}, not {spelled(parameter.default)}"


def faults(thing: Any) -> list[str]:
    """Everything in which the docstring of a public name falls short."""
    found = sections(thing.__doc__ or "")
    summary = found[""].partition("\n\n")[0]
    wrong = (
        []
        if summary.endswith(".") and "\n" not in summary
        else ["the summary is no sentence on one line"]
    )
    wanted, result = (
        signature(thing),
        isinstance(thing, type) and thing.__name__ in RESULTS,
    )
    described = entries(found.get("Attributes" if result else "Parameters", ""))
    # A base class describes the parameters that its subclasses share.
    inherited = {} if result else descriptions_of(thing)
    wrong += [
        f"{name} is not described"
        for name in wanted
        if name not in described and name not in inherited
    ]
    if not result:
        wrong += [
            f"{name} is described and does not exist"
            for name in described
            if name not in wanted
        ]
    for name, (head, description) in described.items():
        if not description.endswith((".", ":")):
            wrong.append(f"the description of {name} is no sentence")
        if (
            not result
            and name in wanted
            and (reason := disagreement(head, wanted[name])) is not None
        ):
            wrong.append(f"{name} {reason}")
    returns = not isinstance(thing, type) and inspect.signature(
        thing
    ).return_annotation not in (None, "None")
    if returns and "Returns" not in found:
        wrong.append("it returns something and has no section 'Returns'")
    if ">>> " not in found.get("Examples", ""):
        wrong.append("it has no section 'Examples'")
    return wrong


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_documented_parameter_by_parameter(name: str) -> None:
    assert faults(PUBLIC[name]) == []


class Base:
    """A base.

    Parameters
    ----------
    a, b : float, default 0.5
        Two numbers, such as 0.25.  More about both.
    c : int
        A count;
        it may be large.

    Notes
    -----
    a : no entry
        This is another section.
    """


class Derived(Base):
    """A subclass.

    Parameters
    ----------
    c : int
        A smaller count.
    """


def test_a_description_is_the_first_sentence_and_a_subclass_inherits_it() -> None:
    numbers = "Two numbers, such as 0.25"
    assert descriptions_of(Base) == {
        "a": numbers,
        "b": numbers,
        "c": "A count; it may be large",
    }
    assert descriptions_of(Derived) == {
        "a": numbers,
        "b": numbers,
        "c": "A smaller count",
    }
    assert descriptions_of(lambda x: x) == {}
