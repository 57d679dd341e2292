"""Ratings on a data server of asyncqn: as the table that is served, and read from there.

A table of ratings has the columns user, item, rating and, where they are known, time and title.  A user or
an item without ratings has a row of its own, in which the rest is missing.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from asyncqn.errors import DamagedFile
from asyncqn.models.remote import ServedTable
from asyncqn_recommender.data.arrow import arrow, encode_column
from asyncqn_recommender.data.columns import RatingColumns, choose
from asyncqn_recommender.data.ratings import Ratings, with_titles

SCHEME = "flight://"
TITLE = "title"
SMALL = 1 << 26
MAX_EXPANSION = 100
"""Texts up to this size pass; more may have at most this ratio to the bytes that arrived."""


def table_of(ratings: Ratings | str | os.PathLike[str]) -> Any:
    """Return ratings, or those of this name or path, as the table that a data server serves."""
    if not isinstance(ratings, Ratings):
        from asyncqn_recommender.data.cache import load

        ratings = load(ratings)
    lib = arrow()
    idle_users = np.setdiff1d(np.arange(ratings.n_users), ratings.users)
    idle_items = np.setdiff1d(np.arange(ratings.n_items), ratings.items)
    more = len(idle_users) + len(idle_items)
    users = np.append(ratings.users, [*idle_users, *[-1] * len(idle_items)])
    items = np.append(ratings.items, [*[-1] * len(idle_users), *idle_items])

    def spelled(places: Any, words: Any) -> Any:
        # Of a dictionary: texts of NumPy would all be as wide as the longest.
        codes = lib.array(places.astype(np.int32), mask=places < 0)
        texts = lib.array(words.tolist())
        return lib.DictionaryArray.from_arrays(codes, texts).cast(texts.type)

    def numbers(values: Any) -> Any:
        nulls = lib.nulls(more, lib.array(values[:0]).type)
        return lib.chunked_array([lib.array(values), nulls])

    columns = {
        "user": spelled(users, ratings.user_ids),
        "item": spelled(items, ratings.item_ids),
        "rating": numbers(ratings.values),
    }
    if ratings.times is not None:
        columns["time"] = numbers(ratings.times)
    if ratings.titles is not None:
        columns[TITLE] = spelled(items, ratings.titles)
    return lib.table(columns)


def read_served(
    url: str, columns: RatingColumns, *, duplicates: str = "error", clicks: bool = False
) -> Ratings:
    """Return the ratings in a table of a data server, read by ranges of rows."""
    lib, compute = arrow(), arrow("pyarrow.compute")
    table = ServedTable(url)
    about = table.describe()
    names = choose(list(about.columns), url, columns, clicks)
    titled = [TITLE] if TITLE in about.columns else []
    wanted = list(dict.fromkeys([*names.present, *titled]))
    # A factorization needs the counts of all users and items, so that every row is read.
    parts = [part for _, part in table.rows(about, wanted, 0, about.rows)]
    types = lib.schema([(name, about.columns[name]) for name in wanted])
    whole = lib.concat_tables([types.empty_table(), *parts])
    for column in whole.columns:
        _require_narrow(column, url)
    user, item = whole[names.user], whole[names.item]
    # A row without a rating names a user without ratings, or an item.
    idle = compute.xor(compute.is_null(user), compute.is_null(item))
    if names.rating is not None:
        idle = compute.and_(idle, compute.is_null(whole[names.rating]))
    ratings = Ratings.from_table(
        whole.filter(compute.invert(idle)),
        *columns,
        duplicates=duplicates,
        clicks=clicks,
    )
    # The tables of ids have those without ratings as well.
    user_ids = encode_column(user.drop_null(), "user")[1]
    item_ids = encode_column(item.drop_null(), "item")[1]
    user_places = np.searchsorted(user_ids, ratings.user_ids).astype(np.int32)
    item_places = np.searchsorted(item_ids, ratings.item_ids).astype(np.int32)
    ratings = replace(
        ratings,
        users=user_places[ratings.users],
        items=item_places[ratings.items],
        user_ids=user_ids,
        item_ids=item_ids,
    )
    if not titled:
        return ratings
    pairs = zip(item.to_pylist(), whole[TITLE].to_pylist())
    return with_titles(ratings, {id_: word for id_, word in pairs if word})


def _require_narrow(column: Any, url: str) -> None:
    """Raise `DamagedFile` for texts that NumPy would blow up: one long id makes every short one as wide."""
    if column.type != "string":
        return
    distinct = column.unique()
    longest = max((len(word or "") for word in distinct.to_pylist()), default=0)
    if 4 * longest * len(distinct) > max(SMALL, MAX_EXPANSION * column.nbytes):
        raise DamagedFile(f"{url} has a column that is far wider than its texts.")
