"""New ratings for a fitted model: known and new users, new items, and what does not change."""

from __future__ import annotations

import numpy as np
import pytest
from recommender_cases import RATINGS, TRAIN, ids

from asyncqn.errors import BadInput
from asyncqn_recommender.data import Ratings
from asyncqn_recommender.estimator import Recommender


@pytest.fixture(scope="module")
def model() -> Recommender:
    return Recommender(rank=3, workers=1, seed=0).fit(TRAIN)


def test_ratings_folded_in_for_a_known_user_count_like_those_known_before(
    model: Recommender,
) -> None:
    # A new user with half of user 17's ratings, to whom the other half is added, gets user 17's row.
    rows = np.flatnonzero(TRAIN.users == 17)
    items, values = TRAIN.item_ids[TRAIN.items[rows]], TRAIN.values[rows]
    half = len(rows) // 2
    new = np.full(len(rows), 10**6)
    first = model.fold_in((new[:half], items[:half], values[:half]))
    wrong = first.fold_in((new[:1], items[:1], values[:1] - 1.0))
    both = wrong.fold_in((new[half - 1 :], items[half - 1 :], values[half - 1 :]))
    whole = both.fold_in(
        (new[:1], items[:1], values[:1])
    )  # a second rating of an item replaces the first
    at = whole.model_.user_index([10**6])[0]
    # Rows solved in float32 from the same ratings in another order.
    np.testing.assert_allclose(
        whole.user_factors_[at], model.user_factors_[17], rtol=1e-3, atol=1e-4
    )
    assert whole.model_.offsets.user_counts[at] == len(rows)
    assert whole.model_.offsets.users[at] == pytest.approx(
        model.model_.offsets.users[17]
    )
    assert {b.id for b in whole.recommend(10**6, 10**6)}.isdisjoint(items.tolist())
    assert len(model.user_ids_) == TRAIN.n_users, "the model itself has not changed"


def test_a_user_with_only_new_items_is_predicted_by_the_baseline_and_their_own_mean(
    model: Recommender,
) -> None:
    wider = model.fold_in(([10**6, 10**6], [10**6, 10**6 + 1], [5.0, 5.0]))
    item = int(TRAIN.item_ids[3])
    generous = (
        2 * (5.0 - model.mean_) / 12.0
    )  # two ratings, damped as by ten at the mean
    expected = min(5.0, model.mean_ + model.model_.offsets.items[3] + generous)
    assert wider.predict(10**6, item) == pytest.approx(expected)
    assert {b.basis for b in wider.recommend(10**6, 3)} == {"baseline"}
    assert len(wider.item_ids_) == len(model.item_ids_)


def test_partial_fit_learns_new_users_and_items_nearly_as_well_as_a_fit_of_all() -> (
    None
):
    # Items of the upper third and users of the upper tenth come later.
    late = (RATINGS.items >= 80) | (RATINGS.users >= 270)
    test = np.random.default_rng(0).random(len(RATINGS)) < 0.1
    early, new, held = (
        RATINGS.take(rows) for rows in (~late & ~test, late & ~test, late & test)
    )
    early = Ratings.from_arrays(*ids(early))
    streamed = Recommender(rank=3, workers=1, seed=0).fit(early)
    blind = streamed.rmse(held)
    known = streamed.user_factors_[0].copy(), streamed.user_ids_[0]
    assert streamed.partial_fit(Ratings.from_arrays(*ids(new))) is streamed
    assert set(streamed.item_ids_.tolist()) == {
        *ids(early)[1].tolist(),
        *ids(new)[1].tolist(),
    }
    assert streamed.model_.offsets.user_counts.sum() == len(early) + len(new)
    whole = Recommender(rank=3, workers=1, seed=0).fit(RATINGS.take(~test))
    gained, possible = blind - streamed.rmse(held), blind - whole.rmse(held)
    assert possible > 0.05
    assert gained > 0.8 * possible, (gained, possible)
    untouched = known[1] not in set(ids(new)[0].tolist())
    row = streamed.user_factors_[streamed.model_.user_index([known[1]])[0]]
    assert untouched == bool((row == known[0]).all())


def test_partial_fit_of_nothing_learned_is_fit_and_titles_come_along() -> None:
    fresh = Recommender(rank=2, workers=1, passes=2).partial_fit(TRAIN)
    assert (
        fresh.item_factors_
        == Recommender(rank=2, workers=1, passes=2).fit(TRAIN).item_factors_
    ).all()
    fresh.partial_fit(
        Ratings.from_arrays([1], [10**6], [4.0], titles={10**6: "The Newcomer"})
    )
    assert fresh.model_.titles[-1] == "The Newcomer"
    assert fresh.model_.titles[:-1].tolist() == TRAIN.titles.tolist()


def test_ids_of_another_kind_and_no_rounds_are_refused(model: Recommender) -> None:
    for learn in (model.fold_in, model.partial_fit):
        with pytest.raises(BadInput, match="users have integers as ids"):
            learn((["zoe"], [int(TRAIN.item_ids[3])], [3.0]))
    with pytest.raises(BadInput, match="items have integers as ids"):
        model.partial_fit(([1], ["zoe"], [3.0]))
    with pytest.raises(BadInput, match="rounds must be"):
        model.partial_fit(([1], [1], [3.0]), rounds=0)
