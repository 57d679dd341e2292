"""Titles from MovieLens files, and invented ones for synthetic items."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput
from asyncqn_recommender.data.ids import whole_number
from asyncqn_recommender.data.ratings import Ratings

_FIRST = (
    *("Amber", "Borrowed", "Broken", "Crimson", "Distant", "Drowsy", "Electric"),
    *("Endless", "Forgotten", "Gentle", "Golden", "Hidden", "Hollow", "Hungry"),
    *("Invisible", "Jealous", "Last", "Lonely", "Lucky", "Midnight", "Northern"),
    *("Paper", "Patient", "Quiet", "Reluctant", "Restless", "Salty", "Second"),
    *("Secret", "Seventh", "Silver", "Sleepless", "Stolen", "Stubborn", "Tender"),
    *("Thirsty", "Twisted", "Unlikely", "Velvet", "Wandering", "Wicked", "Winter"),
)
_SECOND = (
    *("Accordion", "Alibi", "Almanac", "Anchor", "Apprentice", "Archipelago", "Astronomer"),
    *("Avalanche", "Balcony", "Bicycle", "Cartographer", "Carousel", "Compass", "Cousin"),
    *("Diplomat", "Echo", "Elevator", "Ferry", "Gardener", "Harbour", "Heist"),
    *("Holiday", "Inheritance", "Labyrinth", "Lantern", "Librarian", "Lighthouse", "Locksmith"),
    *("Mechanic", "Meridian", "Neighbour", "Orchard", "Orchestra", "Parade", "Passenger"),
    *("Pendulum", "Postcard", "Quarry", "Rehearsal", "Rendezvous", "River", "Satellite"),
    *("Stationmaster", "Suitcase", "Telegram", "Thunderstorm", "Tightrope", "Understudy", "Vineyard"),
    *("Volcano", "Waltz", "Watchmaker", "Windmill"),
)
_FRAMES = ("The {} {}", "{} {}", "A {} {}", "Return of the {} {}", "My {} {}", "Beyond the {} {}")


MAX_TITLE_LENGTH = 1000
"""Longest title, in characters: the table has a fixed width, so one endless title could fill the memory."""


def read_titles(data: bytes, name: str, *, skip_bad: bool) -> tuple[dict[int, str], int]:
    """Return titles by movie id from movies.dat, movies.csv or u.item, and the number of bad lines skipped.

    The 1M and 100K files are Latin-1 and the later ones UTF-8; text that is not UTF-8 is read as Latin-1.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    titles: dict[int, str] = {}
    bad = 0
    for line, fields in _records(text, name):
        number = whole_number(fields[0]) if len(fields) >= 2 else None
        if number is not None and number >= 0:
            # NumPy drops trailing null characters, so none are kept at all.
            titles[number] = fields[1].replace("\0", "").strip()
        elif skip_bad:
            bad += 1
        else:
            raise BadInput(f"{name}, line {line}: expected a movie id and a title; fix it or skip bad rows.")
    return titles, bad


def with_titles(ratings: Ratings, titles: dict[int, str]) -> Ratings:
    """Return the ratings with titles; an item with a title and no rating is added to the table of items.

    The shapes are then the published ones: 3,883 movies in 1M, of which 3,706 are rated.
    """
    # The tables of ids are sorted, and stay so.
    item_ids = np.union1d(ratings.item_ids, np.fromiter(titles, dtype=np.int64, count=len(titles)))
    place = np.searchsorted(item_ids, ratings.item_ids).astype(np.int32)
    words = np.array([titles.get(i, "")[:MAX_TITLE_LENGTH] for i in item_ids.tolist()], dtype=np.str_)
    return replace(ratings, items=place[ratings.items], item_ids=item_ids, titles=words)


def invent_titles(count: int, rng: np.random.Generator) -> npt.NDArray[np.str_]:
    """Return `count` different titles composed from small lists of words, with a year."""
    pairs = len(_FIRST) * len(_SECOND)
    combinations = rng.permutation(pairs * len(_FRAMES))
    years = 1930 + (95 * rng.beta(4.0, 1.2, size=count)).astype(np.int64)
    titles = []
    for k in range(count):
        # Beyond all combinations, the titles begin again as sequels, so that they stay different.
        part, place = divmod(k, len(combinations))
        frame, pair = divmod(int(combinations[place]), pairs)
        first, second = divmod(pair, len(_SECOND))
        title = re.sub("^A (?=[AEIOU])", "An ", _FRAMES[frame].format(_FIRST[first], _SECOND[second]))
        titles.append(f"{title}{f', Part {part + 1}' if part else ''} ({years[k]})")
    return np.array(titles, dtype=np.str_)


def _records(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    if name.endswith(".csv"):
        reader = csv.reader(io.StringIO(text, newline=""))
        try:
            # The first line of movies.csv names the columns.
            next(reader, None)
            yield from ((reader.line_num, fields) for fields in reader if fields)
        except csv.Error as error:
            raise BadInput(f"{name}, line {reader.line_num}: {error}.") from error
        return
    separator = "::" if name.endswith(".dat") else "|"
    for line, record in enumerate(text.split("\n"), start=1):
        if record.strip():
            yield line, record.rstrip("\r").split(separator)
