"""asyncqn: asynchronous stochastic quasi-Newton optimization, simulated and real, replayed to the bit."""

from typing import TYPE_CHECKING, Any

from asyncqn.algorithms import (
    ASLBFGS,
    LBFGS,
    MBLBFGS,
    SGD,
    SGLD,
    AsyncSGD,
    BlockLBFGS,
    GrowingLBFGS,
    MomentumLBFGS,
    StagedLBFGS,
)
from asyncqn.algorithms.defaults import default_algorithm
from asyncqn.core.cluster import Cluster
from asyncqn.core.replay import replay
from asyncqn.core.run import Run, load_run
from asyncqn.core.schedule import Schedule
from asyncqn.core.simulation import simulate
from asyncqn.engines.mpi.engine import MPI
from asyncqn.engines.ray.engine import Ray
from asyncqn.engines.simulator import Simulator
from asyncqn.engines.threads import Threads
from asyncqn.errors import AsyncqnError, BadInput, DamagedFile, ReplayMismatch, StabilityWarning
from asyncqn.minimize import minimize
from asyncqn.potentials.factorization.matrix_factorization import MatrixFactorization
from asyncqn.potentials.factorization.profiled_factorization import ProfiledFactorization
from asyncqn.potentials.linear_gaussian import LinearGaussian
from asyncqn.potentials.logistic import LogisticRegression
from asyncqn.resume import resume
from asyncqn.types import Algorithm, Engine, Potential

if TYPE_CHECKING:
    from asyncqn.recommender.estimator import Recommender

__version__ = "0.2.0.dev0"

__all__ = [
    "ASLBFGS",
    "LBFGS",
    "MBLBFGS",
    "MPI",
    "SGD",
    "SGLD",
    "Algorithm",
    "AsyncSGD",
    "AsyncqnError",
    "BadInput",
    "BlockLBFGS",
    "Cluster",
    "DamagedFile",
    "Engine",
    "GrowingLBFGS",
    "LinearGaussian",
    "LogisticRegression",
    "MatrixFactorization",
    "MomentumLBFGS",
    "Potential",
    "ProfiledFactorization",
    "Ray",
    "Recommender",
    "ReplayMismatch",
    "Run",
    "Schedule",
    "Simulator",
    "StabilityWarning",
    "StagedLBFGS",
    "Threads",
    "default_algorithm",
    "load_run",
    "minimize",
    "replay",
    "resume",
    "simulate",
]


def __getattr__(name: str) -> Any:
    # The recommender brings the readers of ratings along, which nothing else here needs.
    if name == "Recommender":
        from asyncqn.recommender.estimator import Recommender

        return Recommender
    raise AttributeError(f"module 'asyncqn' has no attribute {name!r}")
