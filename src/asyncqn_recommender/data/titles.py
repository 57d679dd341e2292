"""Titles from MovieLens files, and invented ones for synthetic items."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from asyncqn_recommender.data.columns import Names
from asyncqn_recommender.data.ids import whole_number
from asyncqn_recommender.data.ratings import Ratings
from asyncqn_recommender.data.text import BadRows, Layout, words_table

_FIRST = (
    "Amber Borrowed Broken Crimson Distant Drowsy Electric Endless Forgotten "
    "Gentle Golden Hidden Hollow Hungry Invisible Jealous Last Lonely Lucky "
    "Midnight Northern Paper Patient Quiet Reluctant Restless Salty Second "
    "Secret Seventh Silver Sleepless Stolen Stubborn Tender Thirsty Twisted "
    "Unlikely Velvet Wandering Wicked Winter"
)
_SECOND = (
    "Accordion Alibi Almanac Anchor Apprentice Archipelago Astronomer Avalanche "
    "Balcony Bicycle Cartographer Carousel Compass Cousin Diplomat Echo "
    "Elevator Ferry Gardener Harbour Heist Holiday Inheritance Labyrinth "
    "Lantern Librarian Lighthouse Locksmith Mechanic Meridian Neighbour Orchard "
    "Orchestra Parade Passenger Pendulum Postcard Quarry Rehearsal Rendezvous "
    "River Satellite Stationmaster Suitcase Telegram Thunderstorm Tightrope "
    "Understudy Vineyard Volcano Waltz Watchmaker Windmill"
)
_FRAMES = (
    "The {} {}",
    "{} {}",
    "A {} {}",
    "Return of the {} {}",
    "My {} {}",
    "Beyond the {} {}",
)


MAX_TITLE_LENGTH = 1000
"""Longest title, in characters: the table has a fixed width, so one endless title could fill the memory."""


def read_titles(data: bytes, name: str, bad: BadRows) -> dict[int, str]:
    """Return titles by movie id from movies.dat, movies.csv or u.item.

    The 1M and 100K files are Latin-1 and the later ones UTF-8; a file that is not UTF-8 is read as Latin-1.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    kind = PurePosixPath(name).suffix
    delimiter = {".csv": ",", ".dat": "::"}.get(kind, "|")
    width = 1 + text.partition("\n")[0].count(delimiter)
    columns = ["movie", "title", *map(str, range(2, width))]
    layout = Layout(
        columns, Names("movie", "title", None), delimiter, header=kind == ".csv"
    )
    table, numbers, faults = words_table(text.encode(), layout, bad.label, ["movie"])
    titles: dict[int, str] = {}
    for number, word, title in zip(
        numbers.tolist(), *(column.to_pylist() for column in table.columns)
    ):
        movie = whole_number(word)
        if movie is None or movie < 0:
            faults[number] = f"the movie id {word[:40]!r} is not a non-negative integer"
        else:
            # NumPy drops trailing null characters, so none are kept at all.
            titles[movie] = str(title or "").replace("\0", "").strip()
    bad.add_all(faults)
    return titles


def with_titles(ratings: Ratings, titles: dict[int, str]) -> Ratings:
    """Return the ratings with titles; an item with a title and no rating is added to the table of items.

    The shapes are then the published ones: 3,883 movies in 1M, of which 3,706 are rated.
    """
    # The tables of ids are sorted, and stay so.
    item_ids = np.union1d(
        ratings.item_ids, np.fromiter(titles, dtype=np.int64, count=len(titles))
    )
    place = np.searchsorted(item_ids, ratings.item_ids).astype(np.int32)
    words = np.array(
        [titles.get(i, "")[:MAX_TITLE_LENGTH] for i in item_ids.tolist()], dtype=np.str_
    )
    return replace(ratings, items=place[ratings.items], item_ids=item_ids, titles=words)


def invent_titles(count: int, rng: np.random.Generator) -> npt.NDArray[np.str_]:
    """Return `count` different titles composed from small lists of words, with a year."""
    first_words, second_words = _FIRST.split(), _SECOND.split()
    pairs = len(first_words) * len(second_words)
    combinations = rng.permutation(pairs * len(_FRAMES))
    years = 1930 + (95 * rng.beta(4.0, 1.2, size=count)).astype(np.int64)
    titles = []
    for k in range(count):
        # Beyond all combinations, the titles begin again as sequels, so that they stay different.
        part, place = divmod(k, len(combinations))
        frame, pair = divmod(int(combinations[place]), pairs)
        first, second = divmod(pair, len(second_words))
        title = re.sub(
            "^A (?=[AEIOU])",
            "An ",
            _FRAMES[frame].format(first_words[first], second_words[second]),
        )
        titles.append(f"{title}{f', Part {part + 1}' if part else ''} ({years[k]})")
    return np.array(titles, dtype=np.str_)
