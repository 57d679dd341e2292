"""Real runs for Fig. 1: MPI where there is a launcher, threads elsewhere; several runs in one launch.

`python -m asyncqn_paper.real_runs FOLDER` is what the ranks run: FOLDER/jobs.json says which runs, and
FOLDER/0, 1, ... receive them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from asyncqn import MPI, Run, Threads, load_run, starting_point
from asyncqn.errors import WorkerFailed
from asyncqn.parameters import from_json
from asyncqn.storage import to_json, write_whole
from asyncqn.types import Problem, Request
from asyncqn_paper import movielens
from asyncqn_paper.problems import AlikeRows
from asyncqn_paper.settings import Given, algorithm

WARM_UP = 40
"""Commits before the first run: a real clock would count the compilation of kernels as its first commit."""
LONGEST = 600.0
"""Seconds that a launch may take."""


@dataclass(frozen=True)
class RealRun:
    """One run of as-L-BFGS on real workers, on ratings or on a linear Gaussian problem with rows alike."""

    ratings: bool
    parameters: Given
    workers: int
    commits: int
    seed: int
    evaluate: int

    def model(self) -> Problem:
        """Return the problem; the draw of the Gaussian one is such that as-L-BFGS stays at its optimum."""
        return movielens.model() if self.ratings else AlikeRows(8.0, draw=1).model()

    def request(self, commits: int | None = None) -> Request:
        """Return what an engine is asked for."""
        problem = self.model()
        return Request(
            problem,
            algorithm("as-lbfgs", dict(self.parameters)),
            theta0=starting_point(problem, None, self.seed),
            commits=commits or self.commits,
            seed=self.seed,
            evaluate=self.evaluate,
        )


def run_real(jobs: Sequence[RealRun]) -> tuple[list[Run], str]:
    """Make the runs one after another on the same workers; return them and the engine's name."""
    beside = Path(sys.executable).parent / "mpiexec"
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is not None and find_spec("mpi4py") is not None:
        return _launched(jobs, launcher), "MPI"
    # Threads compile before their clock starts.
    return [Threads(job.workers).minimize(job.request()) for job in jobs], "threads"


def _launched(jobs: Sequence[RealRun], launcher: str) -> list[Run]:
    with tempfile.TemporaryDirectory(prefix="asyncqn-real-") as place:
        folder = Path(place)
        write_whole(folder / "jobs.json", json.dumps([to_json(job) for job in jobs]))
        ranks = str(jobs[0].workers + 1)
        command = [launcher, "--oversubscribe", "--bind-to", "none", "-n", ranks]
        command += [sys.executable, "-m", "asyncqn_paper.real_runs", str(folder)]
        # A program of our own on this machine alone: shared memory carries its messages.
        environment = {**os.environ, "PYTHONSAFEPATH": "1", "OMPI_MCA_btl": "self,sm"}
        # The launcher must not mind that a container's only user is root.
        for program in ("OMPI", "PRTE"):
            environment[f"{program}_ALLOW_RUN_AS_ROOT"] = "1"
            environment[f"{program}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        if done.returncode != 0:
            reason = " ".join(done.stderr.split())[-200:]
            raise WorkerFailed(f"the MPI launcher failed: {reason}.")
        runs = []
        for k, job in enumerate(jobs):
            runs.append(load_run(folder / str(k), problem=job.model()))
        return runs


def _rank(folder: Path) -> None:
    """Run all jobs on this rank; rank 0 saves each run."""
    plain = json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
    jobs = [from_json(RealRun, one, "the real run") for one in plain]
    engine = MPI()
    engine.minimize(jobs[0].request(WARM_UP))
    for k, job in enumerate(jobs):
        run = engine.minimize(job.request())
        if run is not None:
            run.save(folder / str(k))


if __name__ == "__main__":
    _rank(Path(sys.argv[1]))
