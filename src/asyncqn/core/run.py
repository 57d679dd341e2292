"""Run: what a minimisation returns, saved as one JSON file and one of arrays, loaded without pickle."""

from __future__ import annotations

import json
import math
import os
import shutil
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms import algorithm_from_plain, algorithm_to_plain
from asyncqn.core.plain import from_plain, to_plain
from asyncqn.core.provenance import code_digest, versions
from asyncqn.core.schedule import Schedule
from asyncqn.core.stopping import Stopping
from asyncqn.core.table import Table
from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
from asyncqn.potentials import rebuild
from asyncqn.storage import check_of, sha256_of
from asyncqn.types import Algorithm, Array, Potential, extra

FORMAT = 2
"""1 had no checksum of run.json; it is still read."""


@dataclass(frozen=True, eq=False)
class Run:
    """The result: the final iterate, why it ended, and everything needed to compute it again."""

    theta: Array
    fun: float
    status: str
    """"converged", "stalled", "diverged", "interrupted", "stopped" or "completed" (the commits asked for were
    made); `message` says it in a sentence."""
    message: str
    schedule: Schedule
    metrics: Table
    counters: dict[str, int]
    manifest: dict[str, Any]
    theta0: Array = field(repr=False)
    fingerprints: npt.NDArray[np.uint32] = field(repr=False)
    algorithm: Algorithm | None = None
    potential: Potential | None = field(default=None, repr=False)

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
        """Whether this is an answer: converged, at its target, or all commits of a stochastic method made."""
        return self.status == "converged" or (self.status == "completed" and not self.manifest.get("exact"))

    @property
    def nit(self) -> int:
        """The number of commits."""
        return self.schedule.commits

    @property
    def passes(self) -> float:
        """Rows whose gradient was computed, over n_data; NaN where the algorithm does not say."""
        if not hasattr(self.algorithm, "rows_of"):
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

    def summary(self) -> dict[str, Any]:
        """The numbers that the command line prints as JSON."""
        staleness = self.schedule.staleness
        out: dict[str, Any] = {
            "status": self.status,
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
        folder = Path(folder)
        ours = folder.is_dir() and ((folder / "run.json").exists() or not any(folder.iterdir()))
        if folder.exists() and not ours:
            raise BadInput(f"{folder} exists and is not a run: choose another folder, or empty it.")
        arrays: dict[str, npt.NDArray[Any]] = {
            "theta": self.theta, "theta0": self.theta0, "fingerprints": self.fingerprints,
            **{f"schedule.{name}": column for name, column in self.schedule.arrays().items()},
            **{f"metrics.{name}": column for name, column in self.metrics.items()},
        }  # fmt: skip
        scratch = folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
        try:
            scratch.mkdir(parents=True)
            np.savez(scratch / "arrays.npz", **arrays)  # type: ignore[arg-type]
            document: dict[str, Any] = {
                "format": FORMAT, "kind": "asyncqn run", "status": self.status, "message": self.message,
                "fun": to_plain(self.fun), "counters": self.counters, "manifest": self.manifest,
                "sha256": sha256_of(scratch / "arrays.npz"),
            }  # fmt: skip
            document["check"] = check_of(document)
            (scratch / "run.json").write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
            if folder.exists():
                old = folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
                os.replace(folder, old)
                os.replace(scratch, folder)
                shutil.rmtree(old)
            else:
                os.replace(scratch, folder)
        except OSError as error:
            raise BadInput(f"the run cannot be saved to {folder}: {error.strerror or error}.") from None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return folder


def load_run(
    folder: str | Path, *, potential: Potential | None = None, algorithm: Algorithm | None = None
) -> Run:
    """Read a saved run; a folder that is none, or is damaged, gives one clear sentence.

    A potential or an algorithm that is given is taken instead of being rebuilt from the run.
    """
    folder = Path(folder)
    if not (folder / "run.json").is_file():
        raise BadInput(f"{folder} is not a saved run: it has no run.json.")
    try:
        document = json.loads((folder / "run.json").read_text())
        if document.get("kind") != "asyncqn run":
            raise DamagedFile(f"{folder} was not written by asyncqn: its run.json is of another kind.")
        if document["format"] not in (1, FORMAT):
            raise DamagedFile(
                f"{folder} has format {document['format']}, this version of asyncqn reads {FORMAT}: "
                "use the version that wrote it."
            )
        if (document["format"] != 1 or "check" in document) and check_of(document) != document["check"]:
            raise DamagedFile(f"{folder} is damaged: run.json was altered.")
        if sha256_of(folder / "arrays.npz") != document["sha256"]:
            raise DamagedFile(f"{folder} is damaged: arrays.npz does not match its checksum in run.json.")
        # Opened here: np.load leaves a file open when it turns out to be no archive.
        with (folder / "arrays.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        manifest_ = document["manifest"]
        theta, theta0 = arrays["theta"], arrays["theta0"]
        schedule = _schedule(folder, _under("schedule.", arrays))
        if (
            theta0.shape != (manifest_["potential"]["dim"],)
            or (theta.shape, theta.dtype) != (theta0.shape, theta0.dtype)
            or theta.dtype.kind != "f"
            or arrays["fingerprints"].shape != (schedule.commits,)
        ):
            raise DamagedFile(f"{folder} is damaged: its arrays do not fit together.")
        return Run(
            theta=theta,
            fun=float(document["fun"]),
            status=document["status"],
            message=document["message"],
            schedule=schedule,
            metrics=Table(_under("metrics.", arrays)),
            counters=document["counters"],
            manifest=manifest_,
            theta0=theta0,
            fingerprints=arrays["fingerprints"],
            algorithm=algorithm or algorithm_from_plain(manifest_["algorithm"]),
            potential=potential if potential is not None else rebuild(manifest_["potential"]["reference"]),
        )
    except AsyncqnError:
        raise
    except FileNotFoundError as error:
        raise DamagedFile(f"{folder} is damaged: {Path(error.filename).name} is missing.") from None
    except (
        LookupError, ValueError, TypeError, AttributeError, OSError, EOFError, RecursionError,
        NotImplementedError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        text = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        raise DamagedFile(
            f"{folder} is damaged or not a run of asyncqn ({type(error).__name__}: {text})."
        ) from None


def _schedule(folder: Path, columns: dict[str, npt.NDArray[Any]]) -> Schedule:
    """The stored schedule; one that breaks a schedule's rules was not written by us."""
    try:
        return Schedule.from_arrays(columns)
    except BadInput as error:
        raise DamagedFile(f"{folder} is damaged: {error}") from None


def _under(prefix: str, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def rows_computed(algorithm: Any, schedule: Schedule, n_data: int) -> npt.NDArray[np.int64]:
    """How many rows each computation of a schedule took the gradient of."""
    part = np.full(len(schedule), -1, np.int32) if schedule.part is None else schedule.part
    rows: npt.NDArray[np.int64] = algorithm.rows_of(n_data, schedule.read, part)
    return rows


def stopping_of(manifest: Mapping[str, Any]) -> Stopping:
    """When the run of a manifest was to end by itself; runs of format 2 and before did not say."""
    rule: Stopping = from_plain(Stopping, manifest.get("stopping", {}), "the run's stopping rule")
    return rule


def manifest(
    potential: Potential,
    algorithm: Algorithm,
    *,
    seed: int,
    commits: int,
    evaluate: int,
    engine: dict[str, Any],
    stopping: Stopping,
) -> dict[str, Any]:
    """What was run, with what, and where: enough to run it again."""
    reference = extra(potential, "reference")
    return {
        "potential": {
            "name": type(potential).__name__,
            "reference": to_plain(reference()) if reference is not None else None,
            "dim": int(potential.dim),
            "n_data": int(potential.n_data),
        },
        "algorithm": algorithm_to_plain(algorithm),
        "exact": hasattr(algorithm, "standing"),
        "stopping": to_plain(stopping),
        "engine": engine,
        "seed": seed,
        "commits": int(commits),
        "evaluate": int(evaluate),
        "versions": dict(versions()),
        "code": code_digest(),
    }
