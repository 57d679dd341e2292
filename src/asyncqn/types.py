"""Names for annotations: the protocols of `asyncqn.core`, and what passes between their implementations."""

from asyncqn.core.algorithm import (
    ALGORITHM_EXTRAS,
    Algorithm,
    Commit,
    Standing,
    Task,
    extra,
)
from asyncqn.core.problem import POTENTIAL_EXTRAS, Array, Counters, Potential, Rows
from asyncqn.core.request import Callback, Engine, Progress

__all__ = [
    "ALGORITHM_EXTRAS",
    "POTENTIAL_EXTRAS",
    "Algorithm",
    "Array",
    "Callback",
    "Commit",
    "Counters",
    "Engine",
    "Potential",
    "Progress",
    "Rows",
    "Standing",
    "Task",
    "extra",
]
