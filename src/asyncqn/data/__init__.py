"""Ratings: readers, the stored form, the data server, synthetic sets, and the cache of named sets.

May import: errors, kernels, storage.
"""

from asyncqn.data.cache import cache_dir, fetch, known_names, load
from asyncqn.data.convert import as_ratings
from asyncqn.data.ratings import Ratings
from asyncqn.data.readers import Reading, read_ratings
from asyncqn.data.server import DataServer
from asyncqn.data.store import open_ratings, save_ratings
from asyncqn.data.synthetic import PRESETS, synthetic_ratings

__all__ = [
    "PRESETS",
    "DataServer",
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
