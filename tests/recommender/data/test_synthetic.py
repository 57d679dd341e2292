"""Synthetic ratings: exact size, different pairs, long tails, known spread, reproducible."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asyncqn_recommender.data import PRESETS, synthetic_ratings


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.floats(0, 1),
    st.integers(0, 5),
    st.integers(0, 3),
)
def test_the_number_is_exact_pairs_differ_and_values_are_half_stars(
    n_users, n_items, fill, rank, seed
):
    n_ratings = max(1, round(fill * n_users * n_items))
    ratings = synthetic_ratings(n_users, n_items, n_ratings, rank=rank, seed=seed)
    assert (len(ratings), ratings.n_users, ratings.n_items) == (
        n_ratings,
        n_users,
        n_items,
    )
    pairs = ratings.users.astype(np.int64) * n_items + ratings.items
    assert len(np.unique(pairs)) == n_ratings
    assert set(ratings.items.tolist()) <= set(range(n_items))
    assert set(np.unique(2 * ratings.values)) <= set(range(1, 11))
    counts = np.bincount(ratings.users, minlength=n_users)
    assert counts.min() >= min(20, n_items, n_ratings // n_users)


def test_equal_seeds_give_equal_bits_and_other_seeds_do_not():
    first, second = (synthetic_ratings(100, 80, 3000, seed=4) for _ in range(2))
    assert first.digest == second.digest
    assert first.digest != synthetic_ratings(100, 80, 3000, seed=5).digest


def test_the_preset_has_the_spread_and_the_tails_of_movielens():
    # Real 1M: mean 3.58, standard deviation 1.12; the busiest tenth of the users gives 38 % of the
    # ratings, the most famous tenth of the items gets 46 %.
    ratings = synthetic_ratings(*PRESETS["synthetic-100k"])
    assert abs(ratings.values.mean() - 3.55) < 0.15
    assert abs(ratings.values.std() - 1.1) < 0.1
    for index, size, least in ((ratings.users, 943, 0.3), (ratings.items, 1682, 0.35)):
        counts = np.sort(np.bincount(index, minlength=size))[::-1]
        assert counts[: size // 10].sum() > least * len(ratings)
    assert len(set(ratings.titles.tolist())) == ratings.n_items
