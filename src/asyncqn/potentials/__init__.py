"""One model per file, and how a saved run makes its model again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncqn.errors import BadInput
from asyncqn.potentials.linear_gaussian import LinearGaussian
from asyncqn.types import Potential


def rebuild(reference: Mapping[str, Any] | None) -> Potential | None:
    """The potential that a `reference()` describes; None where there is nothing to go by."""
    if reference is None:
        return None
    arguments = dict(reference)
    kind = arguments.pop("kind", None)
    if kind == "linear-gaussian":
        arguments["bulk"] = tuple(arguments["bulk"])
        return LinearGaussian.random(**arguments)
    raise BadInput(
        f"this version of asyncqn cannot rebuild a potential of kind {kind!r}: pass the potential."
    )
