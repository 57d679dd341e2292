"""Names for annotations: the protocols of `asyncqn.core`, the objects that they exchange, and tables."""

from asyncqn.columns import Table
from asyncqn.core.algorithm import (
    ALGORITHM_EXTRAS,
    Algorithm,
    Commit,
    Standing,
    Task,
    extra,
)
from asyncqn.core.problem import PROBLEM_EXTRAS, Array, Counters, Problem, Rows
from asyncqn.core.request import Callback, Engine, Progress, Request, StoppingRule
from asyncqn.core.stages import Stage, Stages
from asyncqn.core.streams import Stream

__all__ = [
    "ALGORITHM_EXTRAS",
    "PROBLEM_EXTRAS",
    "Algorithm",
    "Array",
    "Callback",
    "Commit",
    "Counters",
    "Engine",
    "Problem",
    "Progress",
    "Request",
    "Rows",
    "Stage",
    "Stages",
    "Standing",
    "StoppingRule",
    "Stream",
    "Table",
    "Task",
    "extra",
]
