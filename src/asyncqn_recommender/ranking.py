"""The best items of many users at once.

A user alone and a user among thousands get the same list with the same scores: both come from
`kernels.ranking`, and among equal scores the item that is first in the table wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require, require_count
from asyncqn.types import Rows, Table
from asyncqn_recommender.data.ids import id_array
from asyncqn_recommender.kernels import ranking
from asyncqn_recommender.kernels.ranking import Catalogue

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


def catalogue(model: FactorModel) -> Catalogue:
    """Return the catalogue of a model, which caches it: see `FactorModel.catalogue`."""
    offsets = model.offsets
    n_items, rank = model.item_factors.shape
    # Whole tiles, so that the inner loop of the kernel has a fixed length; zeros fill the last one.
    length = -(-n_items // ranking.TILE) * ranking.TILE
    padded = np.zeros((length, rank), model.item_factors.dtype)
    padded[:n_items] = model.item_factors
    # tiles x rank x TILE: the k-th factors of a tile's items are neighbours in memory.
    tiles = padded.reshape(-1, ranking.TILE, rank).transpose(0, 2, 1)
    return Catalogue(
        np.ascontiguousarray(tiles),
        _weights(offsets.item_counts, model.trust),
        offsets.mean + offsets.items,
        offsets.item_counts > 0,
        model.user_factors,
        _weights(offsets.user_counts, model.trust),
        offsets.users,
    )


def _weights(counts: Rows, trust: float) -> Floats:
    """Return n / (n + trust), and 0 where n = 0."""
    n = counts.astype(np.float64)
    return np.divide(n, n + trust, out=np.zeros_like(n), where=n > 0)


def best_items(
    model: FactorModel, users: Rows, n: int, exclude_seen: bool, threads: int = 1
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the n best items of each user by index, and their scores, both len(users) x n or fewer.

    Where a list is shorter, item -1 fills it; an unknown user has index -1.
    """
    require_count("n", n)
    # A list cannot be longer than the catalogue.
    n = min(int(n), len(model.item_ids))
    users = np.ascontiguousarray(users, dtype=np.int64)
    places = np.empty((len(users), n), np.int64)
    tops = np.empty((len(users), n))
    start = model.seen.start if exclude_seen else np.empty(0, np.int64)
    items = model.catalogue

    def task(first: int) -> None:
        part = slice(first, first + USERS_PER_TASK)
        at_once = min(ranking.USERS_AT_ONCE, len(users[part]))
        scores = np.empty((at_once, len(model.item_ids)))
        seen = model.seen.others
        ranking.best_items(
            users[part], items, start, seen, scores, places[part], tops[part]
        )

    # Threads take tasks of equal size, and each writes to its own rows.
    with ThreadPoolExecutor(threads) as pool:
        # `list` waits for all tasks and raises the error of a failed one.
        list(pool.map(task, range(0, len(users), USERS_PER_TASK)))
    return places, tops


def tables(
    model: FactorModel, users: Any, n: int, exclude_seen: bool, threads: int
) -> Iterator[tuple[int, Table]]:
    """Yield tables user, rank, item, score, basis for chunks of users, with the number of users in each.

    `users` None means all users of the model.
    """
    names = model.user_ids if users is None else id_array(users)
    require(
        names.ndim == 1,
        f"users must be a flat list of ids, not of shape {names.shape}.",
    )
    indices = np.arange(len(names))
    if users is not None:
        indices = model.user_index(names) if len(names) else np.empty(0, np.int64)
        # Known ids keep the type of the model's table; unknown ones are returned as they were given.
        names = model.user_ids[indices] if (indices >= 0).all() else names
    # At least one chunk, so that an empty list of users gives an empty table with its columns.
    for first in range(0, max(1, len(indices)), USERS_PER_CHUNK):
        part = slice(first, first + USERS_PER_CHUNK)
        places, scores = best_items(model, indices[part], n, exclude_seen, threads)
        listed = places >= 0
        row, column = np.nonzero(listed)
        basis = np.where(known(model, indices[part]), FACTORS, BASELINE)
        columns = {
            "user": names[part][row],
            "rank": column + 1,
            "item": model.item_ids[places[listed]],
            "score": scores[listed],
            "basis": basis[row],
        }
        yield len(indices[part]), Table(columns)


def known(model: FactorModel, users: Rows) -> npt.NDArray[np.bool_]:
    """Return a mask of the users, by index, with ratings of items that the model knows."""
    # Index -1 reads the last user's count, which the first condition makes harmless.
    return (users >= 0) & (model.offsets.user_counts[users] > 0)
