"""New ratings for a learned model: some rows of factors are solved again, and the others stay.

Every row solved here is the exact minimum of the objective given the rows of the other side: a separate ridge
problem with the ridge prior + alpha * (its ratings), for items times `columns`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require_count
from asyncqn.types import Array, Rows
from asyncqn_recommender.data import Ratings
from asyncqn_recommender.data.duplicates import resolve
from asyncqn_recommender.data.ids import Ids
from asyncqn_recommender.kernels.als import Grouped, grouped, solve_side
from asyncqn_recommender.model import (
    DAMPING,
    FactorModel,
    groups_of,
    measure_offsets,
    measure_popularity,
    rated_items,
)
from asyncqn_recommender.problems.implicit_factorization import solve_white, whiten


def fold_in(model: FactorModel, new: Ratings) -> FactorModel:
    """Return the model with the ratings of `new`: rows of its users are solved, and the items stay unchanged.

    A known user's new ratings are added to the stored ones, and replace those of the same items.  Ratings of
    items that the model does not know affect only the user's mean.
    """
    items = model.item_index(new.item_ids)[new.items]
    # Items without factors say nothing about a user's taste, but something about the user's mean.
    strange = (items < 0) | (model.offsets.item_counts[items] == 0)
    model, _, users, _ = _enlarged(model, new, ~strange)
    if model.confidence is not None:
        offsets = model.offsets._replace(user_counts=np.diff(model.seen.start))
        return _solve_users(replace(model, offsets=offsets), users)
    side = groups_of(model.seen, users)
    owner = np.repeat(np.arange(len(users)), np.diff(side.start))
    # The offset of a user is computed as in `measure_offsets`, from all ratings of the user, old and new.
    over = side.values - model.offsets.mean - model.offsets.items[side.others]
    left = np.bincount(owner, over, len(users)).astype(np.float64)
    counts = np.diff(side.start).astype(np.float64)
    # `users` is sorted and has every user of `new`, so that the search finds each exactly.
    their_users = model.user_index(new.user_ids)[new.users[strange]]
    place = np.searchsorted(users, their_users)
    over = new.values[strange] - model.offsets.mean
    left += np.bincount(place, over, len(users))
    counts += np.bincount(place, minlength=len(users))
    offsets = model.offsets._replace(
        users=model.offsets.users.copy(), user_counts=np.diff(model.seen.start)
    )
    offsets.users[users] = left / (counts + DAMPING)
    return _solve_users(replace(model, offsets=offsets), users)


def partial_fit(model: FactorModel, new: Ratings, rounds: int) -> FactorModel:
    """Return the model with all of `new`, including new users and items.

    Offsets, mean and range are computed again over all ratings.  Then the rows of users with new ratings are
    solved, and `rounds` times the rows of items with new ratings and of those users.  A new item begins at
    the mean of the rated items.
    """
    require_count("rounds", rounds)
    rated = model.offsets.item_counts > 0
    mean_row = model.item_factors[rated].mean(axis=0)
    # A zero row would be a saddle point from which a new item could not move.
    model, ratings, users, items = _enlarged(
        model, new, np.ones(len(new), dtype=bool), mean_row
    )
    if model.confidence is None:
        lowest = min(model.lowest, float(new.values.min()))
        highest = max(model.highest, float(new.values.max()))
        model = replace(
            model, offsets=measure_offsets(ratings), lowest=lowest, highest=highest
        )
    else:
        model = replace(model, offsets=measure_popularity(ratings))
    # The groups by user are in `model.seen`; those by item are needed here alone, and so are not stored.
    by_item = grouped(ratings.items, ratings.users, ratings.values, ratings.n_items)
    # Users come first: the rows of new users are zeros, from which no item could learn.
    model = _solve_users(model, users)
    for _ in range(rounds):
        model = _solve_users(_solve_items(model, by_item, items), users)
    return model


def _enlarged(
    model: FactorModel,
    new: Ratings,
    keep: npt.NDArray[np.bool_],
    item_row: Array | None = None,
) -> tuple[FactorModel, Ratings, Rows, Rows]:
    """Add the ids and the kept ratings of `new` to the model; new items only with `item_row`.

    Returns the model, all its ratings, and the users and items with new ones.
    """
    coming = new.user_ids[np.unique(new.users)]
    user_ids, old_users = _union(model.user_ids, coming, "user")
    item_ids, old_items = model.item_ids, np.arange(len(model.item_ids))
    if item_row is not None:
        coming = new.item_ids[np.unique(new.items)]
        item_ids, old_items = _union(model.item_ids, coming, "item")
    larger = replace(
        model,
        user_ids=user_ids,
        item_ids=item_ids,
        user_factors=_spread(model.user_factors, old_users, len(user_ids), 0.0),
        item_factors=_spread(model.item_factors, old_items, len(item_ids), item_row),
        titles=_titles(model, item_ids, new),
        # The other offsets are measured again where there are new items.
        offsets=model.offsets._replace(
            users=_spread(model.offsets.users, old_users, len(user_ids), 0.0),
            user_counts=_spread(model.offsets.user_counts, old_users, len(user_ids), 0),
        ),
    )
    users = larger.user_index(new.user_ids)[new.users]
    items = larger.item_index(new.item_ids)[new.items]
    # The user of every stored rating, by its index in the larger table.
    before = np.repeat(old_users, np.diff(model.seen.start))
    # The newer rating of a pair comes after the older one, so that it is the last; clicks add up.
    policy = "last" if model.confidence is None else "sum"
    both = Ratings(
        np.append(before, users[keep]).astype(np.int32),
        np.append(old_items[model.seen.others], items[keep]).astype(np.int32),
        np.append(model.seen.values, new.values[keep]),
        user_ids,
        item_ids,
    )
    ratings = resolve(both, policy)[0]
    larger = replace(larger, seen=rated_items(ratings))
    return larger, ratings, np.unique(users), np.unique(items[keep])


def _solve_users(model: FactorModel, users: Rows) -> FactorModel:
    """Return the model with the rows of these users solved given the items."""
    factors = model.user_factors.copy()
    side = groups_of(model.seen, users)
    factors[users] = _solved(model, side, model.item_factors)
    return replace(model, user_factors=factors)


def _solve_items(model: FactorModel, by_item: Grouped, items: Rows) -> FactorModel:
    """Return the model with the rows of these items solved given the users."""
    factors = model.item_factors.copy()
    # A ridge that differs by column equals a uniform ridge on rescaled columns; in the dtype of the factors,
    # because a float64 divisor would change the type that kernels receive.
    root = np.sqrt(model.columns).astype(factors.dtype)
    side = groups_of(by_item, items)
    factors[items] = _solved(model, side, model.user_factors / root) / root
    return replace(model, item_factors=factors)


def _solved(model: FactorModel, side: Grouped, fixed: Array) -> Array:
    """Return rows of factors given those of the other side."""
    rank = fixed.shape[1]
    flat = np.ascontiguousarray(fixed).ravel()
    if model.confidence is not None:
        strengths = side.values.astype(np.float64)
        c = (1.0 + model.confidence * strengths).astype(np.float32)
        # w = c - 1, computed from the rounded c, as in `ImplicitFactorization`, so that both agree bit for
        # bit.
        weights = c.astype(fixed.dtype) - 1
        white = whiten(flat, rank, model.prior)
        solved = solve_white(side._replace(values=c), white, weights, rank)
        return solved.reshape(-1, rank)
    counts = np.diff(side.start)
    rows = np.zeros((len(counts), rank), fixed.dtype)
    ridges = (model.prior + model.alpha * counts).astype(fixed.dtype)
    solve_side(side, flat, ridges, rank, rows.reshape(-1))
    # Without ratings the minimum is 0.
    rows[counts == 0] = 0.0
    return rows


def _union(old: Ids, new: Ids, what: str) -> tuple[Ids, Rows]:
    """Return the sorted table of old and new ids, and the positions of the old ones in it."""
    try:
        new = new.astype(np.str_ if old.dtype.kind == "U" else np.int64)
    except (ValueError, OverflowError):
        raise BadInput(
            f"the model's {what}s have integers as ids: give such ids."
        ) from None
    table = np.union1d(old, new)
    return table, np.searchsorted(table, old)


def _spread(
    rows: npt.NDArray[Any], places: Rows, length: int, rest: Any
) -> npt.NDArray[Any]:
    """Return rows at new positions in a longer array, whose other rows are `rest`."""
    if length == len(rows):
        return rows
    spread = np.empty((length, *rows.shape[1:]), rows.dtype)
    spread[:] = rest
    spread[places] = rows
    return spread


def _titles(
    model: FactorModel, item_ids: Ids, new: Ratings
) -> npt.NDArray[np.str_] | None:
    if model.titles is None or len(item_ids) == len(model.item_ids):
        return model.titles
    # Titles that the model knows take precedence over new ones of the same items.
    words = {} if new.titles is None else dict(zip(new.item_ids, new.titles))
    words |= zip(model.item_ids, model.titles)
    return np.array([words.get(id_, "") for id_ in item_ids], np.str_)
