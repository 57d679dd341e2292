"""Ratings for Figs. 4 and 5, the paper's parameters for them, starts, and a time axis from measured steps."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from asyncqn import ASLBFGS, MBLBFGS, AsyncSGD, Cluster, starting_point
from asyncqn.types import Array
from asyncqn_paper.settings import EVERYONE, PAYERS
from asyncqn_recommender.data import load
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization

SPREAD = 0.3
"""Standard deviation of a worker's time over its mean, our own choice."""

# h of a-SGD, mb-L-BFGS and as-L-BFGS, then gamma and beta of as-L-BFGS, from the paper's table.
_NAMES: dict[str, Any] = {"1m": "ml-1m", "10m": "ml-10m", "20m": "ml-20m"}
_OURS = {size: ASLBFGS.from_paper(name) for size, name in _NAMES.items()}
TABLE: dict[str, tuple[Any, ...]] = {
    size: (
        *(AsyncSGD.from_paper(name).h, MBLBFGS.from_paper(name).h),
        *(_OURS[size].h, _OURS[size].gamma, _OURS[size].beta),
    )
    for size, name in _NAMES.items()
}
RANK = 5
RHO = _OURS["1m"].rho
MEMORY = _OURS["1m"].memory
STARTS = {"prior": "from the prior N(0, 1)", "mean": "near the mean rating"}


class Timing(NamedTuple):
    """Seconds of a worker's step, of a commit, and of the messages of one step, both ways."""

    worker: float
    master: float
    message: float


def size_of(name: str) -> str:
    """Return the row of the paper's table for a set: that of its own size, or of 1M for any other."""
    size = name.rpartition("-")[2]
    return size if size in TABLE else "1m"


def set_of(full: bool) -> tuple[str, int]:
    """Return the set of the full or the quick size and its number of ratings, without reading the ratings."""
    return ("ml-1m", 1_000_209) if full else ("synthetic-100k", 100_000)


@cache
def model(name: str) -> MatrixFactorization:
    """Return the paper's MAP objective on a set of ratings."""
    return MatrixFactorization.from_ratings(load(name), RANK)


def parameters(size: str, n_data: int) -> dict[str, dict[str, Any]]:
    """Return the paper's parameters: N_Omega = N_Y / 100, N_O = N_Omega / 3, H + rho I for L-BFGS methods."""
    sgd, mb, h, gamma, beta = TABLE[size]
    # As in the supplement: N_Omega = N_Y / 100 and N_O = N_Omega / 3.
    batch = n_data // 100
    shared = {"memory": MEMORY, "batch": batch, "overlap": batch // 3, "rho": RHO}
    return {
        "async-sgd": {"h": sgd, "batch": batch},
        "mb-lbfgs": {"h": mb, **shared},
        "as-lbfgs": {"h": h, "gamma": gamma, "beta": beta, **shared},
    }


def start(model: MatrixFactorization, which: str, seed: int) -> Array:
    """Return where a run begins: a draw of the model's prior N(0, 1), or rows near the mean rating."""
    if which == "mean":
        return starting_point(model, None, seed)
    # A stream of its own, so that the start does not depend on what else a seed is used for.
    draw = np.random.Generator(np.random.Philox(key=[seed, 0x9F10])).standard_normal(
        model.dim
    )
    return np.asarray(draw.astype(model.dtype))


def measured_cluster(timing: Timing, workers: int, payer: str = EVERYONE) -> Cluster:
    """Return a cluster with these times, for all methods alike.

    A message takes half of `timing.message`; if it is paid for, it occupies the master's link for that time.
    """
    # The time of a message is the same whether it is paid or not: what the link keeps is taken from the
    # latency.
    mean = timing.worker
    half = timing.message / 2.0
    link, sending = PAYERS[payer]
    kept = half if link else 0.0
    message = timing.message - kept * (1.0 if sending == "free" else 2.0)
    return Cluster(
        workers,
        mean,
        SPREAD * mean,
        message=message,
        master=timing.master,
        link=kept,
        sending=sending,
    )


TIMINGS = {
    "async-sgd": Timing(2.13e-4, 1.9e-5, 6.351e-4),
    "mb-lbfgs": Timing(3.91e-4, 4.52e-4, 9.526e-4),
    "as-lbfgs": Timing(7.83e-4, 3.6e-5, 1.2701e-3),
}
"""Processor times of a step and of a commit on the 1M set, the medians of twelve on the machine of the
published results, and messages at 10 Gbit/s: four vectors of theta's size for as-L-BFGS, three for
mb-L-BFGS, two for a-SGD.  The numbers of a run depend on them only through the schedule."""


PRINTED_TIMEOUT = 0.4
"""T_mb of the paper on the 1M set, in seconds."""


def slowed(kind: str, timing: Timing) -> Timing:
    """Return the times with gradients as slow as the printed timeout suggests.

    A batch takes 1/1.2 of the timeout.  What as-L-BFGS and mb-L-BFGS compute on the overlap is added in
    proportion to its rows, and products cost nothing.
    """
    # The timeout is 1.2 mean times of a worker.
    batch = PRINTED_TIMEOUT / 1.2
    # 4/3: the overlap is a third of the batch, and its gradient is computed twice.
    return timing._replace(worker=batch if kind == "async-sgd" else batch * 4.0 / 3.0)
