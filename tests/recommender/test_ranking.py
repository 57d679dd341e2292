"""Lists for many users: the same as one by one, the best there are, ties by the table."""

from __future__ import annotations

import numpy as np
import pytest
from recommender_cases import TRAIN

from asyncqn_recommender import ranking
from asyncqn_recommender.estimator import Recommender

EVERY = {
    "plain": {},
    "no trust": {"trust": 0.0},
    "doubles": {"dtype": "float64"},
}


@pytest.fixture(scope="module")
def model() -> Recommender:
    return Recommender(rank=5, workers=2, seed=0, passes=4).fit(TRAIN)


@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
def test_scores_are_those_of_the_documented_blend(options: dict[str, object]) -> None:
    fitted = Recommender(rank=5, workers=1, passes=2, **options).fit(TRAIN).model_
    users = np.arange(0, TRAIN.n_users, 7)
    places, scores = ranking.best_items(fitted, users, 9, True)
    # Five products and their sum, each rounded to the factors' precision, then a blend in float64.
    terms = np.abs(fitted.user_factors) @ np.abs(fitted.item_factors).T
    rounding = 10 * np.finfo(fitted.item_factors.dtype).eps * float(terms.max()) + 1e-14
    for u, items, tops in zip(users, places, scores):
        everything = fitted.scores(np.full(TRAIN.n_items, u), np.arange(TRAIN.n_items))
        everything[fitted.offsets.item_counts == 0] = -np.inf
        everything[TRAIN.items[TRAIN.users == u]] = -np.inf
        np.testing.assert_allclose(
            tops, np.sort(everything)[::-1][:9], rtol=0, atol=rounding
        )
        np.testing.assert_allclose(tops, everything[items], rtol=0, atol=rounding)


def test_many_users_get_what_each_gets_alone_in_any_batch_and_on_any_threads(
    model: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [model.recommend(int(user), 6) for user in model.user_ids_]
    monkeypatch.setattr(ranking, "USERS_PER_TASK", 5)
    monkeypatch.setattr(ranking, "USERS_PER_CHUNK", 64)
    done: list[int] = []
    for workers in (1, 4):
        model.set_params(workers=workers)
        table = model.recommend_many(n=6, progress=done.append)
        assert table.columns == ["user", "rank", "item", "score", "basis"]
        rows = [table.row(k) for k in range(table.rows)]
        expected = [
            {
                "user": user,
                "rank": place,
                "item": item.id,
                "score": item.score,
                "basis": "factors",
            }
            for user, items in zip(model.user_ids_.tolist(), alone)
            for place, item in enumerate(items, 1)
        ]
        assert rows == expected, "equal to the bit"
    assert done[-1] == TRAIN.n_users
    some = model.user_ids_[[5, 3]]
    assert model.recommend_many(some.astype(str), 2)["user"].tolist() == [
        some[0],
        some[0],
        some[1],
        some[1],
    ]


def test_unknown_users_get_the_items_with_the_highest_damped_means_and_are_told_so(
    model: Recommender,
) -> None:
    offsets = model.model_.offsets
    best = np.argsort(-(offsets.mean + offsets.items), kind="stable")[:4]
    table = model.recommend_many([10**9, int(model.user_ids_[0])], 4)
    assert table["item"][:4].tolist() == model.item_ids_[best].tolist()
    assert table["basis"].tolist() == ["baseline"] * 4 + ["factors"] * 4
    assert table["user"].tolist() == [10**9] * 4 + [model.user_ids_[0]] * 4
    alone = model.recommend("nobody", 4)
    assert [item.id for item in alone] == table["item"][:4].tolist()
    assert {item.basis for item in alone} == {"baseline"}
    assert alone[0].score == model.predict("nobody", alone[0].id)
    assert "baseline" in repr(table)
