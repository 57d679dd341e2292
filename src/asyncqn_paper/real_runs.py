"""Real runs for the figures: MPI where there is a launcher, threads elsewhere; several runs in one launch.

`python -m asyncqn_paper.real_runs FOLDER` is what the ranks run: FOLDER/jobs.json says which runs, and
FOLDER/0, 1, ... receive them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from asyncqn import MPI, Cluster, Run, Threads, load_run, starting_point
from asyncqn.parameters import from_json
from asyncqn.storage import to_json, write_whole
from asyncqn.types import Array, Problem, Request
from asyncqn_paper import movielens
from asyncqn_paper.problems import AlikeRows
from asyncqn_paper.settings import algorithm

GAUSSIAN = "linear-gaussian"
"""The linear Gaussian problem whose rows are alike, drawn so that as-L-BFGS stays at its optimum."""
WARM_UP = 40
"""Commits before the first run: a real clock would count the compilation of kernels as its first commit."""
LONGEST = 600.0
"""Seconds that a launch may take."""


@dataclass(frozen=True)
class RealRun:
    """One run on W real workers.

    Attributes
    ----------
    problem : str
        `GAUSSIAN`, or the name of a set of ratings.
    kind : str
        Name of the algorithm.
    parameters : tuple of (name, value)
        Parameters of the algorithm.
    workers : int
        Number of workers, without the master.
    commits : int
        Number of commits.
    seed : int
        Seed of the run and of its start.
    evaluate : int, default 10
        Commits between two evaluations.
    start : str, default "mean"
        Start of a factorization, as in `movielens.STARTS`.
    stretch : Cluster, optional
        Cluster from which times are drawn; computations and messages are stretched to them by sleeping.
        None: nothing is slowed.
    time_unit : float, default 1.0
        Length of the cluster's unit of time in seconds.
    """

    problem: str
    kind: str
    parameters: tuple[tuple[str, Any], ...]
    workers: int
    commits: int
    seed: int
    evaluate: int = 10
    start: str = "mean"
    stretch: Cluster | None = None
    time_unit: float = 1.0

    def model(self) -> Problem:
        """Return the problem itself."""
        return (
            AlikeRows(8.0, draw=1).model()
            if self.problem == GAUSSIAN
            else movielens.model(self.problem)
        )

    def theta0(self) -> Array:
        """Return where the run begins."""
        if self.problem == GAUSSIAN:
            return starting_point(self.model(), None, self.seed)
        return movielens.start(movielens.model(self.problem), self.start, self.seed)

    def request(self, commits: int | None = None) -> Request:
        """Return what an engine is asked for."""
        return Request(
            self.model(),
            algorithm(self.kind, dict(self.parameters)),
            theta0=self.theta0(),
            commits=commits or self.commits,
            seed=self.seed,
            evaluate=self.evaluate,
        )


class Real(NamedTuple):
    """The runs, and the engine that made them."""

    runs: list[Run]
    engine: str
    because: str
    """Why it was not MPI; empty where it was."""


def run_real(jobs: Sequence[RealRun]) -> Real:
    """Make the runs one after another on the same workers; all jobs must have the same number of workers."""
    launcher, reason = _launcher()
    if launcher is not None:
        try:
            return Real(_launched(jobs, launcher), "MPI", "")
        except (OSError, subprocess.SubprocessError) as error:
            reason = f"the MPI launcher failed ({' '.join(str(error).split())[:200]})"
    return Real(
        [_on_threads(job) for job in jobs],
        "threads",
        f"{reason}: threads were used instead",
    )


def _launcher() -> tuple[Path | None, str]:
    """Return mpiexec, beside this Python or on the path, or None and the reason why there is none."""
    if find_spec("mpi4py") is None:
        return None, "there is no mpi4py (pip install 'asyncqn[mpi]')"
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    return (Path(found), "") if found else (None, "there is no mpiexec")


def _launched(jobs: Sequence[RealRun], launcher: Path) -> list[Run]:
    with tempfile.TemporaryDirectory(prefix="asyncqn-real-") as place:
        folder = Path(place)
        write_whole(folder / "jobs.json", json.dumps([to_json(job) for job in jobs]))
        command = [
            str(launcher),
            "--oversubscribe",
            "--bind-to",
            "none",
            "-n",
            str(jobs[0].workers + 1),
        ]
        command += [sys.executable, "-m", "asyncqn_paper.real_runs", str(folder)]
        # A program of our own on this machine alone: shared memory carries its messages, and the launcher
        # must not mind that a container's only user is root.
        root = {
            f"{word}_ALLOW_RUN_AS_ROOT{end}": "1"
            for word in ("OMPI", "PRTE")
            for end in ("", "_CONFIRM")
        }
        environment = {
            **os.environ,
            **root,
            "PYTHONSAFEPATH": "1",
            "OMPI_MCA_btl": "self,sm",
        }
        with subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # A session of its own, so that the launcher can be killed together with all its ranks.
            start_new_session=True,
        ) as process:
            try:
                _, errors = process.communicate(timeout=LONGEST)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode != 0:
            words = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or [
                "it said nothing"
            ]
            raise subprocess.SubprocessError(words[0])
        return [
            load_run(folder / str(k), problem=job.model()) for k, job in enumerate(jobs)
        ]


def _on_threads(job: RealRun) -> Run:
    engine = Threads(
        workers=job.workers, timing_model=job.stretch, time_unit=job.time_unit
    )
    return engine.minimize(job.request())  # threads compile before their clock starts


def _rank(folder: Path) -> None:
    """Run all jobs on this rank; rank 0 saves each run."""
    plain = json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
    jobs = [from_json(RealRun, one, "the real run") for one in plain]
    warm = set()
    for k, job in enumerate(jobs):
        engine = MPI(timing_model=job.stretch, time_unit=job.time_unit)
        if (job.problem, job.kind) not in warm:
            # Without stretching: only the compiler is waited for.
            MPI().minimize(job.request(WARM_UP))
            warm.add((job.problem, job.kind))
        run = engine.minimize(job.request())
        if run is not None:
            run.save(folder / str(k))


if __name__ == "__main__":
    _rank(Path(sys.argv[1]))
