"""The best items of many users at once.

A user alone and a user among thousands get the same list with the same scores: both come from
`kernels.ranking`, and among equal scores the item that is first in the table wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require, require_count
from asyncqn.types import Array, Rows, Table
from asyncqn_recommender.data.ids import id_array
from asyncqn_recommender.kernels import ranking

if TYPE_CHECKING:
    from asyncqn_recommender.model import FactorModel

Floats = npt.NDArray[np.float64]

USERS_PER_CHUNK = 8192
"""Number of users whose lists are computed, and passed on, at once."""
USERS_PER_TASK = 512
"""Number of users that a thread takes at a time."""

FACTORS = "factors"
BASELINE = "baseline"
"""The basis of a list: the user's factors or, for users without ratings, the means of the items."""


class Catalogue(NamedTuple):
    """The items in the form that the kernel needs: factors in tiles, weights, bases, and a mask.

    With w_x = n_x / (n_x + trust), the weight of a pair, n / (n + trust) with n = min(n_u, n_m), equals
    min(w_u, w_m).
    """

    tiles: Array
    weights: Floats
    base: Floats
    usable: npt.NDArray[np.bool_]
    user_weights: Floats


def catalogue(model: FactorModel) -> Catalogue:
    """Return the catalogue of a model, which caches it: see `FactorModel.catalogue`."""
    offsets = model.offsets
    n_items, rank = model.item_factors.shape
    # Whole tiles, so that the inner loop of the kernel has a fixed length; zeros fill the last one.
    padded = np.zeros(
        (-(-n_items // ranking.TILE) * ranking.TILE, rank), model.item_factors.dtype
    )
    padded[:n_items] = model.item_factors
    return Catalogue(
        # tiles x rank x TILE: the k-th factors of a tile's items are neighbours in memory.
        np.ascontiguousarray(padded.reshape(-1, ranking.TILE, rank).transpose(0, 2, 1)),
        weights(offsets.item_counts, model.trust),
        offsets.mean + offsets.items,
        offsets.item_counts > 0,
        weights(offsets.user_counts, model.trust),
    )


def weights(counts: Rows, trust: float) -> Floats:
    """Return n / (n + trust), and 0 where n = 0."""
    n = counts.astype(np.float64)
    return np.divide(n, n + trust, out=np.zeros_like(n), where=n > 0)


def best_items(
    model: FactorModel, users: Rows, n: int, exclude_seen: bool, threads: int = 1
) -> tuple[Rows, Floats]:
    """Return indices (-1: no further item) and scores, users x n, of the best items of users by index."""
    require_count("n", n)
    items = model.catalogue
    n_items = len(model.item_ids)
    # A list cannot be longer than the catalogue.
    n = min(int(n), max(1, n_items))
    places = np.full((len(users), n), -1, np.int64)
    # -1 and -inf stay where a user has fewer than n items to choose from.
    tops = np.full((len(users), n), -np.inf)
    # An empty array tells the kernel to leave no item out.
    start = model.seen.start if exclude_seen else model.seen.start[:0]
    users = np.ascontiguousarray(users, dtype=np.int64)

    def task(first: int) -> None:
        part = slice(first, first + USERS_PER_TASK)
        ranking.best_items(
            users[part],
            model.user_factors,
            items.tiles,
            items.user_weights,
            items.weights,
            model.offsets.users,
            items.base,
            model.residual,
            items.usable,
            start,
            model.seen.others,
            np.empty((min(ranking.USERS_AT_ONCE, len(users[part])), n_items)),
            places[part],
            tops[part],
        )

    # Threads take tasks of equal size, and each writes to its own rows.
    tasks = range(0, len(users), USERS_PER_TASK)
    if threads == 1 or len(tasks) < 2:
        for first in tasks:
            task(first)
    else:
        with ThreadPoolExecutor(threads) as pool:
            # `list` waits for all tasks and raises the error of a failed one.
            list(pool.map(task, tasks))
    return places, tops


def tables(
    model: FactorModel, users: Any, n: int, exclude_seen: bool, threads: int
) -> Iterator[tuple[int, Table]]:
    """Yield tables user, rank, item, score, basis for chunks of users, with the number of users in each.

    `users` None means all users of the model.
    """
    if users is None:
        indices = np.arange(len(model.user_ids))
        names = model.user_ids
    else:
        asked = id_array(users)
        require(
            asked.ndim == 1,
            f"users must be a flat list of ids, not of shape {asked.shape}.",
        )
        indices = model.user_index(asked) if len(asked) else np.empty(0, np.int64)
        # Known ids keep the type of the model's table; unknown ones are returned as they were given.
        names = model.user_ids[indices] if (indices >= 0).all() else asked
    # At least one chunk, so that an empty list of users gives an empty table with its columns.
    for first in range(0, max(1, len(indices)), USERS_PER_CHUNK):
        part = slice(first, first + USERS_PER_CHUNK)
        places, scores = best_items(model, indices[part], n, exclude_seen, threads)
        found = places >= 0
        row, column = np.nonzero(found)
        basis = np.where(known(model, indices[part]), FACTORS, BASELINE)
        yield (
            len(indices[part]),
            Table(
                {
                    "user": names[part][row],
                    "rank": column + 1,
                    "item": model.item_ids[places[found]],
                    "score": scores[found],
                    "basis": basis[row],
                }
            ),
        )


def known(model: FactorModel, users: Rows) -> npt.NDArray[np.bool_]:
    """Return a mask of the users, by index, with ratings of items that the model knows."""
    # Index -1 reads the last user's count, which the first condition makes harmless.
    return (users >= 0) & (model.offsets.user_counts[users] > 0)
