"""Public names of the laboratory: what an experiment measures, and the search of parameters."""

from .limits import delay_limit, largest_curvature
from .tuning.measure import HOPELESS, accepted_share, commits_within, time_to
from .tuning.problem import TuningProblem, known_algorithm
from .tuning.processes import SharedPool, Tell, pool
from .tuning.spaces import FixedTrial
from .tuning.tuner import Study, load_study, read_study, tune

__all__ = [
    "HOPELESS",
    "FixedTrial",
    "SharedPool",
    "Study",
    "Tell",
    "TuningProblem",
    "accepted_share",
    "commits_within",
    "delay_limit",
    "known_algorithm",
    "largest_curvature",
    "load_study",
    "pool",
    "read_study",
    "time_to",
    "tune",
]
