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

from asyncqn.core.outcome import outcome_of
from asyncqn.core.schedule import Schedule
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.parameters import Folder, checked
from asyncqn.runs.checkpoint import metrics_of, with_prefix
from asyncqn.runs.draws import Draws
from asyncqn.runs.manifest import Manifest, rebuild_inputs
from asyncqn.runs.run import Run
from asyncqn.storage import Document, FolderKind, Spec, read_folder, write_folder
from asyncqn.storage.serialise import to_json
from asyncqn.types import Algorithm, Problem

RUN = FolderKind("asyncqn run", "run", "run.json", 4, ("arrays.npz", "draws.npy"))
FLOATS = ("<f8", "<f4")

SCHEMA = {
    "theta": Spec(FLOATS, ("dim",)),
    "theta0": Spec(FLOATS, ("dim",)),
    "fingerprints": Spec(("<u4",), ("commits",)),
    "schedule.worker": Spec(("<i4",), ("rows",)),
    "schedule.read": Spec(("<i4",), ("rows",)),
    "schedule.commit": Spec(("<i4",), ("rows",)),
    "schedule.time": Spec(("<f8",), ("rows",)),
    "schedule.part": Spec(("<i4",), ("rows",), optional=True),
    "draws": Spec(FLOATS, ("draws", "dim"), optional=True),
    "results.*": Spec(FLOATS, None),
    "metrics.*": Spec(("f", "i", "u", "b"), ("evaluations",)),
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
    files: dict[str, Any] = {"arrays.npz": arrays}
    if run.keep is not None:
        # A file of its own, so that it can be memory-mapped: draws may be larger than the memory.
        files["draws.npy"] = run.keep.theta
    return write_folder(folder, RUN, document, files)


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

    def read(document: Document) -> Run:
        return _read(document, problem, algorithm, allow_imports)

    return read_folder(folder, RUN, read)


def _read(
    document: Document,
    problem: Problem | None,
    algorithm: Algorithm | None,
    allow_imports: bool,
) -> Run:
    """Return the run of a document whose checksum matches."""
    folder = document.folder
    typed = document.typed(RunDocument)
    # The document states dim, and every array must have it.
    sizes = {"dim": typed.manifest.problem.dim}
    arrays = document.arrays("arrays.npz", SCHEMA, sizes)
    # The schema allows float64 and float32 for each of them, but both are of one problem.
    if arrays["theta"].dtype != arrays["theta0"].dtype:
        raise DamagedFile(
            f"{folder} is damaged: its arrays do not fit together (theta and theta0)."
        )
    status = outcome_of(typed.status)
    if status is None:
        raise DamagedFile(
            f"{folder} is damaged: its status {typed.status[:40]!r} is not an outcome of a run."
        )
    schedule = _schedule(folder, with_prefix("schedule.", arrays))
    # There is one fingerprint per commit, so the two must end together.
    if schedule.commits != arrays["fingerprints"].size:
        raise DamagedFile(
            f"{folder} is damaged: its arrays do not fit together (fingerprints and commits)."
        )
    manifest = document.plain["manifest"]
    keep = None
    if "draws.npy" in document.files:
        theta = document.mapped("draws.npy", SCHEMA, sizes)
        # The interval is an argument of the run and no property of the file.
        keep = Draws(int(manifest["keep"]), theta)
    # After the file has been checked: rebuilding a problem may read data or run code.
    problem, algorithm = rebuild_inputs(
        folder, manifest, problem, algorithm, allow_imports
    )
    return Run(
        theta=arrays["theta"],
        fun=float(typed.fun),
        status=status,
        message=typed.message,
        schedule=schedule,
        metrics=metrics_of(folder, arrays),
        counters=typed.counters,
        manifest=manifest,
        theta0=arrays["theta0"],
        fingerprints=arrays["fingerprints"],
        algorithm=algorithm,
        problem=problem,
        keep=keep,
        results=with_prefix("results.", arrays),
    )


def _schedule(folder: Path, columns: dict[str, npt.NDArray[Any]]) -> Schedule:
    """Return the stored schedule; raise `DamagedFile` where it breaks a rule that we always keep."""
    try:
        return Schedule.from_arrays(columns)
    except BadInput as error:
        raise DamagedFile(f"{folder} is damaged: {error}") from None
