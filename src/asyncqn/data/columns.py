"""Which column of a table holds the user, the item and the rating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asyncqn.errors import BadInput

_COMMON = {
    "user": ("user", "userid", "users", "uid", "u", "username", "reviewerid", "customerid", "memberid"),
    "item": (
        *("item", "itemid", "items", "iid", "i", "movie", "movieid", "product", "productid"),
        *("book", "bookid", "isbn", "asin", "parentasin", "song", "songid", "trackid", "artistid", "gameid"),
    ),
    "rating": ("rating", "ratings", "score", "stars", "value", "overall", "r", "bookrating", "playcount"),
}


class Names(NamedTuple):
    """The three column names of a table of ratings."""

    user: str
    item: str
    rating: str


def choose(found: Sequence[str], where: str, user: str | None, item: str | None, rating: str | None) -> Names:
    """The columns asked for, or the ones with common names; `BadInput` lists what was found."""
    listed = ", ".join(repr(name[:40]) for name in found[:30]) or "none"
    chosen = []
    for role, asked in (("user", user), ("item", item), ("rating", rating)):
        if asked is None:
            fits = [name for common in _COMMON[role] for name in found if _bare(name) == common]
            if not fits:
                raise BadInput(
                    f"{where}: no column looks like the {role}; there are {listed}: "
                    f"name the right one with --{role}-column ({role}=...), or check the delimiter."
                )
            chosen.append(fits[0])
        elif asked in found:
            chosen.append(asked)
        else:
            raise BadInput(f"{where}: there is no column {asked!r} for the {role}, only {listed}.")
    names = Names(*chosen)
    if len(set(names)) < 3:
        raise BadInput(f"{where}: user, item and rating must be three different columns, not {tuple(names)}.")
    for name in names:
        if list(found).count(name) > 1:
            raise BadInput(f"{where}: more than one column is named {name!r}: rename them.")
    return names


def _bare(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
