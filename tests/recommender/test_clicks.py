"""A recommender of clicks, from files to lists."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import numpy as np
import pandas
import pytest
from recommender_cases import RATINGS

from asyncqn.errors import BadInput
from asyncqn_recommender.data import Ratings, as_ratings, read_ratings
from asyncqn_recommender.estimator import Recommender
from asyncqn_recommender.feedback import FEEDBACKS

LIKED = RATINGS.take(RATINGS.values >= 4.0)
CLICKS = Ratings(
    LIKED.users,
    LIKED.items,
    np.ones(len(LIKED), np.float32),
    LIKED.user_ids,
    LIKED.item_ids,
)
TRAIN, TEST = CLICKS.split(0.1, 0)


@pytest.fixture(scope="module")
def model() -> Recommender:
    return Recommender(rank=3, feedback="implicit", workers=1, seed=0).fit(TRAIN)


def test_lists_learned_from_clicks_beat_the_popular_items(model: Recommender) -> None:
    found = model.evaluate(TEST)
    assert found["k"] == 10
    assert "rmse" not in found
    assert model.score(TEST) == found["ndcg"]
    strangers = Ratings(
        TEST.users,
        TEST.items,
        TEST.values,
        np.array([f"x{u}" for u in TEST.user_ids]),
        TEST.item_ids,
    )
    assert found["ndcg"] > 1.05 * model.evaluate(strangers)["ndcg"]
    popular = model.recommend("nobody", 3)
    assert {item.basis for item in popular} == {"baseline"}
    counts = np.bincount(TRAIN.items, minlength=TRAIN.n_items)
    assert popular[0].id == TRAIN.item_ids[np.argmax(counts)]


def test_folded_in_clicks_give_the_row_of_a_user_who_always_had_them(
    model: Recommender,
) -> None:
    user = int(np.argmax(np.bincount(TRAIN.users)))
    items = TRAIN.item_ids[TRAIN.items[TRAIN.users == user]]
    names = ["twin"] * len(items)
    wider = model.fold_in(([10**6] * len(items), items))
    at = wider.model_.user_index([10**6])[0]
    np.testing.assert_allclose(
        wider.user_factors_[at], model.user_factors_[user], rtol=1e-4, atol=1e-5
    )
    again = wider.fold_in(
        ([10**6], items[:1])
    )  # a second click of an item adds to the first
    first, second = (float(found.predict(10**6, items[0])) for found in (wider, again))
    assert abs(1.0 - second) < abs(1.0 - first)
    with pytest.raises(BadInput, match="integers"):
        model.fold_in((names, items))


def test_partial_fit_learns_new_items_from_clicks(model: Recommender) -> None:
    learner = copy(model)
    fans = TRAIN.user_ids[np.unique(TRAIN.users[TRAIN.items == TRAIN.items[0]])]
    learner.partial_fit((fans, np.full(len(fans), 10**6)))
    scores = learner.predict(TRAIN.user_ids, np.full(len(TRAIN.user_ids), 10**6))
    like = np.isin(TRAIN.user_ids, fans)
    assert 0 < like.sum() < len(like)
    assert scores[like].mean() > scores[~like].mean()


def test_clicks_need_no_column_of_ratings_and_add_up(tmp_path: Path) -> None:
    file = tmp_path / "clicks.csv"
    file.write_text("user,item\na,x\na,x\nb,y\n")
    with pytest.raises(BadInput, match="--clicks"):
        read_ratings(file)
    frame = pandas.read_csv(file)
    slow = tmp_path / "quoted.csv"
    slow.write_text('user,item\n"a",x\na,x\nb,y\n,z\n')
    for found in (
        read_ratings(file, clicks=True).ratings,
        read_ratings(slow, clicks=True, skip_bad=True).ratings,
        as_ratings(frame, clicks=True),
        as_ratings((frame["user"], frame["item"]), clicks=True),
    ):
        assert found.values.tolist() == [2.0, 1.0]
        assert found.user_ids.tolist() == ["a", "b"]


def test_what_clicks_cannot_tell_is_refused_in_a_sentence(model: Recommender) -> None:
    with pytest.raises(BadInput, match="predicts no ratings"):
        model.rmse(TEST)
    with pytest.raises(BadInput, match="leave alpha out"):
        Recommender(feedback="implicit", alpha=0.1).fit(TRAIN)
    with pytest.raises(
        BadInput, match=f"must be {' or '.join(map(repr, FEEDBACKS))}, not 'loud'"
    ):
        Recommender(feedback="loud").fit(TRAIN)
    with pytest.raises(BadInput, match="confidence"):
        Recommender(feedback="implicit", confidence=0.0).fit(TRAIN)
