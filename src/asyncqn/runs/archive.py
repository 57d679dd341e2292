"""The archive: a `Run` saved as a JSON document and a file of arrays, and loaded without pickle.

A saved run may come from anybody, so reading it trusts nothing: `RunDocument` states the types of the
document, `SCHEMA` the dtypes and shapes of the arrays, and no file names a class to instantiate unless the
user allows imports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy.typing as npt

from asyncqn import storage
from asyncqn.core.outcome import outcome_of
from asyncqn.core.schedule import Schedule
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.parameters import Folder, checked
from asyncqn.runs.checkpoint import metrics_of, with_prefix
from asyncqn.runs.draws import Draws
from asyncqn.runs.manifest import Manifest, rebuild_inputs
from asyncqn.runs.run import Run
from asyncqn.storage.serialise import to_json
from asyncqn.types import Algorithm, Problem

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
    """The entries that run.json must have."""

    status: str
    message: str
    fun: float | str
    counters: dict[str, Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]]
    manifest: Manifest


def save_run(run: Run, folder: str | Path) -> Path:
    """Write the run to `folder`, completely or not at all; an older run there is replaced."""
    arrays: dict[str, npt.NDArray[Any]] = {
        "theta": run.theta,
        "theta0": run.theta0,
        "fingerprints": run.fingerprints,
        **{
            f"schedule.{name}": column for name, column in run.schedule.arrays().items()
        },
        **{f"metrics.{name}": column for name, column in run.metrics.items()},
        **{f"results.{name}": array for name, array in run.results.items()},
    }
    document: dict[str, Any] = {
        "status": str(run.status),
        "message": run.message,
        # NaN and infinity have no JSON literal; `to_json` writes them as words.
        "fun": to_json(run.fun),
        "counters": run.counters,
        "manifest": run.manifest,
    }
    files = {"arrays.npz": storage.npz(arrays)}
    if run.keep is not None:
        # A file of its own, so that it can be memory-mapped: draws may be larger than the memory.
        files["draws.npy"] = storage.npy(run.keep.theta)
    return storage.write_folder(folder, RUN, document, files)


@checked
def load_run(
    folder: Folder,
    *,
    problem: Problem | None = None,
    algorithm: Algorithm | None = None,
    allow_imports: bool = False,
) -> Run:
    """Read a saved run.

    Parameters
    ----------
    folder : path
        Folder of a saved run. A folder that is no run raises `BadInput`; a damaged one raises
        `DamagedFile`.
    problem : Problem, optional
        Used instead of rebuilding the problem from the run.
    algorithm : Algorithm, optional
        Used instead of rebuilding the algorithm from the run.
    allow_imports : bool, default False
        Whether a user's own classes, which the run names as "module:Class", are imported. This runs their
        code.

    Returns
    -------
    Run
        The run as it was saved.

    Examples
    --------
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
    # Another process may replace the run while it is read; `read_settled` then reads it again.
    said, plain, arrays, keep = storage.read_settled(
        lambda: storage.version_of(folder, RUN), lambda: _read_stored(folder)
    )
    with storage.telling_damage(folder, RUN):
        status = outcome_of(said.status)
        if status is None:
            raise DamagedFile(
                f"{folder} is damaged: its status {said.status[:40]!r} is not an outcome of a run."
            )
        # After the file has been checked: rebuilding a problem may read data or run code.
        problem, algorithm = rebuild_inputs(
            folder, plain, problem, algorithm, allow_imports
        )
        return Run(
            theta=arrays["theta"],
            fun=float(said.fun),
            status=status,
            message=said.message,
            schedule=_schedule(
                folder, with_prefix("schedule.", arrays), arrays["fingerprints"].size
            ),
            metrics=metrics_of(folder, arrays),
            counters=said.counters,
            manifest=plain,
            theta0=arrays["theta0"],
            fingerprints=arrays["fingerprints"],
            algorithm=algorithm,
            problem=problem,
            keep=keep,
            results=with_prefix("results.", arrays),
        )


def _read_stored(
    folder: str | Path,
) -> tuple[RunDocument, dict[str, Any], dict[str, npt.NDArray[Any]], Draws | None]:
    """Return the document, its manifest as plain data, the arrays and the draws of a saved run."""
    document = storage.read_document(folder, RUN)
    with storage.telling_damage(folder, RUN):
        said = document.typed(RunDocument)
        # The document states dim, and every array must have it.
        sizes = {"dim": said.manifest.problem.dim}
        arrays = document.arrays("arrays.npz", SCHEMA, sizes)
        # The schema allows float64 and float32 for each of them, but both are of one problem.
        if arrays["theta"].dtype != arrays["theta0"].dtype:
            raise DamagedFile(
                f"{folder} is damaged: its arrays do not fit together (theta and theta0)."
            )
        plain = document.plain["manifest"]
        keep = None
        if "draws.npy" in document.files:
            theta = document.mapped("draws.npy", "draws", SCHEMA, sizes)
            # The interval is in the manifest, because it is an argument of the run and not a property of the
            # file.
            keep = Draws(int(plain["keep"]), theta)
        return said, plain, arrays, keep


def _schedule(
    folder: str | Path, columns: dict[str, npt.NDArray[Any]], commits: int
) -> Schedule:
    """Return the stored schedule; raise `DamagedFile` where it breaks a rule that we always keep."""
    try:
        schedule = Schedule.from_arrays(columns)
    except BadInput as error:
        raise DamagedFile(f"{folder} is damaged: {error}") from None
    # There is one fingerprint per commit, so the two must end together.
    if schedule.commits != commits:
        raise DamagedFile(
            f"{folder} is damaged: its arrays do not fit together (fingerprints and commits)."
        )
    return schedule
