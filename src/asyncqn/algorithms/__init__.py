"""One algorithm per file, and their names in files and on the command line.

May import: errors, types, kernels, storage, and of core what knows no run (stages, streams); not models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncqn.algorithms.annealing import Annealing as Annealing
from asyncqn.algorithms.first_order.async_saga import AsyncSAGA as AsyncSAGA
from asyncqn.algorithms.first_order.async_sgd import AsyncSGD as AsyncSGD
from asyncqn.algorithms.first_order.delay_adaptive_sgd import DelayAdaptiveSGD as DelayAdaptiveSGD
from asyncqn.algorithms.first_order.rennala import Rennala as Rennala
from asyncqn.algorithms.first_order.ringmaster import Ringmaster as Ringmaster
from asyncqn.algorithms.first_order.sgd import SGD as SGD
from asyncqn.algorithms.first_order.sgld import SGLD as SGLD
from asyncqn.algorithms.quasi_newton.as_lbfgs import ASLBFGS as ASLBFGS
from asyncqn.algorithms.quasi_newton.block_lbfgs import BlockLBFGS as BlockLBFGS
from asyncqn.algorithms.quasi_newton.difference_lbfgs import DifferenceLBFGS as DifferenceLBFGS
from asyncqn.algorithms.quasi_newton.growing_lbfgs import GrowingLBFGS as GrowingLBFGS
from asyncqn.algorithms.quasi_newton.lbfgs import LBFGS as LBFGS
from asyncqn.algorithms.quasi_newton.mb_lbfgs import MBLBFGS as MBLBFGS
from asyncqn.algorithms.quasi_newton.metric_lbfgs import MetricLBFGS as MetricLBFGS
from asyncqn.algorithms.quasi_newton.momentum_lbfgs import MomentumLBFGS as MomentumLBFGS
from asyncqn.algorithms.quasi_newton.staged_lbfgs import StagedLBFGS as StagedLBFGS
from asyncqn.algorithms.quasi_newton.table_lbfgs import TableLBFGS as TableLBFGS
from asyncqn.errors import BadInput
from asyncqn.storage.serialise import (
    from_json,
    is_own,
    make_own,
    own_kind,
    own_parameters,
    suggestion,
    to_json,
)
from asyncqn.types import Algorithm

ALGORITHMS: dict[str, type] = {
    "as-lbfgs": ASLBFGS,
    "async-sgd": AsyncSGD,
    "delay-adaptive-sgd": DelayAdaptiveSGD,
    "ringmaster": Ringmaster,
    "rennala": Rennala,
    "async-saga": AsyncSAGA,
    "mb-lbfgs": MBLBFGS,
    "sgd": SGD,
    "sgld": SGLD,
    "lbfgs": LBFGS,
    "block-lbfgs": BlockLBFGS,
    "growing-lbfgs": GrowingLBFGS,
    "momentum-lbfgs": MomentumLBFGS,
    "staged-lbfgs": StagedLBFGS,
    "metric-lbfgs": MetricLBFGS,
    "difference-lbfgs": DifferenceLBFGS,
    "table-lbfgs": TableLBFGS,
}


def make_algorithm(kind: str, parameters: Mapping[str, Any], *, allow_imports: bool = False) -> Algorithm:
    """An algorithm by name and parameters; a user's own by "module:Class", where imports are allowed."""
    if is_own(kind):
        own: Algorithm = make_own(kind, parameters, "algorithm", allow_imports)
        return own
    if not isinstance(kind, str) or kind not in ALGORITHMS:
        near = suggestion(str(kind), ALGORITHMS).replace("it knows", "there are")
        raise BadInput(f"there is no algorithm {kind!r}; {near}.")
    algorithm: Algorithm = from_json(ALGORITHMS[kind], parameters, f"algorithm '{kind}'")
    return algorithm


def algorithm_to_json(algorithm: Algorithm) -> dict[str, Any]:
    """Its name and parameters; of a user's own class "module:Class", where that says enough to make it."""
    cls = type(algorithm)
    for kind, known in ALGORITHMS.items():
        if cls is known:
            return {"kind": kind, "parameters": to_json(algorithm)}
    kind_, parameters = own_kind(cls), own_parameters(algorithm)
    if kind_ is None or parameters is None:
        return {"kind": cls.__name__, "parameters": None}
    return {"kind": kind_, "parameters": parameters}


def algorithm_from_json(document: Mapping[str, Any], *, allow_imports: bool = False) -> Algorithm | None:
    """The inverse; None for a user's own class, unless it can be imported and that is allowed."""
    kind, parameters = document["kind"], document["parameters"]
    if parameters is None or (is_own(kind) and not allow_imports):
        return None
    return make_algorithm(kind, parameters, allow_imports=allow_imports)
