"""Models, one per file, and the functions that rebuild the model of a saved run.

Reading order: most models derive from `linear_model`, with `feature_rows` (dense and sparse rows) and
`sampled_metric` (its curvature); `logistic` is an example.  `linear_gaussian` stands alone.  `from_file` and
`data_file` read rows from files, `remote` and `server` rows of a data server.  `adapters/` holds the problems
that users bring.

May import: errors, types, parameters, kernels, storage, registry, columns, and of core what knows no run
(streams); not algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from asyncqn.errors import BadInput
from asyncqn.parameters import from_json
from asyncqn.registry import Registry
from asyncqn.storage.serialise import (
    is_own,
    make_own,
    own_kind,
    own_parameters,
    to_json,
)
from asyncqn.types import Problem, extra

PROBLEMS = Registry(
    {
        "linear-gaussian": "asyncqn.models.linear_gaussian:LinearGaussian",
        "logistic-regression": "asyncqn.models.logistic:LogisticRegression",
        "poisson-regression": "asyncqn.models.poisson:PoissonRegression",
        "robust-regression": "asyncqn.models.robust:RobustRegression",
        "least-squares": "asyncqn.models.least_squares:LeastSquares",
        "softmax-regression": "asyncqn.models.softmax:SoftmaxRegression",
    },
    group="asyncqn.problems",
)
"""Every model, by its name in files and on the command line; other packages add theirs as entry points.

A model has a class method `example(dtype)`, which makes a small one for tests.  A section [problem] and a
saved run build it with its `random`; if its data are in a file, with its `from_file`, or its `from_stored`
and `from_source`."""


def reference_of(problem: Problem) -> dict[str, Any] | None:
    """Return JSON data for `rebuild`: the problem's own, or the plain values of a user's dataclass."""
    # A problem's own description wins over what can be guessed from its fields.
    describe = extra(problem, "reference")
    if describe is not None:
        reference = describe()
        return None if reference is None else dict(to_json(reference))
    # A class that no other process could import, or with arrays among its fields, cannot be described.
    kind, parameters = own_kind(type(problem)), own_parameters(problem)
    return None if kind is None or parameters is None else {"kind": kind, **parameters}


def own_problem(
    kind: str, arguments: Mapping[str, Any], *, allow_imports: bool
) -> Problem:
    """Call a user's class or function "module:name" with plain arguments and return the problem.

    A problem that does not describe itself gets a `reference` to what made it, so that a saved run of a job
    file can be replayed.
    """
    problem: Problem = make_own(kind, arguments, "problem", allow_imports)
    if reference_of(problem) is None:
        reference: Any = partial(dict, {"kind": kind, **arguments})
        # The object may accept no further attributes.
        with suppress(AttributeError, TypeError):
            object.__setattr__(problem, "reference", reference)
    return problem


def rebuild(
    reference: Mapping[str, Any] | None, *, allow_imports: bool = False
) -> Problem | None:
    """Return the problem that a `reference()` describes, or None where it describes none.

    A user's own class, "module:Class", is imported only where that is allowed.
    """
    if reference is None:
        return None
    arguments = dict(reference)
    kind = arguments.pop("kind", None)
    if is_own(kind):
        # Without permission the problem is unknown, which the caller reports with advice.
        if not allow_imports:
            return None
        return own_problem(kind, arguments, allow_imports=True)
    # A wrapper, which names its inner problem; the registry holds problems that stand alone.
    if kind == "constrained":
        from asyncqn.models.adapters.constrained import Bounded, Constrained

        inside = rebuild(arguments["problem"], allow_imports=allow_imports)
        if inside is None:
            return None
        bounds = arguments["parameters"]
        each = [from_json(Bounded, one, "a parameter") for one in bounds]
        return Constrained(inside, each)
    if kind not in PROBLEMS:
        raise BadInput(
            f"this version of asyncqn cannot rebuild a problem of kind {kind!r}: pass the problem itself."
        )
    model = PROBLEMS[kind]
    problem: Problem
    if "data" in arguments and hasattr(model, "from_file"):
        problem = model.from_file(**arguments)
    elif "url" in arguments and hasattr(model, "from_server"):
        problem = model.from_server(**arguments)
    elif hasattr(model, "random"):
        problem = model.random(**arguments)
    else:
        # A model whose data have a source, such as ratings, reads them again from there.
        problem = model.from_source(arguments.pop("source"), arguments)
    return problem
