"""Run: the result of a minimisation, on any engine.

A `Run` is plain data: it can be saved (`runs.archive`), replayed (`runs.replay`), changed (`runs.what_if`)
and drawn (`view.plots`); the methods below import these modules only when they are called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asyncqn.columns import Table
from asyncqn.core.outcome import Outcome
from asyncqn.core.schedule import Schedule, rows_computed
from asyncqn.parameters import Folder, checked
from asyncqn.runs.draws import Draws
from asyncqn.types import Algorithm, Array, Problem, extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from asyncqn.cluster.cluster import Cluster


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a minimisation: the final iterate, why the run ended, and all that a replay needs.

    Attributes
    ----------
    theta : ndarray of shape (dim,)
        The final point; `x` is another name for it.
    fun : float
        U at `theta`.
    status : Outcome
        How the run ended: "converged", "completed", "stopped", "stalled", "diverged", "interrupted" or
        "terminated".
    message : str
        Why it ended, in one sentence.
    schedule : Schedule
        Who read which version, and which commit delivered it.
    metrics : Table
        One row per evaluation: `commit`, `time`, `fun` and others.
    counters : dict of str to int
        Totals, such as the number of lost workers or dropped updates.
    manifest : dict
        Plain data about problem, algorithm, engine, seed and versions of software.
    theta0 : ndarray of shape (dim,)
        The starting point.
    fingerprints : ndarray of uint32
        A checksum of theta per commit, by which a replay finds the first difference.
    algorithm : Algorithm, optional
        The algorithm; None in a loaded run that does not describe it.
    problem : Problem, optional
        The problem; None in a loaded run that does not describe it.
    keep : Draws, optional
        Every k-th iterate, where `minimize` was given `keep`.
    results : mapping from str to ndarray, default {}
        Further arrays that the algorithm reports, by name.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, run.success, run.nit == run.schedule.commits
    ('converged', True, True)
    """

    theta: Array
    fun: float
    status: Outcome
    """See `core.outcome.Outcome`.  It is also a string, so `run.status == "converged"` works."""
    message: str
    schedule: Schedule
    metrics: Table
    counters: dict[str, int]
    manifest: dict[str, Any]
    theta0: Array = field(repr=False)
    fingerprints: npt.NDArray[np.uint32] = field(repr=False)
    algorithm: Algorithm | None = None
    problem: Problem | None = field(default=None, repr=False)
    keep: Draws | None = field(default=None, repr=False)
    """Every k-th iterate, where `minimize` was given `keep`."""
    results: Mapping[str, Array] = field(default_factory=dict, repr=False)
    """Further arrays that the algorithm reports, by name."""

    def __repr__(self) -> str:
        return (
            f"<Run {self.status}: {self.message} fun = {self.fun:.6g} after {self.schedule.commits} commits, "
            f"time {self.time:.6g}>"
        )

    @property
    def x(self) -> Array:
        """The final point, under SciPy's name."""
        return self.theta

    @property
    def success(self) -> bool:
        """True where the run converged or reached its target; a stochastic method must have made all commits
        without ending above its start (`core.outcome`)."""
        return self.status.is_success(exact=bool(self.manifest.get("exact")))

    @property
    def nit(self) -> int:
        """The number of commits."""
        return self.schedule.commits

    @property
    def passes(self) -> float:
        """Rows whose gradient was computed, over n_data; NaN if the algorithm does not report its rows.

        Updates that made no commit count here, and not in `max_passes`.
        """
        if extra(self.algorithm, "rows_of") is None:
            return math.nan
        # The manifest and not `problem`: a loaded run may have no problem.
        n_data = int(self.manifest["problem"]["n_data"])
        return (
            float(rows_computed(self.algorithm, self.schedule, n_data).sum()) / n_data
        )

    @property
    def grad_norm(self) -> float:
        """|grad U| at the last accepted point of a method with exact gradients; NaN for other methods."""
        norms = self.metrics.get("grad_norm")
        if norms is None or not len(norms):
            return math.nan
        return float(norms[-1])

    @property
    def time(self) -> float:
        """The time of the last commit, in the engine's unit."""
        return float(self.schedule.time[-1]) if len(self.schedule) else 0.0

    def what_if(
        self,
        *,
        fresh: bool = False,
        without_worker: int | None = None,
        workers: int | None = None,
        cluster: Cluster | None = None,
        algorithm: Algorithm | None = None,
        seed: int | None = None,
    ) -> Run:
        """Compute the run again with something changed, and the same rows and noise otherwise.

        Random numbers belong to a worker and to the number of its step, so everything that is not changed
        stays the same bit for bit, and the difference of two such runs is an effect and not luck.

        Parameters
        ----------
        fresh : bool, default False
            Whether every update is computed on the version just before its commit: no staleness.
        without_worker : int, optional
            A worker whose updates are left out; the others do what they did, when they did it.
        workers : int, optional
            Number of workers of the run's own cluster, which for a real run is the one fitted to it
            (`Cluster.from_run`).
        cluster : Cluster, optional
            Simulate the schedule on this cluster.
        algorithm : Algorithm, optional
            Another algorithm, on the same schedule where it has the same stages, else on one that is
            simulated on the run's own cluster.
        seed : int, optional
            Another seed: other rows and other noise, and other delays where a schedule is simulated.

        Returns
        -------
        Run
            The changed run.

        Examples
        --------
        >>> import asyncqn as aq
        >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
        >>> engine = aq.Simulator(aq.Cluster(workers=10, worker_std=0.3))
        >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=engine, commits=300)
        >>> fresh = run.what_if(fresh=True)
        >>> int(run.schedule.staleness.max()) > 9, int(fresh.schedule.staleness.max())
        (True, 0)
        >>> run.what_if(without_worker=3).schedule.commits < 300
        True
        """
        # Imported here, because these modules import this one.
        from asyncqn.runs.what_if import Change, changed

        return changed(
            self, Change(fresh, without_worker, workers, cluster, algorithm, seed)
        )

    def plot(self) -> Figure:
        """Draw the run: its convergence, the staleness of its updates, and who computed when.

        Returns
        -------
        matplotlib.figure.Figure
            A notebook shows it; `figure.savefig("run.png")` writes it to a file.  It is made without pyplot.

        Raises
        ------
        MissingExtra
            Where matplotlib is not installed: pip install 'asyncqn[plot]'.

        Examples
        --------
        >>> import asyncqn as aq
        >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
        >>> run = aq.minimize(problem, engine=aq.Simulator(aq.Cluster(workers=4)))
        >>> [axes.get_title(loc="left").split(":")[0] for axes in run.plot().axes]
        ['convergence', 'staleness', 'computations']
        """
        from asyncqn.view.plots import overview

        return overview(self)

    def summary(self) -> dict[str, Any]:
        """Return the numbers that the command line prints as JSON."""
        # Numbers that are NaN are left out: JSON has none, and scripts would have to test for them.
        staleness = self.schedule.staleness
        out: dict[str, Any] = {
            "status": str(self.status),
            "success": self.success,
            "message": self.message,
            "commits": self.schedule.commits,
            "time": self.time,
            "fun": self.fun,
            **{
                name: x
                for name in ("grad_norm", "passes")
                if math.isfinite(x := getattr(self, name))
            },
            "staleness_mean": float(staleness.mean()) if staleness.size else 0.0,
            **self.counters,
        }
        optimum = extra(self.problem, "optimum")
        if optimum:
            out["error"] = (self.fun - optimum) / abs(optimum)
        return out

    @checked
    def save(self, folder: Folder) -> Path:
        """Write the run to `folder`, completely or not at all; an older run there is replaced.

        Parameters
        ----------
        folder : str or path
            Folder to write; its parent is created.  A folder with other contents is refused.

        Returns
        -------
        Path
            The folder.
        """
        from asyncqn.runs.archive import save_run

        return save_run(self, folder)
