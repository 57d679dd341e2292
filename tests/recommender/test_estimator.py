"""The recommender: what it learns, predicts and recommends."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from recommender_cases import TEST, TRAIN, ids

import asyncqn as aq
from asyncqn.errors import BadInput
from asyncqn_recommender.data import Ratings
from asyncqn_recommender.estimator import Recommender
from asyncqn_recommender.model import DAMPING


@pytest.fixture(scope="module")
def model() -> Recommender:
    return Recommender(rank=3, workers=2, seed=0).fit(TRAIN)


def rmse(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


# -- learning


def test_it_beats_item_and_user_means_on_ratings_it_has_not_seen(
    model: Recommender,
) -> None:
    _, _, values = ids(TEST)
    offsets = model.model_.offsets
    means = offsets.at(TEST.users, TEST.items)
    assert model.rmse(TEST) < 0.97 * rmse(means - values)
    assert model.rmse(TRAIN) < model.rmse(TEST)


def test_every_user_row_solves_its_ridge_problem(model: Recommender) -> None:
    # Normal equations in float64 from float32 factors: the residual is rounding of the sums, relative
    # 1e-7 times the number of terms (up to 120) and the condition of the system (below 100).
    F, G = model.item_factors_.astype(float), model.user_factors_.astype(float)
    for u in range(0, TRAIN.n_users, 29):
        rows = TRAIN.users == u
        f, y = F[TRAIN.items[rows]], TRAIN.values[rows]
        exact = np.linalg.solve(
            f.T @ f + (3.0 + 0.035 * rows.sum()) * np.eye(3), f.T @ y
        )
        np.testing.assert_allclose(G[u], exact, atol=1e-3)


@pytest.mark.parametrize("rank", [3, 40])
def test_the_model_is_the_same_bit_for_bit_on_any_number_of_threads(rank: int) -> None:
    one, *others = (
        Recommender(rank, workers=W, passes=4).fit(TRAIN) for W in (1, 2, 4)
    )
    for other in others:
        assert other.item_factors_.tobytes() == one.item_factors_.tobytes()
        assert other.user_factors_.tobytes() == one.user_factors_.tobytes()
        for name in ("fun", "loss", "grad_norm"):
            assert (other.history_[name] == one.history_[name]).all(), name


def test_a_rank_beyond_what_the_ratings_carry_does_no_harm() -> None:
    small, large = (
        Recommender(rank, workers=1).fit(TRAIN).rmse(TEST) for rank in (5, 40)
    )
    plain = Recommender(40, workers=1, plain_columns=None).fit(TRAIN).rmse(TEST)
    assert large < small + 0.01
    assert plain > small + 0.02


def test_columns_of_a_frame_may_have_any_names_and_are_remembered() -> None:
    users, items, values = ids(TRAIN)
    plain = pandas.DataFrame({"user": users, "item": items, "rating": values})
    names = {"user": "reader", "item": "novel", "rating": "points"}
    odd = plain.rename(columns=names)
    first = Recommender(2, passes=3).fit(plain)
    named = Recommender(2, passes=3).fit(odd, **names)
    assert named.item_factors_.tobytes() == first.item_factors_.tobytes()
    assert named.rmse(odd) == first.rmse(plain) == named.rmse(plain)
    with pytest.raises(BadInput, match="there is no column 'stars' for the rating"):
        Recommender(2).fit(odd, user="reader", item="novel", rating="stars")
    with pytest.raises(BadInput, match="rating must be a text or None, not 3"):
        Recommender(2).fit(odd, rating=3)  # type: ignore[arg-type]


def test_a_warm_start_keeps_known_items_when_new_ones_come() -> None:
    known = TRAIN.take(TRAIN.items < 100)
    known = Ratings.from_arrays(*ids(known))
    warm = Recommender(3, workers=1, warm_start=True).fit(known)
    assert len(warm.item_ids_) < len(TRAIN.item_ids)
    cold = Recommender(3, workers=1).fit(TRAIN).history_.row(0)["fun"]
    assert warm.fit(TRAIN).history_.row(0)["fun"] < cold


def test_early_stopping_keeps_the_iterate_with_the_lowest_held_out_rmse() -> None:
    loose = Recommender(
        3,
        workers=1,
        prior=0.001,
        alpha=0.0,
        early_stopping=True,
        passes=40,
        clip=False,
        trust=0,
    )
    loose.fit(TRAIN)
    assert loose.status_ == "stopped early"
    held = loose.history_["validation_rmse"]
    assert loose.history_["passes"][-1] < 40
    assert held.argmin() < len(held) - 1
    # The same split again: the kept factors give the smallest number of the table.
    _, validation = TRAIN.split(0.1, 0)
    users, items, values = ids(validation)
    known = (loose.model_.offsets.item_counts[validation.items] > 0) & (
        loose.model_.offsets.user_counts[validation.users] > 0
    )
    raw = np.where(known, loose.predict(users, items), 0.0)
    assert rmse(raw - values) == pytest.approx(held.min(), rel=1e-5)


def test_validation_ratings_are_watched_and_the_callback_may_stop() -> None:
    seen: list[float] = []

    def stop(progress: aq.types.Progress) -> None:
        seen.append(progress.metrics["validation_rmse"])
        if len(seen) == 3:
            raise StopIteration

    short = Recommender(2, workers=1).fit(TRAIN, validation=TEST, callback=stop)
    assert (short.status_, len(seen)) == ("stopped", 3)
    assert short.history_["validation_rmse"].tolist() == seen


# -- predictions


def test_a_prediction_is_the_documented_blend(model: Recommender) -> None:
    users, items, _ = ids(TEST)
    n_u = np.bincount(TRAIN.users, minlength=TRAIN.n_users)[TEST.users]
    n_m = np.bincount(TRAIN.items, minlength=TRAIN.n_items)[TEST.items]
    n = np.minimum(n_u, n_m)
    w = n / (n + 5.0)
    mu = TRAIN.values.mean(dtype=float)
    b_m = np.array(
        [(TRAIN.values[TRAIN.items == m] - mu).sum() for m in range(TRAIN.n_items)]
    )
    b_m /= np.bincount(TRAIN.items, minlength=TRAIN.n_items) + DAMPING
    left = TRAIN.values - mu - b_m[TRAIN.items]
    b_u = np.array([left[TRAIN.users == u].sum() for u in range(TRAIN.n_users)])
    b_u /= np.bincount(TRAIN.users, minlength=TRAIN.n_users) + DAMPING
    product = (
        model.user_factors_[TEST.users].astype(float) * model.item_factors_[TEST.items]
    ).sum(axis=1)
    blend = w * product + (1 - w) * (mu + b_m[TEST.items] + b_u[TEST.users])
    np.testing.assert_allclose(
        model.predict(users, items), blend.clip(0.5, 5.0), rtol=1e-6
    )


def test_unknown_users_and_items_get_the_means_that_are_known(
    model: Recommender,
) -> None:
    offsets, user, item = model.model_.offsets, TRAIN.user_ids[7], TRAIN.item_ids[5]
    got = model.predict([-1, user, -1], [item, 10**9, 10**9])
    expected = [
        model.mean_ + offsets.items[5],
        model.mean_ + offsets.users[7],
        model.mean_,
    ]
    np.testing.assert_allclose(got, expected)


def test_ids_may_be_texts_or_floats_and_one_side_single(model: Recommender) -> None:
    users, items = TRAIN.user_ids[:4], TRAIN.item_ids[:4]
    plain = model.predict(users, items)
    assert (model.predict(users.astype(str), items.astype(float)) == plain).all()
    assert (model.predict(np.c_[users, items]) == plain).all()
    assert model.predict(int(users[0]), items).shape == (4,)


def test_score_is_minus_the_rmse_and_evaluate_counts(model: Recommender) -> None:
    users, items, values = ids(TEST)
    errors = model.predict(users, items) - values
    found = model.evaluate(TEST)
    assert found == {
        "rmse": pytest.approx(rmse(errors)), "mae": pytest.approx(np.abs(errors).mean()), "n": len(TEST),
    }  # fmt: skip
    assert (
        model.score(TEST) == -found["rmse"] == model.score(np.c_[users, items], values)
    )


# -- recommendations


def test_similar_items_do_not_depend_on_the_basis_of_the_factors(
    model: Recommender,
) -> None:
    from dataclasses import replace

    item = int(TRAIN.item_ids[3])
    turn = np.array([[2.0, 0.3, 0.0], [0.0, 0.5, 0.1], [0.2, 0.0, 1.0]])
    turned = replace(
        model.model_,
        item_factors=model.item_factors_.astype(float) @ turn,
        user_factors=model.user_factors_.astype(float) @ np.linalg.inv(turn).T,
    )
    here, there = model.similar(item, 8), turned.similar(item, 8)
    assert [s.id for s in here] == [s.id for s in there]
    np.testing.assert_allclose(
        [s.score for s in here], [s.score for s in there], rtol=1e-4
    )
    assert item not in [s.id for s in here]
    assert 1.0 >= here[0].score >= here[-1].score >= -1.0
