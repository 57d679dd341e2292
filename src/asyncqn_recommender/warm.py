"""The work of `asyncqn run --warm` for this package, which compiles its kernels in advance."""

from __future__ import annotations


def warm() -> None:
    """Fit a small model and recommend from it; one kernel serves all ranks."""
    from asyncqn_recommender.data import synthetic_ratings
    from asyncqn_recommender.estimator import Recommender

    ratings = synthetic_ratings(60, 40, 1_200, seed=0)
    Recommender(5, workers=1, passes=4, seed=0).fit(ratings).recommend(
        ratings.user_ids[0], 2
    )
