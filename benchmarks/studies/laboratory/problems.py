"""The problems of the laboratory: nine families, each drawn anew from the number of a draw.

    linear         Gaussian rows, condition 100                                   60,000 rows, d = 50
    logistic       condition 10, neighbours correlated by 0.5                     60,000 rows, d = 50
    ill            condition 100, neighbours correlated by 0.9                    60,000 rows, d = 50
    rotated        the features of `ill`, turned by a random orthogonal matrix    60,000 rows, d = 50
    network        five tanh units                                                20,000 rows, d = 60
    convolution    a small convolutional network, by `from_torch`                  2,000 rows, d = 212
    factorization  ratings of rank 2, factorized with rank 3                      20,000 rows, d = 1500
    profiled       the same ratings, with the users eliminated                       300 rows, d = 600
    movielens      MovieLens 1M, rank 5: a draw is another start                   1,000,209 rows, d = 49,615

Rivals are tuned, and constants of ours were chosen, on draw 0; draw 1 was looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.types import Array
from asyncqn_recommender import MatrixFactorization, ProfiledFactorization
from asyncqn_recommender.data import load
from benchmarks.studies.laboratory.models import TanhNetwork
from benchmarks.studies.tables import read, write

GAPS = (0.05, 0.01, 0.001)
"""The levels: shares of the initial gap that are left."""
ROWS, DIM = 60_000, 50
LEVELS, PASSES = "laboratory/levels", 250


def _logistic(draw: int, condition: float, correlation: float) -> aq.LogisticRegression:
    return aq.LogisticRegression.random(ROWS, DIM, condition, correlation, seed=draw)


def _linear(draw: int) -> aq.LinearGaussian:
    """Rows of N(0, C), where n C has eigenvalues from 600 to 60,000 in random directions; noise 1."""
    rng = np.random.default_rng(draw)
    turn, _ = np.linalg.qr(rng.standard_normal((DIM, DIM)))
    A = (
        rng.standard_normal((ROWS, DIM))
        * np.sqrt(np.geomspace(600.0, 60_000.0, DIM) / ROWS)
        @ turn
    )
    return aq.LinearGaussian(
        A, A @ rng.standard_normal(DIM) + rng.standard_normal(ROWS), 1.0
    )


def _rotated(draw: int) -> aq.LogisticRegression:
    plain = _logistic(draw, 100.0, 0.9)
    turn, _ = np.linalg.qr(np.random.default_rng(1 + draw).standard_normal((DIM, DIM)))
    return aq.LogisticRegression(plain.X @ turn, plain.y, plain.prior)


def ratings(draw: int) -> dict[str, Any]:
    """300 users, 200 items, 20,000 ratings of a pattern of rank 2 with noise."""
    rng = np.random.default_rng(2 + draw)
    pairs = rng.choice(300 * 200, 20_000, replace=False)
    users, items = pairs // 200, pairs % 200
    rows = rng.standard_normal((300, 2)), rng.standard_normal((200, 2))
    values = (
        3.5
        + (rows[0][users] * rows[1][items]).sum(axis=1)
        + 0.5 * rng.standard_normal(len(users))
    )
    sizes = {"n_users": 300, "n_items": 200, "rank": 3, "dtype": "float64"}
    return {"users": users, "items": items, "values": values, **sizes}


def _convolution(draw: int) -> Any:
    """Which of four random 3 x 3 patterns tiles a noisy 8 x 8 image, at a random offset."""
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(3 + draw)
    patterns, labels = rng.standard_normal((4, 3, 3)), rng.integers(4, size=2000)
    rows, columns = (
        (np.arange(8) + rng.integers(3, size=(2000, 1))) % 3 for _ in range(2)
    )
    images = patterns[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
    images = (images + rng.standard_normal(images.shape))[:, None]
    with torch.random.fork_rng():
        torch.manual_seed(draw)
        layers = (
            torch.nn.Conv2d(1, 8, 3),
            torch.nn.Tanh(),
            torch.nn.AvgPool2d(3),
            torch.nn.Flatten(),
        )
        module = torch.nn.Sequential(*layers, torch.nn.Linear(32, 4)).double()
    return aq.from_torch(
        module, torch.nn.CrossEntropyLoss(), images, labels, prior=10.0
    )


@lru_cache(maxsize=1)
def _movielens() -> MatrixFactorization:
    return MatrixFactorization.from_ratings(load("ml-1m"), 5, dtype="float64")


FAMILIES: dict[str, Callable[[int], Any]] = {
    "factorization": lambda draw: MatrixFactorization(**ratings(draw)),
    "network": lambda draw: TanhNetwork.random(20_000, inputs=10, hidden=5, seed=draw),
    "profiled": lambda draw: ProfiledFactorization(**ratings(draw)),
    "linear": _linear,
    "logistic": lambda draw: _logistic(draw, 10.0, 0.5),
    "ill": lambda draw: _logistic(draw, 100.0, 0.9),
    "rotated": _rotated,
    "convolution": _convolution,
    "movielens": lambda draw: _movielens(),
}
"""The models, by family, of the number of a draw."""
CONVEX = ("linear", "logistic", "ill", "rotated")


@dataclass(frozen=True)
class Problem:
    """A problem with its start, and the two values between which a gap is measured."""

    family: str
    model: Any
    theta0: Array
    start: float
    lowest: float
    row: float = 1.0
    """The time of a row on average."""

    def level(self, gap: float) -> float:
        """Return the value of U at which so much of the initial gap is left."""
        return self.lowest + gap * (self.start - self.lowest)

    def gap(self, value: float) -> float:
        """Return the share of the initial gap that is left at a value of U."""
        return (value - self.lowest) / (self.start - self.lowest)


def _lowest(family: str, draw: int, model: Any, theta0: Array) -> float:
    """Return U* of docs/results/laboratory/levels.csv; where it is missing there, compute and add it."""
    known = read(LEVELS)
    for line in known:
        if (line["family"], line["draw"]) == (family, str(draw)):
            return float(line["lowest"])
    options = {"engine": aq.Simulator(aq.Cluster(1)), "theta0": theta0, "check": False}
    lowest = min(
        aq.minimize(model, aq.BlockLBFGS(1, memory), commits=PASSES, **options).fun
        for memory in ((10,) if family in CONVEX else (10, 30))
    )
    line = {
        "family": family,
        "draw": draw,
        "start": float(model.value(theta0)),
        "lowest": lowest,
    }
    write(LEVELS, [*known, line], digits=12)
    return lowest


@lru_cache(maxsize=6)
def problem(family: str, draw: int = 0) -> Problem:
    """Return a problem with its levels.

    U* is the end of `BlockLBFGS` on one simulated worker, after at most `PASSES` passes; where U is not
    convex, the lower of two ends, with 10 and 30 pairs.  With users eliminated, the start (of the items), the
    levels and the time of a rating are those of `factorization`; a row is a user.
    """
    model = FAMILIES[family](draw)
    if family == "profiled":
        joint = problem("factorization", draw)
        row = joint.model.n_data / model.n_data
        return Problem(
            family,
            model,
            joint.theta0[: model.dim].copy(),
            joint.start,
            joint.lowest,
            row,
        )
    zero = family in ("logistic", "ill", "rotated")
    seed = 5 + draw if family == "movielens" else 5
    theta0 = np.zeros(model.dim) if zero else model.initial(np.random.default_rng(seed))
    lowest = _lowest(family, draw, model, theta0)
    return Problem(family, model, theta0, float(model.value(theta0)), lowest)
