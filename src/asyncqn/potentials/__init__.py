"""One model per file, and how a saved run makes its model again.

May import: errors, types, kernels, data, and of core what knows no run (streams,
serialise); not algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncqn.core.serialise import is_own, make_own, own_kind, own_parameters, to_json
from asyncqn.errors import BadInput
from asyncqn.potentials.factorization.implicit_factorization import ImplicitFactorization
from asyncqn.potentials.factorization.matrix_factorization import MatrixFactorization
from asyncqn.potentials.factorization.profiled_factorization import ProfiledFactorization
from asyncqn.potentials.least_squares import LeastSquares
from asyncqn.potentials.linear_gaussian import LinearGaussian
from asyncqn.potentials.logistic import LogisticRegression
from asyncqn.potentials.mixture import Mixture
from asyncqn.potentials.phase_retrieval import PhaseRetrieval
from asyncqn.potentials.poisson import PoissonRegression
from asyncqn.potentials.robust import RobustRegression
from asyncqn.potentials.softmax import SoftmaxRegression
from asyncqn.types import Potential, extra

POTENTIALS: dict[str, Any] = {
    "linear-gaussian": LinearGaussian,
    "logistic-regression": LogisticRegression,
    "matrix-factorization": MatrixFactorization,
    "profiled-factorization": ProfiledFactorization,
    "implicit-factorization": ImplicitFactorization,
    "phase-retrieval": PhaseRetrieval,
    "mixture": Mixture,
    "poisson-regression": PoissonRegression,
    "robust-regression": RobustRegression,
    "least-squares": LeastSquares,
    "softmax-regression": SoftmaxRegression,
}
"""Every model, by its name in files and on the command line.

A model has `example(dtype)`, a small one for tests, and is made again by its `random`, or by its
`from_ratings` where it has no data of its own."""


def reference_of(potential: Potential) -> dict[str, Any] | None:
    """JSON data for `rebuild`: what it says itself, or the plain values of a user's own dataclass."""
    say = extra(potential, "reference")
    if say is not None:
        said = say()
        return None if said is None else dict(to_json(said))
    kind, parameters = own_kind(type(potential)), own_parameters(potential)
    return None if kind is None or parameters is None else {"kind": kind, **parameters}


def rebuild(reference: Mapping[str, Any] | None, *, allow_imports: bool = False) -> Potential | None:
    """The potential that a `reference()` describes; None where there is nothing to go by.

    A user's own class, "module:Class", is imported only where that is allowed.
    """
    if reference is None:
        return None
    arguments = dict(reference)
    kind = arguments.pop("kind", None)
    if is_own(kind):
        return make_own(kind, arguments, "potential", True) if allow_imports else None
    model = POTENTIALS.get(kind)
    if model is None:
        raise BadInput(
            f"this version of asyncqn cannot rebuild a potential of kind {kind!r}: pass the potential."
        )
    if hasattr(model, "from_ratings"):
        return _factorization(model, arguments.pop("source"), arguments)
    made: Potential = model.random(**arguments)
    return made


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
