"""Run: what a minimisation returns, saved as one JSON file and one of arrays, loaded without pickle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn import storage
from asyncqn.core.outcome import Outcome, outcome_of
from asyncqn.core.schedule import Schedule, rows_computed
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.runs.checkpoint import metrics_of, with_prefix
from asyncqn.runs.draws import Draws
from asyncqn.runs.manifest import Manifest, rebuild_inputs
from asyncqn.runs.table import Table
from asyncqn.storage.serialise import to_json
from asyncqn.types import Algorithm, Array, Potential, extra

if TYPE_CHECKING:
    from asyncqn.cluster.cluster import Cluster

RUN = storage.Kind("asyncqn run", "run", "run.json", 3, ("arrays.npz", "draws.npy"))
"""Formats 1 and 2 had arrays.npz under that name, and 1 no checksum of run.json; both are still read."""

SCHEMA = {
    "theta": storage.Spec(storage.FLOATS, ("dim",)),
    "theta0": storage.Spec(storage.FLOATS, ("dim",)),
    "fingerprints": storage.Spec(("<u4",), ("commits",)),
    "schedule.worker": storage.Spec(storage.INT32, ("rows",)),
    "schedule.read": storage.Spec(storage.INT32, ("rows",)),
    "schedule.commit": storage.Spec(storage.INT32, ("rows",)),
    "schedule.time": storage.Spec(("<f8",), ("rows",)),
    "schedule.part": storage.Spec(storage.INT32, ("rows",), optional=True),
    "draws": storage.Spec(storage.FLOATS, ("draws", "dim"), optional=True),
    "results.*": storage.Spec(storage.FLOATS, None),
    "metrics.*": storage.Spec(("f", "i", "u", "b"), ("evaluations",)),
}


class RunDocument(msgspec.Struct):
    """What run.json must at least say."""

    status: str
    message: str
    fun: float | str
    counters: dict[str, Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]]
    manifest: Manifest


@dataclass(frozen=True, eq=False)
class Run:
    """The result: the final iterate, why it ended, and everything needed to compute it again.

    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, run.success, run.nit == run.schedule.commits
    ('converged', True, True)
    """

    theta: Array
    fun: float
    status: Outcome
    """How the run ended, an `Outcome`, which is also a string: "converged", "completed", "stopped",
    "stalled", "diverged", "interrupted" or "terminated".  `message` says why in a sentence."""
    message: str
    schedule: Schedule
    metrics: Table
    counters: dict[str, int]
    manifest: dict[str, Any]
    theta0: Array = field(repr=False)
    fingerprints: npt.NDArray[np.uint32] = field(repr=False)
    algorithm: Algorithm | None = None
    potential: Potential | None = field(default=None, repr=False)
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
        """theta, by SciPy's name."""
        return self.theta

    @property
    def success(self) -> bool:
        """Whether this is an answer: converged, at its target, or, for a stochastic method, all commits made
        without ending above the start (`core.outcome`)."""
        return self.status.is_success(exact=bool(self.manifest.get("exact")))

    @property
    def nit(self) -> int:
        """The number of commits."""
        return self.schedule.commits

    @property
    def passes(self) -> float:
        """Rows whose gradient was computed, over n_data; NaN where the algorithm does not say."""
        if extra(self.algorithm, "rows_of") is None:
            return math.nan
        n_data = int(self.manifest["potential"]["n_data"])
        return float(rows_computed(self.algorithm, self.schedule, n_data).sum()) / n_data

    @property
    def grad_norm(self) -> float:
        """|grad U| at the last point kept by a method with exact gradients; NaN for others."""
        found = self.metrics.get("grad_norm")
        return float(found[-1]) if found is not None and len(found) else math.nan

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
        """The run that would have been, had something been different: the same rows and noise otherwise.

        Random numbers belong to a worker and to the number of its step, so what is not changed stays the
        same to the bit, and the difference of two such runs is an effect and not luck.

        fresh: every answer is computed on the version just before its commit: no staleness.
        without_worker: nothing comes from this worker; the others do what they did, when they did it.
        cluster: on the schedule that this cluster gives; workers: on the run's own cluster (for a real run
        the one fitted to it, `Cluster.from_run`) with so many workers.
        algorithm: by another algorithm, on the same schedule where it asks for the same messages, else on
        one simulated on the run's own cluster.
        seed: with other rows and other noise; and other delays where a schedule is simulated.

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
        from asyncqn.runs.what_if import Change, changed

        return changed(self, Change(fresh, without_worker, workers, cluster, algorithm, seed))

    def summary(self) -> dict[str, Any]:
        """The numbers that the command line prints as JSON."""
        staleness = self.schedule.staleness
        out: dict[str, Any] = {
            "status": str(self.status),
            "success": self.success,
            "message": self.message,
            "commits": self.schedule.commits,
            "time": self.time,
            "fun": self.fun,
            **{name: x for name in ("grad_norm", "passes") if math.isfinite(x := getattr(self, name))},
            "staleness_mean": float(staleness.mean()) if staleness.size else 0.0,
            **self.counters,
        }
        optimum = extra(self.potential, "optimum")
        if optimum:
            out["error"] = (self.fun - optimum) / abs(optimum)
        return out

    def save(self, folder: str | Path) -> Path:
        """Write the run to `folder`, whole or not at all; an older run there is replaced."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "theta": self.theta,
            "theta0": self.theta0,
            "fingerprints": self.fingerprints,
            **{f"schedule.{name}": column for name, column in self.schedule.arrays().items()},
            **{f"metrics.{name}": column for name, column in self.metrics.items()},
            **{f"results.{name}": array for name, array in self.results.items()},
        }
        document: dict[str, Any] = {
            "status": str(self.status),
            "message": self.message,
            "fun": to_json(self.fun),
            "counters": self.counters,
            "manifest": self.manifest,
        }
        files = {"arrays.npz": storage.npz(arrays)}
        if self.keep is not None:
            files["draws.npy"] = storage.npy(self.keep.theta)
        return storage.write_folder(folder, RUN, document, files)


def load_run(
    folder: str | Path,
    *,
    potential: Potential | None = None,
    algorithm: Algorithm | None = None,
    allow_imports: bool = False,
) -> Run:
    """Read a saved run; a folder that is not a run, or is damaged, raises one clear sentence.

    A potential or an algorithm that is given is taken instead of being rebuilt from the run.
    allow_imports: whether a user's own classes, which the run names as "module:Class", are imported.

    >>> import tempfile
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = run.save(folder)
    ...     loaded = aq.load_run(folder)
    >>> bool((loaded.theta == run.theta).all())
    True
    """
    said, plain, arrays, keep = storage.read_settled(
        lambda: storage.version_of(folder, RUN), lambda: _read_stored(folder)
    )
    with storage.telling_damage(folder, RUN):
        status = outcome_of(said.status)
        if status is None:
            raise DamagedFile(
                f"{folder} cannot be used: it ended as {said.status[:40]!r}, which is no outcome."
            )
        potential, algorithm = rebuild_inputs(folder, plain, potential, algorithm, allow_imports)
        return Run(
            theta=arrays["theta"],
            fun=float(said.fun),
            status=status,
            message=said.message,
            schedule=_schedule(folder, with_prefix("schedule.", arrays), arrays["fingerprints"].size),
            metrics=metrics_of(folder, arrays),
            counters=said.counters,
            manifest=plain,
            theta0=arrays["theta0"],
            fingerprints=arrays["fingerprints"],
            algorithm=algorithm,
            potential=potential,
            keep=keep,
            results=with_prefix("results.", arrays),
        )


def _read_stored(
    folder: str | Path,
) -> tuple[RunDocument, dict[str, Any], dict[str, npt.NDArray[Any]], Draws | None]:
    """The document, its manifest as plain data, the arrays and the draws of a saved run."""
    document = storage.read_document(folder, RUN)
    with storage.telling_damage(folder, RUN):
        said = document.typed(RunDocument)
        sizes = {"dim": said.manifest.potential.dim}
        arrays = document.arrays("arrays.npz", SCHEMA, sizes)
        if arrays["theta"].dtype != arrays["theta0"].dtype:
            raise DamagedFile(f"{folder} is damaged: its arrays do not fit together (theta and theta0).")
        plain = document.plain["manifest"]
        keep = None
        if "draws.npy" in document.files:
            theta = document.mapped("draws.npy", "draws", SCHEMA, sizes)
            keep = Draws(int(plain["keep"]), theta)
        return said, plain, arrays, keep


def _schedule(folder: str | Path, columns: dict[str, npt.NDArray[Any]], commits: int) -> Schedule:
    """The stored schedule; one that breaks a schedule's rules was not written by us."""
    try:
        schedule = Schedule.from_arrays(columns)
    except BadInput as error:
        raise DamagedFile(f"{folder} is damaged: {error}") from None
    if schedule.commits != commits:
        raise DamagedFile(f"{folder} is damaged: its arrays do not fit together (fingerprints and commits).")
    return schedule
