"""The choice of the columns of a table that hold the user, the item, the rating and the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asyncqn.errors import BadInput, require

# Names are compared in lower case and without punctuation, so that "User-ID" is "userid".
_COMMON = {
    "user": "user userid users uid u username reviewerid customerid memberid",
    "item": (
        "item itemid items iid i movie movieid product productid book "
        "bookid isbn asin parentasin song songid trackid artistid gameid"
    ),
    "rating": "rating ratings score stars value overall r bookrating playcount",
    "time": (
        "timestamp time datetime date ts t unixreviewtime createdat ratedat "
        "reviewtime eventtime ratingtimestamp"
    ),
}


class RatingColumns(NamedTuple):
    """The column names that a user has given; None: choose a column with a common name."""

    user: str | None = None
    item: str | None = None
    rating: str | None = None
    time: str | None = None


class Names(NamedTuple):
    """The column names of a table of ratings; without a rating, rows are clicks."""

    user: str
    item: str
    rating: str | None
    time: str | None = None

    @property
    def present(self) -> list[str]:
        """The columns that the table has."""
        return [name for name in self if name is not None]


def choose(
    columns: Sequence[str], where: str, given: RatingColumns, clicks: bool = False
) -> Names:
    """Return the requested columns, or those with common names; raise `BadInput` where one is missing.

    With `clicks` the rating may be missing.
    """
    names: list[str | None] = []
    for role, name in zip(RatingColumns._fields, given):
        if name is not None:
            require(
                name in columns,
                f"{where}: there is no column {name!r} for the {role}, only "
                f"{_listing(columns)}.",
            )
        else:
            name = _common(columns, role)
            optional = role == "time" or (clicks and role == "rating")
            if name is None and not optional:
                raise _missing(columns, where, role)
        names.append(name)
    # A column can have only one role, and the time is the one that can be missing.
    if given.time is None and names[3] is not None:
        ambiguous = list(columns).count(names[3]) > 1
        names[3] = None if ambiguous or names[3] in names[:3] else names[3]
    chosen = Names(str(names[0]), str(names[1]), names[2], names[3])
    require(
        len(set(chosen.present)) == len(chosen.present),
        f"{where}: user, item, rating and time must be different columns, not "
        f"{', '.join(chosen.present)}.",
    )
    for name in chosen.present:
        require(
            list(columns).count(name) == 1,
            f"{where}: more than one column has the name {name!r}: rename them.",
        )
    return chosen


def _common(columns: Sequence[str], role: str) -> str | None:
    """Return the column with a common name for a role, or None."""
    # In the order of `_COMMON`, so that "user" wins over "uid" wherever the columns stand.
    bare = ["".join(c for c in name.casefold() if c.isalnum()) for name in columns]
    common = (name for name in _COMMON[role].split() if name in bare)
    name = next(common, None)
    return None if name is None else columns[bare.index(name)]


def _missing(columns: Sequence[str], where: str, role: str) -> BadInput:
    if all(name.replace(".", "", 1).isdigit() for name in columns):
        return BadInput(
            f"{where}: the first line must name the columns, not {_listing(columns)}: "
            "insert a line such as user,item,rating before it."
        )
    clicks = (
        "; if every row is a click, use clicks=True, --clicks, or --feedback implicit"
    )
    return BadInput(
        f"{where}: no column looks like the {role}; there are {_listing(columns)}: name "
        f"it with as_ratings(..., {role}=...) or --{role}, or check the delimiter"
        f"{clicks if role == 'rating' else ''}."
    )


def _listing(columns: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in columns[:30]) or "none"
