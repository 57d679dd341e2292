"""The recommender among scikit-learn's estimators, and its answers to mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import sklearn.base
import sklearn.exceptions
import sklearn.model_selection
from hypothesis import given, settings
from hypothesis import strategies as st
from recommender_cases import TRAIN, ids

from asyncqn.errors import AsyncqnError, BadInput
from asyncqn_recommender.estimator import Recommender


@pytest.fixture(scope="module")
def model() -> Recommender:
    return Recommender(rank=3, workers=2, seed=0).fit(TRAIN)


def test_parameters_follow_scikit_learn(model: Recommender) -> None:
    copy = sklearn.base.clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "model_")
    assert repr(Recommender(7, seed=3)) == "Recommender(rank=7, seed=3)"
    with pytest.raises(BadInput, match="'depth'"):
        copy.set_params(depth=3)
    users, items, values = ids(TRAIN)
    search = sklearn.model_selection.GridSearchCV(
        Recommender(workers=1, passes=3), {"rank": [1, 3]}, cv=2
    ).fit(np.c_[users, items], values)
    assert search.best_score_ > -1.2
    assert search.best_estimator_.rank in (1, 3)


def test_what_is_not_fitted_says_so_in_scikit_learns_words_too() -> None:
    with pytest.raises(sklearn.exceptions.NotFittedError, match="call fit first"):
        Recommender().predict([1], [1])
    assert not hasattr(Recommender(), "item_factors_")


BAD_RATINGS = {
    "none": ([], [], []),
    "nan": ([1, 2], [1, 2], [3.0, np.nan]),
    "a number": 7,
    "no such file": "no/such/file.csv",
    "no columns": pandas.DataFrame({"a": [1], "b": [2]}),
    "emptied": TRAIN.take(np.zeros(len(TRAIN), bool)),
}


@pytest.mark.parametrize("bad", BAD_RATINGS.values(), ids=BAD_RATINGS)
def test_bad_ratings_are_one_sentence(bad: Any, model: Recommender) -> None:
    for use in (Recommender(2).fit, model.rmse):
        with pytest.raises(AsyncqnError) as error:
            use(bad)
        assert "\n" not in str(error.value)


def test_other_mistakes_are_one_sentence(model: Recommender) -> None:
    with pytest.raises(BadInput, match="call fit first"):
        Recommender().predict([1], [1])
    with pytest.raises(BadInput, match="call fit first"):
        Recommender().save("nowhere")
    with pytest.raises(BadInput, match="item -3 is unknown"):
        model.similar(-3)
    with pytest.raises(BadInput, match="differ in shape"):
        model.predict([1, 2], [1, 2, 3])
    with pytest.raises(BadInput, match="n x 2"):
        model.predict([1, 2, 3])
    with pytest.raises(BadInput, match="n must be an integer of at least 1, not 0"):
        model.recommend(int(TRAIN.user_ids[0]), n=0)
    with pytest.raises(BadInput, match="nan"):
        model.predict([np.nan], [1])
    with pytest.raises(BadInput, match="takes one user"):
        model.recommend([1, 2])
    with pytest.raises(BadInput, match="takes one item"):
        model.similar([1, 2])
    with pytest.raises(BadInput, match="callback must be a function"):
        Recommender(2).fit(TRAIN, callback=3)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="validation"):
        Recommender(2).fit(TRAIN, validation=([10**6], [10**6], [3.0]))


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=15, unique=True),
       st.integers(1, 3), st.randoms(use_true_random=False))  # fmt: skip
def test_the_smallest_sets_are_learned_and_predicted_within_their_range(
    pairs, rank, random
) -> None:  # type: ignore[no-untyped-def]
    values = [random.choice([-3.0, 0.0, 1.5, 40.0]) for _ in pairs]
    users, items = zip(*pairs, strict=True)
    small = Recommender(rank, workers=1).fit((users, items, values))
    got = small.predict(*np.meshgrid(range(6), range(6)))
    assert np.isfinite(got).all()
    assert min(values) <= got.min() <= got.max() <= max(values)
