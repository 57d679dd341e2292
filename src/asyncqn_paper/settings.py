"""The paper's settings of the linear Gaussian experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from asyncqn import Cluster
from asyncqn.algorithms import make_algorithm
from asyncqn.types import Algorithm

Given = tuple[tuple[str, Any], ...]
"""Parameters as jobs carry them: in one order, and hashable."""

N_Y, N_OMEGA = 600, 6
MEMORY = {"memory": 3, "batch": N_OMEGA, "overlap": N_OMEGA // 3}

NAMES = {"async-sgd": "a-SGD", "mb-lbfgs": "mb-L-BFGS", "as-lbfgs": "as-L-BFGS"}

PAPER: dict[str, dict[str, Any]] = {
    "async-sgd": {"h": 1e-3, "batch": N_OMEGA},
    "mb-lbfgs": {"h": 5e-2, "timeout": 10.0, **MEMORY},
    "as-lbfgs": {"h": 4e-4, "gamma": 3e-2, "beta": 5e2, **MEMORY},
}
"""The paper's table.  Where it is silent (H0, the cautious constant, quorum) our defaults stand."""

MESSAGE = 10.0
MASTER = {"mb-lbfgs": 30.0, "block-lbfgs": 30.0}
"""mu_m of the paper's table, and what we charge Block L-BFGS."""
PRODUCTS = {"as-lbfgs": 60.0, "momentum-lbfgs": 30.0}
"""The 60 units that the table grants as-L-BFGS for its two products, and half of them for one."""


def cluster(kind: str, workers: int, variance: float, rows: float = N_OMEGA, serial: float = 0.0) -> Cluster:
    """The paper's simulated cluster: mu_w = 1000 rows / N_Y for the gradient, sigma_w^2 = `variance`.

    `serial` of the 10 units that an exchange of messages takes occupy the master, as on a link that
    carries one message at a time; methods that commit whole rounds do not feel it.
    """
    mean = 1000.0 * rows / N_Y + PRODUCTS.get(kind, 0.0)
    serial = 0.0 if kind in MASTER else serial
    master = MASTER.get(kind, serial)
    return Cluster(workers, mean, math.sqrt(variance), message=MESSAGE - serial, master=master)


def given(parameters: Mapping[str, Any], **changes: Any) -> Given:
    """Parameters for a job, with some of them changed."""
    return tuple(sorted({**parameters, **changes}.items()))


def algorithm(kind: str, parameters: Mapping[str, Any] | Given) -> Algorithm:
    """An algorithm from plain parameters."""
    return make_algorithm(kind, dict(parameters))
