"""The idea: the numbers of a run are a function of algorithm, problem, start, seed and schedule.

May import: errors, types, parameters, kernels.
"""

from asyncqn.core.execute import Finished, Loop, Segment, Watch, execute
from asyncqn.core.master import Master
from asyncqn.core.request import Request
from asyncqn.core.schedule import Schedule
from asyncqn.core.stages import Stage, Stages
from asyncqn.core.stopping import Ended, Stopping
from asyncqn.core.streams import Stream
from asyncqn.core.worker import WorkerSteps

__all__ = [
    "Ended",
    "Finished",
    "Loop",
    "Master",
    "Request",
    "Schedule",
    "Segment",
    "Stage",
    "Stages",
    "Stopping",
    "Stream",
    "Watch",
    "WorkerSteps",
    "execute",
]
