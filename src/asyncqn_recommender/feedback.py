"""Feedback: ratings or clicks, each with its problem, its defaults and its model.

A rating says how much a user liked an item, and a pair without one says nothing.  A click says that a user
chose an item, and a pair without one counts as "not chosen", with less confidence: see
`problems.implicit_factorization`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncqn.errors import require
from asyncqn.types import Array
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

if TYPE_CHECKING:
    from asyncqn_recommender.estimator import Recommender

PRIOR = 3.0
ALPHA = 0.035
"""The default ridge of ratings; docs/results/factorization.md says how it was chosen."""
CLICK_RIDGE = 0.7
"""The default ridge of clicks, relative to the largest singular value of random clicks of the same size."""
LIST = 10
"""Length of the lists by which held-out clicks are judged."""


class Feedback(ABC):
    """One fit: its problem, the judgement of points by held-out data, and its model."""

    problem: EliminatedUsers
    prior: float
    default_tol: float
    held_name: str
    """Name of the metric on held-out data."""
    held_sign = 1.0
    """Sign of that metric where lower is better."""

    def __init__(self, p: Recommender, train: Ratings, held: Ratings | None) -> None:
        self.p = p
        self.train = train
        self.held = held

    @abstractmethod
    def held_metric(self, theta: Array) -> float:
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


class Explicit(Feedback):
    """A fit to ratings."""

    problem: ProfiledFactorization
    default_tol = 1e-4
    held_name = "validation_rmse"

    def __init__(self, p: Recommender, train: Ratings, held: Ratings | None) -> None:
        super().__init__(p, train, held)
        self.prior = PRIOR if p.prior is None else float(p.prior)
        self.alpha = ALPHA if p.alpha is None else float(p.alpha)
        self.problem = ProfiledFactorization.from_ratings(
            train,
            int(p.rank),
            prior=self.prior,
            alpha=self.alpha,
            dtype=p.dtype,
            columns=column_ridges(int(p.rank), p.plain_columns, train),
            test=held,
            seed=p.seed,
        )

    def held_metric(self, theta: Array) -> float:
        return self.problem.test_rmse(theta, self.p.workers)

    def _about_ratings(self) -> dict[str, Any]:
        # The range to which predictions are clipped.
        values = self.train.values
        return {
            "offsets": measure_offsets(self.train),
            "lowest": float(values.min()),
            "highest": float(values.max()),
            "alpha": self.alpha,
            "trust": float(self.p.trust),
            "clip": bool(self.p.clip),
        }


class Implicit(Feedback):
    """A fit to clicks."""

    default_tol = 3e-5
    held_name = "validation_ndcg"
    held_sign = -1.0

    def __init__(self, p: Recommender, train: Ratings, held: Ratings | None) -> None:
        super().__init__(p, train, held)
        # Without a ridge of their own, clicks get one by their number: see `click_ridge`.
        ridge = click_ridge(train, p.confidence) if p.prior is None else p.prior
        self.prior = float(ridge)
        self.problem = ImplicitFactorization.from_ratings(
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

    def held_metric(self, theta: Array) -> float:
        assert self.held is not None
        workers = self.p.workers
        return rank_quality(self.model(theta), self.held, LIST, None, workers)["ndcg"]

    def _about_ratings(self) -> dict[str, Any]:
        return {
            "offsets": measure_popularity(self.train),
            "confidence": float(self.p.confidence),
            "alpha": 0.0,
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
    inverse roots.  The factor comes from the experiment in docs/results/factorization.md.
    """
    users = len(np.unique(clicks.users))
    items = len(np.unique(clicks.items))
    # float32 sums lose digits over millions of clicks.
    mean = float(clicks.values.mean(dtype=np.float64))
    noise = math.sqrt(len(clicks)) * (1.0 / math.sqrt(users) + 1.0 / math.sqrt(items))
    return CLICK_RIDGE * (1.0 + confidence * mean) * noise


FEEDBACKS: dict[str, type[Feedback]] = {"explicit": Explicit, "implicit": Implicit}
"""The kinds of feedback, by name."""
