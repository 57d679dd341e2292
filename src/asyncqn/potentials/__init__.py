"""One model per file, and how a saved run makes its model again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncqn.errors import BadInput
from asyncqn.potentials.factorization.matrix_factorization import MatrixFactorization
from asyncqn.potentials.factorization.profiled_factorization import ProfiledFactorization
from asyncqn.potentials.linear_gaussian import LinearGaussian
from asyncqn.potentials.logistic import LogisticRegression
from asyncqn.potentials.mixture import Mixture
from asyncqn.potentials.phase_retrieval import PhaseRetrieval
from asyncqn.types import Potential

FACTORIZATIONS = {
    "matrix-factorization": MatrixFactorization,
    "profiled-factorization": ProfiledFactorization,
}

DRAWN: dict[str, Any] = {
    "phase-retrieval": PhaseRetrieval,
    "mixture": Mixture,
    "logistic-regression": LogisticRegression,
}
"""Models whose `random` makes them again."""


def rebuild(reference: Mapping[str, Any] | None) -> Potential | None:
    """The potential that a `reference()` describes; None where there is nothing to go by."""
    if reference is None:
        return None
    arguments = dict(reference)
    kind = arguments.pop("kind", None)
    if kind == "linear-gaussian":
        arguments["bulk"] = tuple(arguments["bulk"])
        return LinearGaussian.random(**arguments)
    if kind in DRAWN:
        made: Potential = DRAWN[kind].random(**arguments)
        return made
    if kind in FACTORIZATIONS:
        return _factorization(FACTORIZATIONS[kind], arguments.pop("source"), arguments)
    raise BadInput(
        f"this version of asyncqn cannot rebuild a potential of kind {kind!r}: pass the potential."
    )


def _factorization(model: Any, source: Any, arguments: dict[str, Any]) -> Potential:
    """A factorization whose `source` is the name of a stored set of ratings or a path, or a mapping:

    `ratings`: that name; `test_fraction` and `seed`: of `Ratings.split`, where a part is held out.
    """
    from asyncqn.data import load  # readers are not needed by those who only compute

    origin = {"ratings": source} if isinstance(source, str) else source
    if not isinstance(origin, Mapping) or not isinstance(origin.get("ratings"), str):
        raise BadInput(f"the run does not name its ratings ({source!r}): pass the potential.")
    ratings, test = load(origin["ratings"]), None
    if origin.get("test_fraction"):
        ratings, test = ratings.split(float(origin["test_fraction"]), int(origin["seed"]))
    potential: Potential = model.from_ratings(ratings, **arguments, test=test, source=source)
    return potential
