"""The run that the fault programs injure: `python -m benchmarks.faults.job FOLDER SETTINGS`.

SETTINGS is the JSON of `Settings`.  In FOLDER, `checkpoints` and `run` are written; `progress` gets a line
per evaluation (when, commit, workers), `pid.RANK` says who runs.  Where
there are checkpoints the run continues from them.  The last line of the output is JSON: how the run ended,
and whether it replays bit for bit.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.types import Progress


@dataclass(frozen=True)
class Settings:
    """A run: its engine, its size, and how long its computations last, in seconds."""

    engine: str = "threads"
    workers: int = 3
    commits: int = 1500
    dim: int = 50
    pace: float = 0.005
    every: float = 0.2
    evaluate: int = 1
    give_up: float | None = None
    replay: bool = True

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Bowl:
    """U = sum_i |theta - y_i|^2 / 2, one number y_i per data point: cheap in any dimension."""

    n_data = 20

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.y = np.linspace(-1.0, 1.0, self.n_data)

    def value(self, theta: np.ndarray) -> float:
        return float(sum(np.sum((theta - y) ** 2) for y in self.y) / 2)

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        np.subtract(theta, self.y[rows].mean(), out=out)
        out *= self.n_data


ALGORITHM = aq.ASLBFGS(
    h=1e-4, gamma=0.05, beta=1e4, memory=3, batch=6, overlap=2, initial_scale=0.05
)


def engine_of(settings: Settings) -> Any:
    options: dict[str, Any] = {}
    if settings.pace > 0.0:
        options["timing_model"] = aq.Cluster(
            settings.workers, settings.pace, settings.pace / 3
        )
    if settings.give_up is not None:
        options["give_up_after"] = settings.give_up
    if settings.engine == "mpi":
        return aq.MPI(**options)
    if settings.engine == "ray":
        return aq.Ray(settings.workers, restarts=20, **options)
    return aq.Threads(settings.workers, **options)


def newest_commit(folder: Path) -> int | None:
    """Return the commit of the newest whole checkpoint; None where there is none that can be read."""
    from asyncqn.runs.checkpoint_reading import load_checkpoint

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load_checkpoint(folder).commit
    except aq.AsyncqnError:
        return None


def main(folder: Path, settings: Settings) -> None:
    engine = engine_of(settings)
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    (folder / f"pid.{rank}").write_text(str(os.getpid()))
    log = (folder / "progress").open("a", buffering=1)

    def tell(now: Progress) -> None:
        log.write(f"{time.time():.4f} {now.commit} {now.workers}\n")

    problem, checkpoints = Bowl(settings.dim), folder / "checkpoints"
    options: dict[str, Any] = {"engine": engine, "callback": tell}
    options["checkpoint_every"] = settings.every
    if newest_commit(checkpoints) is not None:
        run = aq.resume(checkpoints, problem, **options)
    else:
        options |= {"commits": settings.commits, "evaluate": settings.evaluate}
        options |= {"seed": 3, "checkpoint": checkpoints}
        run = aq.minimize(problem, ALGORITHM, **options)
    if run is None:  # another rank has it
        return
    report = {
        "status": run.status,
        "commits": run.nit,
        "lost": run.manifest["engine"]["workers_lost"],
    }
    if settings.replay:
        run.save(folder / "run")
        again = aq.replay(aq.load_run(folder / "run", problem=problem))
        report["replayed"] = again.theta.tobytes() == run.theta.tobytes()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Settings(**json.loads(sys.argv[2])))
