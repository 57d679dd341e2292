"""The choice of ratings for a test: drawn at random, or the latest of all, or of each user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require, require_count

if TYPE_CHECKING:
    from asyncqn_recommender.data.ratings import Ratings


def drawn(ratings: Ratings, test_fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Mark round(fraction * n) of n ratings, drawn without replacement."""
    n_test = _share(test_fraction, len(ratings))
    require(seed >= 0, f"the seed must not be negative, but is {seed}.")
    test = np.zeros(len(ratings), dtype=bool)
    # `shuffle=False`: a mask has no order, and shuffling would cost a pass.
    rows = np.random.default_rng(seed).choice(
        len(ratings), size=n_test, replace=False, shuffle=False
    )
    test[rows] = True
    return _both_sides(test, f"a test fraction of {test_fraction}")


def latest(
    ratings: Ratings, test_fraction: float, per_user: bool
) -> npt.NDArray[np.bool_]:
    """Mark the latest round(fraction * n) of all n ratings, or of each user's; ties go by position."""
    times = _times(ratings)
    n_test = _share(test_fraction, len(ratings))
    if not per_user:
        test = np.zeros(len(ratings), dtype=bool)
        test[np.argsort(times, kind="stable")[len(ratings) - n_test :]] = True
        return _both_sides(test, f"a test fraction of {test_fraction}")
    counts = np.bincount(ratings.users, minlength=ratings.n_users)
    # Users with few ratings may have none in the test.
    shares = np.rint(test_fraction * counts).astype(np.int64)
    return _both_sides(
        _last_of_each(ratings, shares),
        f"a test fraction of {test_fraction} of each user",
    )


def last_of_each_user(ratings: Ratings, n: int) -> npt.NDArray[np.bool_]:
    """Mark the last n ratings of every user who has more than n."""
    _times(ratings)
    require_count("n", n)
    counts = np.bincount(ratings.users, minlength=ratings.n_users)
    return _both_sides(
        _last_of_each(ratings, np.where(counts > n, n, 0)), f"the last {n} of each user"
    )


def _last_of_each(
    ratings: Ratings, shares: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Mark the last shares[u] ratings of user u."""
    order = np.lexsort(
        (_times(ratings), ratings.users)
    )  # a stable sort keeps the order of equal times
    # In sorted order, user u occupies the places up to ends[u], and the test the last shares[u] of them.
    ends = np.cumsum(np.bincount(ratings.users, minlength=ratings.n_users))
    users = ratings.users[order]
    test = np.zeros(len(ratings), dtype=bool)
    test[order[np.arange(len(order)) >= (ends - shares)[users]]] = True
    return test


def _share(test_fraction: float, n: int) -> int:
    require(
        0.0 < test_fraction < 1.0,
        f"test_fraction must lie between 0 and 1, not {test_fraction}.",
    )
    return round(test_fraction * n)


def _times(ratings: Ratings) -> npt.NDArray[np.float64]:
    if ratings.times is None:
        raise BadInput(
            "these ratings have no times: name their column with as_ratings(..., time=...) or --time; "
            "a set stored without times must be imported again (asyncqn recommender data NAME --from FILE)."
        )
    return ratings.times


def _both_sides(test: npt.NDArray[np.bool_], what: str) -> npt.NDArray[np.bool_]:
    require(
        bool(test.any() and not test.all()),
        f"{what} leaves one side of {len(test)} ratings empty: choose another share.",
    )
    return test
