"""One algorithm per file, and their names in files and on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncqn.algorithms.annealing import Annealing
from asyncqn.algorithms.first_order.async_sgd import AsyncSGD
from asyncqn.algorithms.first_order.sgd import SGD
from asyncqn.algorithms.first_order.sgld import SGLD
from asyncqn.algorithms.quasi_newton.as_lbfgs import ASLBFGS
from asyncqn.algorithms.quasi_newton.block_lbfgs import BlockLBFGS
from asyncqn.algorithms.quasi_newton.growing_lbfgs import GrowingLBFGS
from asyncqn.algorithms.quasi_newton.lbfgs import LBFGS
from asyncqn.algorithms.quasi_newton.mb_lbfgs import MBLBFGS
from asyncqn.algorithms.quasi_newton.momentum_lbfgs import MomentumLBFGS
from asyncqn.algorithms.quasi_newton.staged_lbfgs import StagedLBFGS
from asyncqn.core.plain import from_plain, to_plain
from asyncqn.errors import BadInput
from asyncqn.types import Algorithm

__all__ = [
    "ALGORITHMS",
    "ASLBFGS",
    "LBFGS",
    "MBLBFGS",
    "SGD",
    "SGLD",
    "Annealing",
    "AsyncSGD",
    "BlockLBFGS",
    "GrowingLBFGS",
    "MomentumLBFGS",
    "StagedLBFGS",
    "algorithm_from_plain",
    "algorithm_to_plain",
    "make_algorithm",
]

ALGORITHMS: dict[str, type] = {
    "as-lbfgs": ASLBFGS,
    "async-sgd": AsyncSGD,
    "mb-lbfgs": MBLBFGS,
    "sgd": SGD,
    "sgld": SGLD,
    "lbfgs": LBFGS,
    "block-lbfgs": BlockLBFGS,
    "growing-lbfgs": GrowingLBFGS,
    "momentum-lbfgs": MomentumLBFGS,
    "staged-lbfgs": StagedLBFGS,
}


def make_algorithm(kind: str, parameters: Mapping[str, Any]) -> Algorithm:
    """An algorithm by name and parameters."""
    if kind not in ALGORITHMS:
        raise BadInput(f"there is no algorithm '{kind}'; there are {', '.join(ALGORITHMS)}.")
    algorithm: Algorithm = from_plain(ALGORITHMS[kind], parameters, f"algorithm '{kind}'")
    return algorithm


def algorithm_to_plain(algorithm: Algorithm) -> dict[str, Any]:
    """Its name and parameters; a user's own class is stored by name only."""
    for kind, cls in ALGORITHMS.items():
        if type(algorithm) is cls:
            return {"kind": kind, "parameters": to_plain(algorithm)}
    return {"kind": type(algorithm).__name__, "parameters": None}


def algorithm_from_plain(plain: Mapping[str, Any]) -> Algorithm | None:
    """The inverse; None for a user's own class."""
    return make_algorithm(plain["kind"], plain["parameters"]) if plain["parameters"] is not None else None
