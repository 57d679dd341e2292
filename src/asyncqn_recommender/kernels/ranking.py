"""The best items of many users: scores of a whole catalogue, and the n highest of each user.

Arithmetic is strict and goes item by item in the order of the factors, so that the scores of a user have the
same bits alone, in any batch and on any number of threads.
"""

from typing import Any, NamedTuple

import numpy as np

from asyncqn.kernels import kernel, strict_piece

USERS_AT_ONCE = 8
"""Users whose scores are computed from one tile of items while it is in the cache."""
TILE = 512
"""Items of a tile, whose factors are contiguous in memory, rank x items."""


class Catalogue(NamedTuple):
    """The items and users of a model in the form that `best_items` needs.

    With w_x = n_x / (n_x + trust), the weight of a pair, n / (n + trust) with n = min(n_u, n_m), equals
    min(w_u, w_m).
    """

    tiles: Any
    """The items' factors, tiles x rank x TILE."""
    item_weights: Any
    item_base: Any
    usable: Any
    """Mask of the items that may be in a list."""
    user_factors: Any
    user_weights: Any
    user_base: Any


@strict_piece
def _products(g, h, tile, of_g, of_h):
    """of_g[m] = sum over k of g[k] tile[k, m], and of_h with h: two users share each load of the tile."""
    rank = tile.shape[0]
    of_g[:] = 0
    of_h[:] = 0
    k = 0
    while k + 4 <= rank:
        a = g[k]
        b = g[k + 1]
        c = g[k + 2]
        d = g[k + 3]
        e = h[k]
        f = h[k + 1]
        i = h[k + 2]
        j = h[k + 3]
        first = tile[k]
        second = tile[k + 1]
        third = tile[k + 2]
        fourth = tile[k + 3]
        for m in range(TILE):
            w = first[m]
            x = second[m]
            y = third[m]
            z = fourth[m]
            # The parentheses fix the order of the sum, which must not depend on the compiler.
            of_g[m] += (a * w + b * x) + (c * y + d * z)
            of_h[m] += (e * w + f * x) + (i * y + j * z)
        k += 4
    while k < rank:
        a = g[k]
        e = h[k]
        first = tile[k]
        for m in range(TILE):
            of_g[m] += a * first[m]
            of_h[m] += e * first[m]
        k += 1


@strict_piece
def _blend(products, items, user, first, row):
    """row = w p + (1 - w) b, with w the smaller weight, b the sum of bases, and p the product.

    `items` is the catalogue; a `user` of -1 is unknown, with weight and base 0.  The row has the items from
    `first` on.
    """
    w_user = items.user_weights[user] if user >= 0 else 0.0
    b_user = items.user_base[user] if user >= 0 else 0.0
    w_items = items.item_weights[first : first + row.size]
    b_items = items.item_base[first : first + row.size]
    for m in range(row.size):
        w = min(w_user, w_items[m])
        b = b_user + b_items[m]
        row[m] = w * products[m] + (1.0 - w) * b


@strict_piece
def _sift_down(scores, items, size):
    """Restore the heap below its root, which holds the worst: lowest score, then highest item."""
    at = 0
    score = scores[0]
    item = items[0]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            scores[other] < scores[child]
            or (scores[other] == scores[child] and items[other] > items[child])
        ):
            child = other
        if not (
            scores[child] < score or (scores[child] == score and items[child] > item)
        ):
            break
        scores[at] = scores[child]
        items[at] = items[child]
        at = child
    scores[at] = score
    items[at] = item


@kernel
def select(row, places, tops):
    """Write the items with the highest scores to `places`, best first, ties to the lower item; then -1.

    `places` and `tops` have the length of the wanted list; a score of -inf is never chosen.
    """
    n = places.size
    for k in range(n):
        tops[k] = -np.inf
        places[k] = row.size + k  # worse than any item of the same score
    for m in range(row.size):
        # The root is the worst of the best so far; an equal score does not replace it, so ties go to lower
        # items.
        if row[m] > tops[0]:
            tops[0] = row[m]
            places[0] = m
            _sift_down(tops, places, n)
    # Heapsort: the worst goes to the end, and the heap shrinks by one.
    for size in range(n - 1, 0, -1):
        worst = tops[0]
        item = places[0]
        tops[0] = tops[size]
        places[0] = places[size]
        tops[size] = worst
        places[size] = item
        _sift_down(tops, places, size)
    for k in range(n):
        if tops[k] == -np.inf:
            places[k] = -1


@kernel
def best_items(users, items, start, seen, scores, places, tops):
    """Write to places[j] and tops[j] the best items of users[j] and their scores, best first.

    `items` is the catalogue, and users[j] = -1 an unknown user.  Items that are not usable, and those of
    seen[start[u]:start[u + 1]], are left out; with an empty `start`, seen items are included.  `scores` is
    scratch space for `USERS_AT_ONCE` rows of items.
    """
    n_items = items.item_base.size
    factors = items.user_factors
    nobody = np.zeros(factors.shape[1], factors.dtype)
    products = np.empty((2, TILE), factors.dtype)
    for first in range(0, users.size, scores.shape[0]):
        block = users[first : first + scores.shape[0]]
        for t in range(items.tiles.shape[0]):
            left = t * TILE
            right = min(left + TILE, n_items)
            for j in range(0, block.size, 2):
                # Users in pairs; an odd last one is paired with nobody.
                u = block[j]
                v = block[j + 1] if j + 1 < block.size else -1
                g = factors[u] if u >= 0 else nobody
                h = factors[v] if v >= 0 else nobody
                _products(g, h, items.tiles[t], products[0], products[1])
                for side in range(min(2, block.size - j)):
                    row = scores[j + side, left:right]
                    _blend(products[side], items, block[j + side], left, row)
        for j in range(block.size):
            row = scores[j]
            u = block[j]
            for m in range(n_items):
                if not items.usable[m]:
                    row[m] = -np.inf
            if u >= 0 and start.size > 0:
                for s in range(start[u], start[u + 1]):
                    row[seen[s]] = -np.inf
            select(row, places[first + j], tops[first + j])
