"""The public names and where they live: the one list, read by type checkers and by `__init__` itself."""

from .data import (
    PRESETS,
    Ratings,
    Reading,
    as_ratings,
    cache_dir,
    fetch,
    known_names,
    load,
    open_ratings,
    read_ratings,
    save_ratings,
    synthetic_ratings,
)
from .estimator import Recommender
from .problems.implicit_factorization import ImplicitFactorization
from .problems.matrix_factorization import MatrixFactorization
from .problems.profiled_factorization import ProfiledFactorization
from .staged import StagedLBFGS

__all__ = [
    "PRESETS",
    "ImplicitFactorization",
    "MatrixFactorization",
    "ProfiledFactorization",
    "Ratings",
    "Reading",
    "Recommender",
    "StagedLBFGS",
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
