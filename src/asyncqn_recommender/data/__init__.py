"""Ratings: readers, the stored form, synthetic sets, and the cache of named sets.

Reading order: `ratings` (the table), `readers` with `sources` and `arrow` (files), `store`
(memory maps), `cache` (named sets), `served` (the data server).
"""

from asyncqn_recommender.data.cache import cache_dir, fetch, known_names, load
from asyncqn_recommender.data.ratings import Ratings, as_ratings
from asyncqn_recommender.data.readers import Reading, read_ratings
from asyncqn_recommender.data.store import open_ratings, save_ratings
from asyncqn_recommender.data.synthetic import PRESETS, synthetic_ratings

__all__ = [
    "PRESETS",
    "Ratings",
    "Reading",
    "as_ratings",
    "cache_dir",
    "fetch",
    "known_names",
    "load",
    "open_ratings",
    "read_ratings",
    "save_ratings",
    "synthetic_ratings",
]
