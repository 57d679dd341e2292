"""The algorithm for a problem and a number of workers, when the user names none.

The first line that applies decides:

- If the problem has a metric of samples, or names an algorithm of its own: that one, which may wait.
- If its rows make 100 parts, four per worker, each worth half a message: `TableLBFGS`, which never waits.
- Otherwise: `ExactLBFGS`, all rows if they are few, or samples that grow to all rows (`exact.choice`).

`waits=False` asks for `TableLBFGS`, `waits=True` for a method that may wait.  None has a step size, so nothing
is left to set.
"""

from __future__ import annotations

from asyncqn.algorithms.exact.choice import exact_algorithm
from asyncqn.algorithms.exact.inverse import METRIC_EXTRAS
from asyncqn.algorithms.fit import offers
from asyncqn.algorithms.table.choice import (
    PARTS,
    PARTS_PER_WORKER,
    MasterCost,
    MessageCost,
    most_parts,
    table_algorithm,
)
from asyncqn.core.stages import Stages
from asyncqn.parameters import Workers, checked
from asyncqn.types import Algorithm, Problem, extra

TOLERANCE = 1e-8
"""Default tolerance of `core.stopping`."""
MAX_PASSES = 10_000
"""Default number of passes after which a run that has not converged ends."""


@checked
def default_algorithm(
    problem: Problem,
    workers: Workers,
    *,
    waits: bool | None = None,
    message: MessageCost = 10.0,
    master: MasterCost = 0.1,
) -> Algorithm:
    """Return the algorithm that `minimize` uses when it is given none.

    Parameters
    ----------
    problem : Problem
        The problem: its number of rows, its dimension and the metric that it offers decide.
    workers : int
        Number of workers, W.
    waits : bool, optional
        Whether the method may wait for slow workers: False returns `TableLBFGS`, which never does, and True
        a method that may. By default the problem decides.
    message : float, default 10.0
        Time of a message to the master and back, in units of one row's gradient.
    master : float, default 0.1
        Time that the master takes for an update, in the same units.

    Returns
    -------
    Algorithm
        The algorithm with all parameters set.

    Examples
    --------
    >>> import asyncqn as aq
    >>> aq.default_algorithm(aq.LinearGaussian.random(dim=10, n_data=300), workers=2)
    ExactLBFGS(blocks=2, pieces=4, samples=0, inverse='pairs', memory=100, curvature=0)
    """
    table = table_algorithm(problem, workers, message, master)
    if waits is False:
        return table
    own, metric = extra(problem, "default_algorithm"), offers(problem, METRIC_EXTRAS)
    if own is not None and not metric:
        algorithm: Algorithm = own(workers)
        return algorithm
    most = min(table.parts, most_parts(problem.n_data, workers, message, master))
    if not (waits or metric) and most >= max(PARTS, PARTS_PER_WORKER * workers):
        return table
    return exact_algorithm(problem, workers)


def most_commits(algorithm: object) -> int:
    """Return the default limit on the commits of a run."""
    stages: Stages = getattr(algorithm, "stages", ())
    each_update = bool(stages) and not stages[-1].waits
    # Where each update is a commit, a pass over P parts is P commits; otherwise a version is a pass.
    commits_per_pass = stages[-1].parts or 1 if each_update else 1
    return sum(stage.commits or 0 for stage in stages) + MAX_PASSES * commits_per_pass


def default_evaluate(algorithm: object, commits: int | None) -> int:
    """Return the default interval between two rows of the metric table, in commits.

    `commits` is the number of commits of the run, or None if it ends by convergence.
    """
    least: int = getattr(algorithm, "evaluate_every", 1)
    # About two hundred rows in all.
    return least if commits is None else max(least, commits // 200)
