"""Synthetic ratings: exact size, different pairs, long tails, known spread, reproducible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn.errors import BadInput
from asyncqn_recommender.data import PRESETS, synthetic_ratings
from asyncqn_recommender.data.synthetic import _alias_table, _draw


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


def test_no_noise_and_no_taste_leave_a_sum_of_offsets_only():
    # Additive values rounded to half stars are within 1/2 of additivity on every 2 x 2 block where
    # no value is cut: four roundings of at most 1/4 each make at most 1.
    ratings = synthetic_ratings(30, 30, 900, rank=0, noise=0.0)
    table = np.empty((30, 30))
    table[ratings.users, ratings.items] = ratings.values
    mixed = table[:-1, :-1] - table[1:, :-1] - table[:-1, 1:] + table[1:, 1:]
    inner = (table > 0.5) & (table < 5.0)
    whole = inner[:-1, :-1] & inner[1:, :-1] & inner[:-1, 1:] & inner[1:, 1:]
    assert whole.sum() > 100
    assert np.abs(mixed[whole]).max() <= 1.0


def test_the_alias_table_has_the_law_of_the_weights():
    weight = np.random.default_rng(0).lognormal(sigma=2, size=50)
    accept, alias = _alias_table(weight)
    law = accept.copy()
    np.add.at(law, alias, 1.0 - accept)
    # Fifty additions and subtractions of numbers below 50: rounding stays under 50 * 50 * 2^-53.
    np.testing.assert_allclose(law / 50, weight / weight.sum(), atol=1e-12)


def test_light_and_heavy_users_draw_by_the_same_law():
    # Two of 40 items is light, three is heavy; first-order inclusion is compared for one item whose
    # chance is known: P(item among 2) = p + sum_j p_j p / (1 - p_j).
    weight = np.linspace(1, 3, 40)
    p = weight / weight.sum()
    n = 40_000
    expected = p + np.array(
        [sum(p[j] * p[k] / (1 - p[j]) for j in range(40) if j != k) for k in range(40)]
    )
    rng = np.random.default_rng(1)
    light = np.bincount(_draw(np.full(n, 2), weight, rng), minlength=40) / n
    # Five standard deviations of a binomial share, for each of 40 items.
    np.testing.assert_array_less(np.abs(light - expected), 5 * np.sqrt(expected / n))
    heavy = np.bincount(_draw(np.full(4_000, 3), weight, rng), minlength=40) / 4_000
    third = np.bincount(_three_by_hand(p, 4_000), minlength=40) / 4_000
    np.testing.assert_array_less(
        np.abs(heavy - third), 5 * np.sqrt(2 * 3 * p.max() / 4_000)
    )


def _three_by_hand(p, n):
    rng = np.random.default_rng(2)
    return np.concatenate(
        [rng.choice(len(p), size=3, replace=False, p=p) for _ in range(n)]
    )


@pytest.mark.parametrize(
    ("shape", "words"), [((0, 5, 5), "positive"), ((5, 5, 26), "at most 25 times")]
)
def test_impossible_shapes_are_refused(shape, words):
    with pytest.raises(BadInput, match=words):
        synthetic_ratings(*shape)


def test_the_presets_have_the_published_shapes():
    assert PRESETS["synthetic-1m"] == (6040, 3883, 1_000_209)
    assert PRESETS["synthetic-10m"] == (71_567, 10_681, 10_000_054)
    assert PRESETS["synthetic-20m"] == (138_493, 27_278, 20_000_263)
