"""The public names and where they live: the one list, read by type checkers and by `__init__` itself."""

from collections.abc import Callable

from .algorithms.defaults import default_algorithm
from .algorithms.exact.choice import exact_algorithm
from .algorithms.exact.exact_lbfgs import ExactLBFGS
from .algorithms.paper.as_lbfgs import ASLBFGS
from .algorithms.paper.async_sgd import AsyncSGD
from .algorithms.paper.mb_lbfgs import MBLBFGS
from .algorithms.rivals.async_saga import AsyncSAGA
from .algorithms.rivals.sgd_family import SGD, DelayAdaptiveSGD, Rennala, Ringmaster
from .algorithms.sampling.sgld import SGLD
from .algorithms.sampling.shared_metric_hmc import SharedMetricHMC
from .algorithms.table.table_lbfgs import TableLBFGS
from .checks.testing import check_algorithm, check_problem
from .cluster import laws as times
from .cluster.cluster import Cluster
from .cluster.virtual_time import simulate
from .core import stages
from .core.outcome import Outcome
from .core.request import Progress
from .core.schedule import Schedule
from .core.stopping import Patience
from .draws import Samples
from .engines.mpi.engine import MPI
from .engines.processes.engine import Processes
from .engines.ray.engine import Ray
from .engines.recorded import Recorded
from .engines.simulator import Simulator
from .engines.threads import Threads
from .errors import (
    AsyncqnError,
    BadInput,
    DamagedFile,
    ReplayMismatch,
    SamplingWarning,
    StabilityWarning,
)
from .lab.blame import blame
from .lab.plan import plan
from .minimize import minimize, starting_point
from .models.adapters.constrained import Bounded, Constrained
from .models.adapters.finite_sum import FiniteSum
from .models.adapters.jax_loss import from_jax
from .models.adapters.log_density import LogDensity
from .models.adapters.torch_module import from_torch
from .models.least_squares import LeastSquares
from .models.linear_gaussian import LinearGaussian
from .models.logistic import LogisticRegression
from .models.poisson import PoissonRegression
from .models.robust import RobustRegression
from .models.server import DataServer
from .models.softmax import SoftmaxRegression
from .resume import resume
from .runs.archive import load_run
from .runs.replay import replay
from .runs.run import Run
from .sample import sample
from .types import Algorithm, Engine, Problem

__version__: str

def lazy_names(
    package: str,
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]: ...

__all__ = [
    "ASLBFGS",
    "MBLBFGS",
    "MPI",
    "SGD",
    "SGLD",
    "Algorithm",
    "AsyncSAGA",
    "AsyncSGD",
    "AsyncqnError",
    "BadInput",
    "Bounded",
    "Cluster",
    "Constrained",
    "DamagedFile",
    "DataServer",
    "DelayAdaptiveSGD",
    "Engine",
    "ExactLBFGS",
    "FiniteSum",
    "LeastSquares",
    "LinearGaussian",
    "LogDensity",
    "LogisticRegression",
    "Outcome",
    "Patience",
    "PoissonRegression",
    "Problem",
    "Processes",
    "Progress",
    "Ray",
    "Recorded",
    "Rennala",
    "ReplayMismatch",
    "Ringmaster",
    "RobustRegression",
    "Run",
    "Samples",
    "SamplingWarning",
    "Schedule",
    "SharedMetricHMC",
    "Simulator",
    "SoftmaxRegression",
    "StabilityWarning",
    "TableLBFGS",
    "Threads",
    "blame",
    "check_algorithm",
    "check_problem",
    "default_algorithm",
    "exact_algorithm",
    "from_jax",
    "from_torch",
    "load_run",
    "minimize",
    "plan",
    "replay",
    "resume",
    "sample",
    "simulate",
    "stages",
    "starting_point",
    "times",
]
