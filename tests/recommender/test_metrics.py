"""The quality of lists: against scikit-learn, and against a plain loop over the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from recommender_cases import TEST, TRAIN, ids

from asyncqn.errors import BadInput
from asyncqn_recommender.estimator import Recommender
from asyncqn_recommender.metrics import NAMES, list_sums


@pytest.fixture(scope="module")
def model() -> Recommender:
    return Recommender(rank=3, workers=1, seed=0, passes=4).fit(TRAIN)


def by_hand(listed: list[int], relevant: set[int], k: int) -> dict[str, float]:
    """The definitions, word by word, for one user."""
    hits = [item in relevant for item in listed[:k]]
    dcg = sum(hit / math.log2(place + 1) for place, hit in enumerate(hits, 1))
    ideal = sum(
        1 / math.log2(place + 1) for place in range(1, min(k, len(relevant)) + 1)
    )
    precisions = [sum(hits[:place]) / place for place in range(1, len(hits) + 1)]
    return {
        "precision": sum(hits) / k,
        "recall": sum(hits) / len(relevant),
        "ndcg": dcg / ideal,
        "map": sum(p for p, hit in zip(precisions, hits) if hit)
        / min(k, len(relevant)),
        "hit_rate": float(any(hits)),
    }


@settings(max_examples=20)
@given(
    st.permutations(range(12)),
    st.sets(st.integers(0, 11), min_size=1, max_size=11),
    st.integers(2, 12),
)
def test_ndcg_and_map_are_those_of_scikit_learn(
    order: list[int], relevant: set[int], k: int
) -> None:
    truth = np.isin(np.arange(12), list(relevant)).astype(float)
    scores = np.empty(12)
    scores[order] = -np.arange(12.0)
    hits = truth[order].astype(bool)
    counts = np.array([len(relevant)])
    sums = list_sums(hits[None, :k], counts)
    assert sums["ndcg"] == pytest.approx(
        sklearn.metrics.ndcg_score([truth], [scores], k=k)
    )
    assert sums["precision"] == pytest.approx(
        sklearn.metrics.precision_score(truth, scores > -k)
    )
    assert sums["recall"] == pytest.approx(
        sklearn.metrics.recall_score(truth, scores > -k)
    )
    whole = list_sums(hits[None, :], counts)
    assert whole["map"] == pytest.approx(
        sklearn.metrics.average_precision_score(truth, scores)
    )
    assert sums == pytest.approx(by_hand(order, relevant, k))


@pytest.mark.parametrize("threshold", [None, 4.0])
@pytest.mark.parametrize("k", [1, 10, 500])
def test_evaluate_averages_over_users_with_relevant_items(
    model: Recommender, k: int, threshold: float | None
) -> None:
    found = model.evaluate(TEST, k=k, threshold=threshold)
    users, items, values = ids(TEST)
    relevant: dict[int, set[int]] = {}
    for user, item, value in zip(users.tolist(), items.tolist(), values.tolist()):
        if threshold is None or value >= threshold:
            relevant.setdefault(user, set()).add(item)
    lists = {user: [item.id for item in model.recommend(user, k)] for user in relevant}
    each = [by_hand(lists[user], relevant[user], k) for user in relevant]
    for name in NAMES:
        assert found[name] == pytest.approx(np.mean([one[name] for one in each])), name
    rated = (np.bincount(TRAIN.items, minlength=TRAIN.n_items) > 0).sum()
    shown = {item for listed in lists.values() for item in listed}
    assert found["coverage"] == pytest.approx(len(shown) / rated)
    assert (found["users"], found["k"], found["n"]) == (len(relevant), k, len(TEST))
    assert found["rmse"] == model.rmse(TEST)


def test_ratings_the_model_was_fitted_on_are_no_test_of_its_lists(
    model: Recommender,
) -> None:
    users, items, values = (
        np.concatenate(both) for both in zip(ids(TEST), ids(TRAIN.take(slice(0, 50))))
    )
    mixed = model.evaluate((users, items, values), k=5)
    alone = model.evaluate(TEST, k=5)
    assert (mixed["seen"], alone["seen"]) == (50, 0)
    assert {name: mixed[name] for name in NAMES} == {
        name: alone[name] for name in NAMES
    }
    with pytest.raises(BadInput, match="fitted on all of these"):
        model.evaluate(TRAIN, k=5)
