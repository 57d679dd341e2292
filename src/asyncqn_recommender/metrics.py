"""Quality of ranked lists: precision, recall, NDCG, MAP, hit rate and coverage at k.

Each metric except coverage is a mean over users with at least one relevant item.  With h_i = 1 if the i-th
item of a user's list is relevant, and R relevant items of that user,

    precision = sum h_i / k                 recall   = sum h_i / R
    ndcg      = sum h_i / log2(i + 1)  /  sum over i <= min(k, R) of 1 / log2(i + 1)
    map       = sum h_i (precision at i)  /  min(k, R)
    hit rate  = 1 where any h_i is, else 0

and coverage is the share of the recommendable items that occur in some list.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require, require_count
from asyncqn_recommender import ranking
from asyncqn_recommender.data import Ratings
from asyncqn_recommender.model import FactorModel, groups_of

NAMES = ("precision", "recall", "ndcg", "map", "hit_rate")


def list_sums(
    hits: npt.NDArray[np.bool_], relevant: npt.NDArray[np.integer]
) -> dict[str, float]:
    """Return sums over users of the metrics above; `hits` is users x k, `relevant` counts each user's
    items."""
    k = hits.shape[1]
    places = np.arange(1, k + 1)
    gains = 1.0 / np.log2(places + 1.0)
    n_hits = hits.sum(axis=1)
    # A list of k items cannot contain more than k relevant ones.
    reachable = np.minimum(relevant, k)
    precisions = np.cumsum(hits, axis=1) / places
    # The gain of a list that has all its relevant items first.
    best = np.cumsum(gains)[reachable - 1]
    return {
        "precision": float((n_hits / k).sum()),
        "recall": float((n_hits / relevant).sum()),
        "ndcg": float((hits @ gains / best).sum()),
        "map": float(((precisions * hits).sum(axis=1) / reachable).sum()),
        "hit_rate": float((n_hits > 0).sum()),
    }


def rank_quality(
    model: FactorModel, test: Ratings, k: int, threshold: float | None, threads: int = 1
) -> dict[str, float]:
    """Return the metrics above for the lists of all users of `test`, without the items that they have seen.

    A user's items in `test` are relevant, or those rated at least `threshold`; items that the model cannot
    recommend are among them, and are never found.  Ratings that the model was fitted on are excluded, and
    counted as `seen`.
    """
    require_count("k", k)
    fresh = ~_seen(model, test)
    require(
        bool(fresh.any()),
        "the model was fitted on all of these ratings: evaluate it on others.",
    )
    n_seen = len(test) - int(fresh.sum())
    # Lists leave out what the model has seen, so that such ratings could never be found.
    test = test.take(fresh)
    if threshold is not None:
        test = test.take(test.values >= threshold)
        require(
            len(test) > 0,
            f"no rating reaches the threshold {threshold}: lower the threshold.",
        )
    counts = np.bincount(test.users, minlength=test.n_users)
    users = np.flatnonzero(counts)
    # A pair is one number; a test item that the model does not know matches nothing.
    items = model.item_index(test.item_ids)[test.items]
    n_items = len(model.item_ids)
    numbered = test.users.astype(np.int64) * n_items + items
    relevant = np.sort(numbered[items >= 0])
    # For the coverage: items that occur in some list.
    shown = np.zeros(n_items, dtype=bool)
    totals = dict.fromkeys(NAMES, 0.0)
    known = model.user_index(test.user_ids[users])
    for first in range(0, len(users), ranking.USERS_PER_CHUNK):
        part = slice(first, first + ranking.USERS_PER_CHUNK)
        # Seen items are always left out: they are not in the test either.
        places, _ = ranking.best_items(model, known[part], k, True, threads)
        shown[places[places >= 0]] = True
        pairs = users[part][:, None] * n_items + places
        # A pair beyond the last relevant one is compared with the last, and does not match it.
        last = max(0, len(relevant) - 1)
        at = np.minimum(np.searchsorted(relevant, pairs), last)
        # A catalogue may be shorter than k.
        hits = np.zeros((len(places), int(k)), dtype=bool)
        if len(relevant):
            hits[:, : pairs.shape[1]] = (places >= 0) & (relevant[at] == pairs)
        for name, value in list_sums(hits, counts[users[part]]).items():
            totals[name] += value
    usable = int(model.catalogue.usable.sum())
    return {
        "k": int(k),
        **{name: total / len(users) for name, total in totals.items()},
        "coverage": float(shown.sum()) / max(1, usable),
        "users": len(users),
        "seen": n_seen,
    }


def _seen(model: FactorModel, test: Ratings) -> npt.NDArray[np.bool_]:
    """Return a mask of the ratings of `test` whose pairs the model was fitted on."""
    users = model.user_index(test.user_ids)[test.users]
    items = model.item_index(test.item_ids)[test.items]
    own_users = np.unique(users[users >= 0])
    seen = groups_of(model.seen, own_users)
    n_items = len(model.item_ids)
    # Pairs of the users of `test` alone: the model may know millions of others.
    owners = np.repeat(own_users, np.diff(seen.start))
    model_pairs = owners * n_items + seen.others
    seen_pairs = np.isin(users * n_items + items, model_pairs)
    return (users >= 0) & (items >= 0) & seen_pairs
