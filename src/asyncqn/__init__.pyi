"""The public names and where they live: the one list, read by type checkers and by `__init__` itself."""

from .algorithms import (
    ASLBFGS,
    LBFGS,
    MBLBFGS,
    SGD,
    SGLD,
    AsyncSAGA,
    AsyncSGD,
    BlockLBFGS,
    DelayAdaptiveSGD,
    DifferenceLBFGS,
    GrowingLBFGS,
    MetricLBFGS,
    MomentumLBFGS,
    Rennala,
    Ringmaster,
    StagedLBFGS,
    TableLBFGS,
)
from .algorithms.defaults import default_algorithm
from .algorithms.quasi_newton.table_lbfgs import table_algorithm
from .cluster.cluster import Cluster
from .cluster.laws import Constant, Exponential, LogNormal, Pareto, TimeLaw, Trace
from .cluster.simulate import simulate
from .core.schedule import Schedule
from .data.libsvm import read_libsvm
from .engines.mpi.engine import MPI
from .engines.processes.engine import Processes
from .engines.ray.engine import Ray
from .engines.simulator import Simulator
from .engines.threads import Threads
from .errors import AsyncqnError, BadInput, DamagedFile, ReplayMismatch, StabilityWarning
from .lab.blame import blame
from .lab.plan import plan
from .minimize import minimize
from .models.adapters.finite_sum import FiniteSum
from .models.adapters.jax_loss import from_jax
from .models.adapters.torch_module import from_torch
from .models.factorization.implicit_factorization import ImplicitFactorization
from .models.factorization.matrix_factorization import MatrixFactorization
from .models.factorization.profiled_factorization import ProfiledFactorization
from .models.least_squares import LeastSquares
from .models.linear_gaussian import LinearGaussian
from .models.logistic import LogisticRegression
from .models.poisson import PoissonRegression
from .models.robust import RobustRegression
from .models.softmax import SoftmaxRegression
from .recommender.estimator import Recommender
from .resume import resume
from .runs.draws import Draws
from .runs.replay import replay
from .runs.run import Run, load_run
from .types import Algorithm, Engine, Potential

__version__: str

__all__ = [
    "ASLBFGS",
    "LBFGS",
    "MBLBFGS",
    "MPI",
    "SGD",
    "SGLD",
    "Algorithm",
    "AsyncSAGA",
    "AsyncSGD",
    "AsyncqnError",
    "BadInput",
    "BlockLBFGS",
    "Cluster",
    "Constant",
    "DamagedFile",
    "DelayAdaptiveSGD",
    "DifferenceLBFGS",
    "Draws",
    "Engine",
    "Exponential",
    "FiniteSum",
    "GrowingLBFGS",
    "ImplicitFactorization",
    "LeastSquares",
    "LinearGaussian",
    "LogNormal",
    "LogisticRegression",
    "MatrixFactorization",
    "MetricLBFGS",
    "MomentumLBFGS",
    "Pareto",
    "PoissonRegression",
    "Potential",
    "Processes",
    "ProfiledFactorization",
    "Ray",
    "Recommender",
    "Rennala",
    "ReplayMismatch",
    "Ringmaster",
    "RobustRegression",
    "Run",
    "Schedule",
    "Simulator",
    "SoftmaxRegression",
    "StabilityWarning",
    "StagedLBFGS",
    "TableLBFGS",
    "Threads",
    "TimeLaw",
    "Trace",
    "blame",
    "default_algorithm",
    "from_jax",
    "from_torch",
    "load_run",
    "minimize",
    "plan",
    "read_libsvm",
    "replay",
    "resume",
    "simulate",
    "table_algorithm",
]
