"""One algorithm per file, and their names in files and on the command line.

Reading order: `paper/async_sgd` (the shortest algorithm), `pair_memory` with
`paper/as_lbfgs` (curvature pairs), `safeguard` with `exact/`, `table/`, `sampling/`, and
`rivals/`; `defaults` chooses one of them for a problem.

May import: errors, types, parameters, kernels, storage, registry, published, and of core what knows no run
(stages, streams); not models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncqn.errors import BadInput
from asyncqn.parameters import from_json, suggestion
from asyncqn.registry import Registry
from asyncqn.storage.serialise import (
    is_own,
    make_own,
    own_kind,
    own_parameters,
    to_json,
)
from asyncqn.types import Algorithm

__all__ = ["ALGORITHMS", "algorithm_from_json", "algorithm_to_json", "make_algorithm"]

ALGORITHMS = Registry(
    {
        "as-lbfgs": "asyncqn.algorithms.paper.as_lbfgs:ASLBFGS",
        "async-sgd": "asyncqn.algorithms.paper.async_sgd:AsyncSGD",
        "delay-adaptive-sgd": "asyncqn.algorithms.rivals.sgd_family:DelayAdaptiveSGD",
        "ringmaster": "asyncqn.algorithms.rivals.sgd_family:Ringmaster",
        "rennala": "asyncqn.algorithms.rivals.sgd_family:Rennala",
        "async-saga": "asyncqn.algorithms.rivals.async_saga:AsyncSAGA",
        "mb-lbfgs": "asyncqn.algorithms.paper.mb_lbfgs:MBLBFGS",
        "sgd": "asyncqn.algorithms.rivals.sgd_family:SGD",
        "sgld": "asyncqn.algorithms.sampling.sgld:SGLD",
        "exact-lbfgs": "asyncqn.algorithms.exact.exact_lbfgs:ExactLBFGS",
        "table-lbfgs": "asyncqn.algorithms.table.table_lbfgs:TableLBFGS",
        "shared-metric-hmc": "asyncqn.algorithms.sampling.shared_metric_hmc:SharedMetricHMC",
    },
    group="asyncqn.algorithms",
)
"""Every algorithm, by its name in files and on the command line; other packages add theirs."""


def make_algorithm(
    kind: str, parameters: Mapping[str, Any], *, allow_imports: bool = False
) -> Algorithm:
    """Return the algorithm of this name; a user's own class, "module:Class", only where imports are
    allowed."""
    if is_own(kind):
        own: Algorithm = make_own(kind, parameters, "algorithm", allow_imports)
        return own
    if not isinstance(kind, str) or kind not in ALGORITHMS:
        near = suggestion(str(kind), ALGORITHMS).replace("it knows", "there are")
        raise BadInput(f"there is no algorithm {kind!r}; {near}.")
    algorithm: Algorithm = from_json(
        ALGORITHMS[kind], parameters, f"algorithm '{kind}'"
    )
    return algorithm


def algorithm_to_json(algorithm: Algorithm) -> dict[str, Any]:
    """Return name and parameters as JSON data, with "module:Class" as the name of a user's own class.

    The parameters are None where they do not suffice to make the algorithm again.
    """
    cls = type(algorithm)
    if (kind := ALGORITHMS.name_of(cls)) is not None:
        return {"kind": kind, "parameters": to_json(algorithm)}
    # A manifest records the class's name in any case; only with parameters can the run be replayed from it.
    kind_, parameters = own_kind(cls), own_parameters(algorithm)
    if kind_ is None or parameters is None:
        return {"kind": cls.__name__, "parameters": None}
    return {"kind": kind_, "parameters": parameters}


def algorithm_from_json(
    document: Mapping[str, Any], *, allow_imports: bool = False
) -> Algorithm | None:
    """Return the algorithm that `algorithm_to_json` described, or None.

    It is None for a user's own class, unless the class can be imported and imports are allowed.
    """
    kind, parameters = document["kind"], document["parameters"]
    if parameters is None or (is_own(kind) and not allow_imports):
        return None
    return make_algorithm(kind, parameters, allow_imports=allow_imports)
