"""FactorModel: the arrays that a recommender has learned, and predictions and lists from them.

The prediction for user u and item m blends factors with a baseline,

    y(u, m) = w f_m.g_u + (1 - w) (mu + b_m + b_u),     w = n / (n + trust),  n = min(n_u, n_m)

where n_u, n_m count ratings, and the offsets b are damped means of the residuals from the mean mu.  Our own
choice: ridge factors pull rows with few ratings towards 0, and the baseline pulls them towards the mean.  In
a model of clicks trust is 0, so that w = 1 if both are known, and the baseline of an item is the share of the
users who have clicked it.  An unknown user or item has n = 0 and offset 0, so no case is special: the
prediction for an unknown user is the item's damped mean, for an unknown item the user's, and for both mu.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require, require_count
from asyncqn.types import Array, Rows
from asyncqn_recommender.data import Ratings
from asyncqn_recommender.data.ids import Ids, id_array, lookup, plain_ids
from asyncqn_recommender.kernels.als import Grouped, grouped
from asyncqn_recommender.kernels.ranking import Catalogue
from asyncqn_recommender.ranking import (
    BASELINE,
    FACTORS,
    best_items,
    catalogue,
    known,
)

DAMPING = 10.0
"""Number of ratings at the mean by which an offset is damped."""
CHUNK = 1 << 18
"""Number of predictions made at once, which bounds the memory of the gathered rows."""

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.integer[Any]]


class Recommendation(NamedTuple):
    """An item with its score; `title` is None if the ratings had no titles.

    `basis` is "factors", or "baseline" for a user without ratings in the model.
    """

    id: Any
    title: str | None
    score: float
    basis: str = FACTORS


class Offsets(NamedTuple):
    """mu, b_m and b_u, and the number of ratings of each item and user."""

    mean: float
    items: Floats
    users: Floats
    item_counts: Rows
    user_counts: Rows

    def at(self, users: Indices, items: Indices) -> Floats:
        """Return mu + b_m + b_u; index -1 has offset 0."""
        # `np.where` evaluates both branches; index -1 reads the last entry, which is not used.
        b_items = np.where(items >= 0, self.items[items], 0.0)
        b_users = np.where(users >= 0, self.users[users], 0.0)
        return np.asarray(self.mean + b_items + b_users)


def measure_offsets(ratings: Ratings) -> Offsets:
    """Return b_m = sum (y - mu) / (n_m + d), then b_u = sum (y - mu - b_m) / (n_u + d), with d = DAMPING."""
    mean = float(ratings.values.mean(dtype=np.float64))
    n_items = np.bincount(ratings.items, minlength=ratings.n_items)
    n_users = np.bincount(ratings.users, minlength=ratings.n_users)
    # sum (y - mu) as sum y - n mu: no array of residuals is made.
    items = np.bincount(ratings.items, ratings.values, ratings.n_items) - mean * n_items
    items /= n_items + DAMPING
    users = np.bincount(ratings.users, ratings.values, ratings.n_users) - mean * n_users
    users -= np.bincount(ratings.users, items[ratings.items], ratings.n_users)
    return Offsets(mean, items, users / (n_users + DAMPING), n_items, n_users)


def measure_popularity(clicks: Ratings) -> Offsets:
    """Return, for clicks, mu = 0, b_m = the share of the users who have clicked m, and b_u = 0."""
    n_items = np.bincount(clicks.items, minlength=clicks.n_items)
    n_users = np.bincount(clicks.users, minlength=clicks.n_users)
    share = n_items / max(1, int((n_users > 0).sum()))
    return Offsets(0.0, share, np.zeros(clicks.n_users), n_items, n_users)


@dataclass(frozen=True, eq=False)
class FactorModel:
    """Factors (one row per index), offsets, tables of ids, and the items that users have seen.

    `prior` and `alpha` give the ridge of a row.
    """

    item_factors: Array
    user_factors: Array
    offsets: Offsets
    user_ids: Ids
    item_ids: Ids
    titles: npt.NDArray[np.str_] | None
    seen: Grouped
    """Items and ratings by user."""
    lowest: float
    highest: float
    prior: float
    alpha: float
    trust: float
    clip: bool
    columns: Floats
    """Factors on the ridge of an item row, see `column_ridges`."""
    confidence: float | None = None
    """Confidence of a click in a model of clicks; None in a model of ratings."""

    def user_index(self, ids: Any) -> Rows:
        """Return dense indices of user ids, -1 for unknown ones."""
        return _index(self.user_ids, ids, "user")

    def item_index(self, ids: Any) -> Rows:
        """Return dense indices of item ids, -1 for unknown ones."""
        return _index(self.item_ids, ids, "item")

    def scores(self, users: Rows, items: Rows) -> Floats:
        """Return the blend above for pairs of indices, without clipping."""
        out = np.empty(len(users))
        for part in _chunks(len(users)):
            u = users[part]
            m = items[part]
            base = self.offsets.at(u, m)
            n = np.minimum(self.offsets.user_counts[u], self.offsets.item_counts[m])
            known_pairs = (u >= 0) & (m >= 0)
            n = np.where(known_pairs, n, 0).astype(np.float64)
            rated = n > 0
            # With trust = 0 and n = 0 the quotient would be 0 / 0.
            w = np.divide(n, n + self.trust, out=np.zeros_like(n), where=rated)
            product = np.einsum(
                "nk,nk->n", self.user_factors[u], self.item_factors[m], dtype=np.float64
            )
            by_factors = np.where(rated, w * product, 0.0)
            out[part] = by_factors + (1.0 - w) * base
        return out

    def predict(self, users: Rows, items: Rows) -> Floats:
        """Return `scores`, clipped to the range of the ratings seen if `clip` is set."""
        scores = self.scores(users, items)
        # In place: the scores are this call's own.
        if self.clip:
            np.clip(scores, self.lowest, self.highest, out=scores)
        return scores

    def measure(self, ratings: Ratings) -> dict[str, float]:
        """Return root mean square error, mean absolute error, and the number of ratings compared."""
        require(
            len(ratings) > 0, "there are no ratings to compare with: give at least one."
        )
        users = self.user_index(ratings.user_ids)
        items = self.item_index(ratings.item_ids)
        squares = absolute = 0.0
        for part in _chunks(len(ratings)):
            predicted = self.predict(
                users[ratings.users[part]], items[ratings.items[part]]
            )
            errors = predicted - ratings.values[part]
            squares += float(np.square(errors).sum())
            absolute += float(np.abs(errors).sum())
        n = len(ratings)
        rmse = float(np.sqrt(squares / n))
        return {"rmse": rmse, "mae": absolute / n, "n": n}

    @cached_property
    def catalogue(self) -> Catalogue:
        """The items in the form that ranking needs."""
        return catalogue(self)

    def recommend(self, user: Any, n: int, exclude_seen: bool) -> list[Recommendation]:
        """Return the n rated items with the highest scores for a user, best first.

        A user without ratings receives the items with the highest baseline, which `basis` reports.
        """
        require(
            id_array(user).ndim == 0,
            "recommend takes one user: use recommend_many for a list of users.",
        )
        u = self.user_index([user])
        places, scores = best_items(self, u, n, exclude_seen)
        basis = FACTORS if known(self, u)[0] else BASELINE
        return self._listed(places[0], scores[0], basis)

    def similar(self, item: Any, n: int) -> list[Recommendation]:
        """Return the n items whose predicted ratings correlate best with this item's over all users.

        This is the correlation of f_i.g and f_j.g with g over the users.  Unlike the cosine of f_i and f_j it
        does not depend on the basis of the factors.
        """
        require(
            id_array(item).ndim == 0,
            "similar takes one item: call it once for each item.",
        )
        require_count("n", n)
        m = int(self.item_index([item])[0])
        if m < 0 or self.offsets.item_counts[m] == 0:
            raise BadInput(
                f"item {item} is unknown to the model: fit with ratings of this item."
            )
        F = self.item_factors.astype(np.float64)
        # Rows of users without ratings are zeros, and would distort the covariance.
        raters = self.user_factors[self.offsets.user_counts > 0].astype(np.float64)
        # `np.cov` of a single column is a number.
        C = np.atleast_2d(np.cov(raters, rowvar=False, ddof=0))
        # Standard deviation of f_m.g over the users; rounding can make a variance slightly negative.
        variances = np.einsum("mk,kl,ml->m", F, C, F)
        spread = np.sqrt(variances.clip(0.0))
        # An item with constant predictions correlates with nothing.
        flat = (spread == 0.0) | (self.offsets.item_counts == 0)
        product = spread * spread[m]
        scores = np.divide(
            F @ (C @ F[m]), product, out=np.zeros_like(spread), where=product > 0
        )
        scores[flat] = -np.inf
        scores[m] = -np.inf
        # Ties fall to the lower index, so that equal models give equal lists.
        order = np.argsort(-scores, kind="stable")
        order = order[: min(n, int(np.isfinite(scores).sum()))]
        return self._listed(order, scores[order], FACTORS)

    def _listed(self, places: Rows, scores: Floats, basis: str) -> list[Recommendation]:
        titles = self.titles
        return [
            Recommendation(
                self.item_ids[m].item(),
                None if titles is None else str(titles[m]),
                float(score),
                basis,
            )
            for m, score in zip(places, scores)
            if m >= 0
        ]


def column_ridges(rank: int, plain_columns: int | None, ratings: Ratings) -> Floats:
    """Return factors on the ridge of an item row, by column: max(1, k / plain_columns)^p; None: all 1.

    The first columns hold what most ratings share.  Further columns have a larger ridge, so that a rank that
    is too large does little harm.  With x ratings per row of either side, p = 90 / x, clipped to [1, 4]: with
    fewer ratings a column becomes noise earlier.  The numbers come from the experiment in
    docs/results/factorization.md.
    """
    if plain_columns is None:
        return np.ones(rank)
    # p = 90 / x with x = ratings / (users + items).
    power = 90.0 * (ratings.n_users + ratings.n_items) / len(ratings)
    return np.maximum(1.0, np.arange(1, rank + 1) / plain_columns) ** min(
        max(power, 1.0), 4.0
    )


def rated_items(ratings: Ratings) -> Grouped:
    """Return items and ratings grouped by user."""
    return grouped(ratings.users, ratings.items, ratings.values, ratings.n_users)


def groups_of(side: Grouped, rows: Rows) -> Grouped:
    """Return the groups of these rows, in this order."""
    lengths = (side.start[1:] - side.start[:-1])[rows]
    start = np.concatenate([[0], np.cumsum(lengths)])
    # For each place in the result, the distance from its group's old start to its new one is added.
    moves = side.start[rows] - start[:-1]
    places = np.arange(start[-1]) + np.repeat(moves, lengths)
    return Grouped(start, side.others[places], side.values[places])


def _index(table: Ids, ids: Any, what: str) -> Rows:
    words = id_array(ids)
    # A data frame with missing values turns integers into floats: 7.0 means the id 7.
    return lookup(table, plain_ids(words, what) if words.dtype.kind == "f" else words)


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))
