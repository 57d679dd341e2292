"""Feedback: ratings or clicks, each with its problem, its defaults and its model.

A rating says how much a user liked an item, and a pair without one says nothing.  A click says that a user
chose an item, and a pair without one counts as "not chosen", with less confidence: see
`problems.implicit_factorization`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncqn.errors import require
from asyncqn.kernels import add_one, sum_of_squares
from asyncqn.types import Array, Rows
from asyncqn_recommender.data import Ratings
from asyncqn_recommender.metrics import rank_quality
from asyncqn_recommender.model import (
    FactorModel,
    column_ridges,
    measure_offsets,
    measure_popularity,
    rated_items,
)
from asyncqn_recommender.problems.eliminated_users import EliminatedUsers
from asyncqn_recommender.problems.implicit_factorization import ImplicitFactorization
from asyncqn_recommender.problems.profiled_factorization import ProfiledFactorization
from asyncqn_recommender.staged import STEP_BLOCKS

if TYPE_CHECKING:
    from asyncqn_recommender.estimator import Recommender

PRIOR = 3.0
ALPHA = 0.035
"""The default ridge of ratings; docs/results/recommender.md says how it was chosen."""
CLICK_RIDGE = 0.7
"""The default ridge of clicks, relative to the largest singular value of random clicks of the same size."""
LIST = 10
"""Length of the lists by which held-out clicks are judged."""


class Noting(EliminatedUsers):
    """A problem that records the errors of blocks while gradients are computed.

    A fit asks for the errors of points that its passes have just visited, so they cost nothing.
    """

    def __init__(self, *columns: Any, **options: Any) -> None:
        super().__init__(*columns, **options)
        self.squares: dict[bytes, dict[int, float]] = {}
        """The sum of squared errors, or its equivalent, of each block by its first row, for each point: a
        late worker may still record a block of an earlier point."""
        self._looked: tuple[Array, float, dict[str, float]] | None = None
        self.threads = 1

    def _gradient(
        self,
        theta: Array,
        rows: Rows,
        scale: float,
        out: Array,
        second: Array | None = None,
    ) -> tuple[float, float, int]:
        found = super()._gradient(theta, rows, scale, out, second)  # type: ignore[safe-super]
        # Passes ask for the curvature as well; other calls of the gradient record nothing.
        if second is not None:
            self.squares.setdefault(_name(theta), {})[int(rows[0])] = found[0]
        return found

    def _look(self, theta: Array) -> tuple[Array, float, dict[str, float]]:
        """Return a point, its value and its metrics, summed block by block as in a pass, by `threads`
        threads."""
        if self._looked is not None and np.array_equal(theta, self._looked[0]):
            return self._looked
        # The blocks of a pass, so that the sums have the same bits as in the fit.
        n = self.n_data
        blocks = min(STEP_BLOCKS, self.n_data)
        cuts = [part * n // blocks for part in range(blocks + 1)]

        def look(part: int) -> tuple[float, Array]:
            rows = np.arange(cuts[part], cuts[part + 1])
            out = np.empty_like(theta)
            value = self.grad_with_curvature(
                theta, rows, out, np.empty(self.curvature_size, theta.dtype)
            )
            share = len(rows) / n
            out *= theta.dtype.type(share)
            return value * share, out

        with ThreadPoolExecutor(self.threads) as pool:
            found = list(pool.map(look, range(blocks)))
        gradient = np.zeros_like(theta)
        # In the order of the blocks, whichever thread finished first, so that the sum has the same bits.
        for _, part_of_it in found:
            add_one(gradient, part_of_it)
        shown = {
            **self.errors(theta, cuts[:-1]),
            "grad_norm": math.sqrt(sum_of_squares(gradient)),
        }
        self._looked = theta.copy(), sum(value for value, _ in found), shown
        return self._looked

    def value(self, theta: Array) -> float:
        return self._look(theta)[1]

    def metrics(self, theta: Array) -> dict[str, float]:
        return self._look(theta)[2]

    def errors(self, theta: Array, first_rows: list[int]) -> dict[str, float]:
        """Return the metrics of `theta` from the blocks computed there, and forget other points."""
        here = self.squares[_name(theta)]
        # The dictionary would otherwise grow with every point of a fit.
        self.squares = {_name(theta): here}
        return self._errors_from(sum(here[row] for row in first_rows))

    def _errors_from(self, squares: float) -> dict[str, float]:
        return {}


def _name(theta: Array) -> bytes:
    """Return up to 256 numbers of a point as bytes, which identify it among the points of a fit."""
    # Two iterates of a fit differ almost everywhere, so that all numbers would say no more than these.
    return theta[:: 1 + theta.size // 256].tobytes()


class NotingRatings(Noting, ProfiledFactorization):
    """The recording problem for ratings."""

    def _errors_from(self, squares: float) -> dict[str, float]:
        return {"rmse": math.sqrt(squares / len(self.by_user.values))}


class NotingClicks(Noting, ImplicitFactorization):
    """The recording problem for clicks."""


class Feedback(ABC):
    """One fit: its problem, the judgement of points by held-out data, and its model."""

    p: Recommender
    train: Ratings
    problem: Noting
    prior: float
    default_tol: float
    held_name: str
    """Name of the metric on held-out data."""

    @abstractmethod
    def __init__(
        self, p: Recommender, train: Ratings, held: Ratings | None
    ) -> None: ...

    @abstractmethod
    def held(self, theta: Array) -> float:
        """Return the metric on held-out data."""

    @abstractmethod
    def _about_ratings(self) -> dict[str, Any]:
        """Return the fields of the model that differ between ratings and clicks."""

    def model(self, theta: Array) -> FactorModel:
        """Return the learned model."""
        train = self.train
        problem = self.problem
        return FactorModel(
            item_factors=theta.reshape(-1, problem.rank),
            user_factors=problem.user_factors(theta, self.p.workers),
            user_ids=train.user_ids,
            item_ids=train.item_ids,
            titles=train.titles,
            seen=rated_items(train),
            prior=self.prior,
            columns=problem.columns.astype(np.float64),
            **self._about_ratings(),
        )

    @staticmethod
    def check(p: Recommender) -> None:
        """Raise `BadInput` for parameters that are meaningless for this feedback."""
        return

    @staticmethod
    def loss(held: float) -> float:
        """Return the metric with a sign such that lower is better."""
        return held


class Explicit(Feedback):
    """A fit to ratings."""

    default_tol = 1e-4
    held_name = "validation_rmse"

    def __init__(self, p: Recommender, train: Ratings, held: Ratings | None) -> None:
        self.p = p
        self.train = train
        self.offsets = measure_offsets(train)
        self.prior = PRIOR if p.prior is None else float(p.prior)
        self.alpha = ALPHA if p.alpha is None else float(p.alpha)
        self.problem = NotingRatings.from_ratings(
            self._target(train),
            int(p.rank),
            prior=self.prior,
            alpha=self.alpha,
            dtype=p.dtype,
            columns=column_ridges(int(p.rank), p.plain_columns, train),
            test=None if held is None else self._target(held),
            seed=p.seed,
        )

    def _target(self, part: Ratings) -> Ratings:
        if not self.p.offsets:
            return part
        # With offsets the factors explain what the means leave over.
        left = part.values - self.offsets.at(part.users, part.items)
        return replace(part, values=left.astype(np.float32))

    def held(self, theta: Array) -> float:
        assert isinstance(self.problem, NotingRatings)
        return self.problem.test_rmse(theta, self.p.workers)

    def _about_ratings(self) -> dict[str, Any]:
        p = self.p
        values = self.train.values
        return {
            "offsets": self.offsets,
            "lowest": float(values.min()),
            "highest": float(values.max()),
            "alpha": self.alpha,
            "residual": bool(p.offsets),
            "trust": float(p.trust),
            "clip": bool(p.clip),
        }


class Implicit(Feedback):
    """A fit to clicks."""

    default_tol = 3e-5
    held_name = "validation_ndcg"

    def __init__(self, p: Recommender, train: Ratings, held: Ratings | None) -> None:
        self.p = p
        self.train = train
        self.test = held
        self.prior = (
            click_ridge(train, p.confidence) if p.prior is None else float(p.prior)
        )
        self.problem = NotingClicks.from_ratings(
            train,
            int(p.rank),
            prior=self.prior,
            confidence=float(p.confidence),
            dtype=p.dtype,
            seed=p.seed,
        )

    @staticmethod
    def check(p: Recommender) -> None:
        require(
            not p.alpha, "clicks have one ridge for all rows, prior: leave alpha out."
        )
        require(
            not p.offsets,
            "offsets are means of ratings, which clicks do not have: leave them out.",
        )

    def held(self, theta: Array) -> float:
        assert self.test is not None
        return rank_quality(self.model(theta), self.test, LIST, None, self.p.workers)[
            "ndcg"
        ]

    @staticmethod
    def loss(held: float) -> float:
        return -held

    def _about_ratings(self) -> dict[str, Any]:
        return {
            "offsets": measure_popularity(self.train),
            "confidence": float(self.p.confidence),
            "alpha": 0.0,
            "residual": False,
            "trust": 0.0,
            "clip": False,
            "lowest": 0.0,
            "highest": 1.0,
        }


def click_ridge(clicks: Ratings, confidence: float) -> float:
    """Return 0.7 (1 + confidence r) sqrt(n) (1 / sqrt(users) + 1 / sqrt(items)), with r the mean strength of
    n clicks.

    A ridge of s suppresses the parts of a matrix with singular values below s.  For n ones placed at random
    in users x items, the largest singular value apart from the mean is about sqrt(n) times the sum of the two
    inverse roots.  The factor comes from the experiment in docs/results/recommender.md.
    """
    users = len(np.unique(clicks.users))
    items = len(np.unique(clicks.items))
    # float32 sums lose digits over millions of clicks.
    mean = float(clicks.values.mean(dtype=np.float64))
    noise = math.sqrt(len(clicks)) * (1.0 / math.sqrt(users) + 1.0 / math.sqrt(items))
    return CLICK_RIDGE * (1.0 + confidence * mean) * noise


FEEDBACKS: dict[str, type[Feedback]] = {"explicit": Explicit, "implicit": Implicit}
"""The kinds of feedback, by name."""
