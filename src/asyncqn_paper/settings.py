"""The paper's settings, read from the tables of asyncqn (`from_paper`).

Where the paper leaves a choice to the reader, such as who pays for messages, all choices are listed here, and
the experiments run through them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from asyncqn import ASLBFGS, MBLBFGS, AsyncSGD, Cluster
from asyncqn.algorithms import make_algorithm
from asyncqn.types import Algorithm, Commit

Given = tuple[tuple[str, Any], ...]
"""Parameters as jobs carry them: in one order, and hashable."""

NAMES = {"async-sgd": "a-SGD", "mb-lbfgs": "mb-L-BFGS", "as-lbfgs": "as-L-BFGS"}
_PRINTED = {
    "async-sgd": ("h", "batch"),
    "mb-lbfgs": ("h", "timeout", "memory", "batch", "overlap"),
    "as-lbfgs": ("h", "gamma", "beta", "memory", "batch", "overlap"),
}


def printed(name: Any) -> dict[str, dict[str, Any]]:
    """Return the parameters that the paper prints for an experiment, by algorithm.

    N_Omega = N_Y / 100 and N_O = N_Omega / 3 throughout, although the text asks for N_S >> N_O.
    """
    table: dict[str, Any] = {
        "async-sgd": AsyncSGD.from_paper(name),
        "mb-lbfgs": MBLBFGS.from_paper(name),
        "as-lbfgs": ASLBFGS.from_paper(name),
    }
    own = {}
    for kind, method in table.items():
        own[kind] = {field: getattr(method, field) for field in _PRINTED[kind]}
        if kind != "async-sgd" and method.rho:
            own[kind]["rho"] = method.rho
    return own


PAPER = printed("linear-gaussian")
"""The paper's table.  Where it is silent (H0, the cautious constant, quorum) our defaults stand."""
MEMORY = {name: PAPER["as-lbfgs"][name] for name in ("memory", "batch", "overlap")}
N_OMEGA: int = MEMORY["batch"]
N_Y = 100 * N_OMEGA
MESSAGE = Cluster.from_paper().message
MASTER = {"mb-lbfgs": Cluster.from_paper(algorithm="mb-lbfgs").master}
"""mu_m of the paper's table."""
_TWO_PRODUCTS = float(
    Cluster.from_paper().means()[0]
    - Cluster.from_paper(algorithm="async-sgd").means()[0]
)
NO_MOMENTUM = "momentum-lbfgs"
"""The name of `StaleNewton` in the published tables: heavy-ball L-BFGS with friction 1 was the same."""
PRODUCTS = {"as-lbfgs": _TWO_PRODUCTS, NO_MOMENTUM: _TWO_PRODUCTS / 2}
"""The 60 units that the table grants as-L-BFGS for its two products, and half of them for one."""


# The published tables name these settings, so the texts stay as they are: "answers" are the workers' updates.
NOBODY = "nobody"
EVERYONE = "every exchange"
UPDATES_ONLY = "answers only"
TREE = "broadcasts by a tree"
ENDLESS = 10**9
"""Commits of a run that its callback ends; a cluster is simulated as far as the run goes."""
PAYERS: dict[str, tuple[float, Literal["each", "tree", "free"]]] = {
    NOBODY: (0.0, "each"),
    EVERYONE: (1.0, "each"),
    UPDATES_ONLY: (1.0, "free"),
    TREE: (1.0, "tree"),
}
"""Who pays for messages, for all methods alike: how long a message keeps the master's link, and which of
those that the master sends do (`Cluster.sending`).  Two units of ten is our own choice."""


def paying(payer: str) -> tuple[float, Literal["each", "tree", "free"]]:
    """Return how long a message keeps the link, and which of the master's do: a payer, as in "TREE, 5 %".

    The number is the share of an exchange during which the link is busy, 20 % where none is given.
    """
    name, _, share = payer.partition(", ")
    link, sending = PAYERS[name]
    # An exchange is two messages.
    return (MESSAGE * float(share[:-2]) / 200.0 if share else link), sending


def cluster(kind: str, workers: int, variance: float, payer: str = NOBODY) -> Cluster:
    """Return the paper's simulated cluster: mu_w = 1000 N_Omega / N_Y for the gradient, sigma_w^2 = `variance`.

    An exchange of messages takes 10 units; `payer` says for how many of them the master's link is busy.
    """
    mean = 1000.0 * N_OMEGA / N_Y + PRODUCTS.get(kind, 0.0)
    link, sending = paying(payer)
    # An exchange takes ten units under every payer; only who waits for it differs.
    message = MESSAGE - link * (1.0 if sending == "free" else 2.0)
    return Cluster(
        workers,
        mean,
        math.sqrt(variance),
        message=message,
        master=MASTER.get(kind, 0.0),
        link=link,
        sending=sending,
    )


def given(parameters: Mapping[str, Any], **changes: Any) -> Given:
    """Return parameters as jobs carry them, with some of them changed."""
    return tuple(sorted({**parameters, **changes}.items()))


class StaleNewton(ASLBFGS):
    """theta - h H g with the pairs of as-L-BFGS, a single product with H and no momentum."""

    def apply(self, iterate: Any, updates: Sequence[Any], commit: Commit) -> Any:
        # u stays 0, so that d_u of equation (6) is -h H g where there is no noise.
        for update in updates:
            iterate.theta[:] += update.d_u
        return iterate


def algorithm(kind: str, parameters: Mapping[str, Any] | Given) -> Algorithm:
    """Return the algorithm with these parameters."""
    if kind == NO_MOMENTUM:
        return StaleNewton(beta=math.inf, **dict(parameters))
    return make_algorithm(kind, dict(parameters))
