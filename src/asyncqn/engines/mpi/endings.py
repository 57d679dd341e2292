"""The end of an MPI job: all together, with an error on one rank, or without ranks that were lost.

Under ULFM (mpiexec --with-ft ulfm, Open MPI 5) a job survives lost ranks, and this file keeps it from waiting
for them.  Without ULFM the launcher ends the job as soon as a rank is lost.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncqn.errors import AsyncqnError
from asyncqn.runs.checkpoint import Checkpoints

if TYPE_CHECKING:
    from asyncqn.engines.mpi.master import MPIMaster

REVOCATION_SECONDS = 0.5
"""Seconds for which a failed rank keeps MPI's messages moving before it exits, so that its revocation of the
communicator reaches the others."""


class MpiJob(NamedTuple):
    """The ranks of a run, as one of them sees them."""

    mpi: Any
    comm: Any
    checkpoints: Checkpoints | None = None

    @contextmanager
    def ended_by_exceptions(self) -> Iterator[None]:
        """End the job on an exception inside the block: the other ranks would wait for this one forever."""
        try:
            yield
        except BaseException as error:
            self.end(error)
            raise

    def end(self, error: BaseException) -> None:
        """Print on stderr which rank failed, where and why, and end the whole job."""
        if _survives_losses() and self._of_mpi(error):
            if self.comm.Is_revoked():
                self._leave()  # another rank failed, and has said why
            failed = failed_ranks(self.mpi, self.comm)
            if 0 in failed:
                self._report_loss_of_master(failed)
                self._leave()
        rank, host = self.mpi.COMM_WORLD.rank, socket.gethostname()
        text = " ".join(str(error).split())
        name = "" if isinstance(error, AsyncqnError) else f"{type(error).__name__}: "
        sys.stdout.flush()
        print(
            "".join(traceback.format_exception(error)),
            f"asyncqn: rank {rank} on {host} failed and ends the job: {name}{text}",
            sep="",
            file=sys.stderr,
            flush=True,
        )
        if not _survives_losses():
            self.mpi.COMM_WORLD.Abort(1)
        # Under ULFM the job outlives an aborted rank (and MPI_Abort may hang): a revoked communicator is
        # what reaches all others, whatever they wait for.
        self.comm.Revoke()
        self._leave()

    def part(self, announced: bool, *, whole: bool = True) -> None:
        """Leave a run: with all ranks present MPI ends as usual, otherwise without waiting for lost ones.

        The ranks leave together, so that all of them find the last checkpoint, which rank 0 writes.  The
        master has `announced` whether all ranks are present, in which case the workers wait for each other;
        `whole` is what the master knows since.  If a worker was lost after the announcement, the master
        releases the others: a worker that left before would look lost, too.
        """
        comm = self.comm
        if announced and whole:
            try:
                # Nobody finalizes MPI before rank 0 has written the last checkpoint.
                comm.Barrier()
                comm.Free()
                return
            except self.mpi.Exception:
                if not _survives_losses():
                    raise
                while comm.rank > 0 and not comm.Is_revoked():
                    if 0 in failed_ranks(self.mpi, comm):
                        raise
                    self._let_messages_move()
        if _survives_losses():
            if announced and comm.rank == 0:
                comm.Revoke()
            atexit.register(_depart, 0)

    def abandon(self, master: MPIMaster) -> None:
        """Let the program continue although ranks hang, and abort the job when the program ends."""

        def abort() -> None:
            # Kept with the master until here: receives may still write into its buffers.
            ranks = sorted(slot.rank for slot in master.ready.values())
            names = ", ".join(map(str, ranks))
            print(
                f"asyncqn: rank {names} did not answer to the end: the job is ended.",
                file=sys.stderr,
            )
            sys.stdout.flush()
            sys.stderr.flush()
            self.comm.Abort(1)

        atexit.register(abort)

    def _of_mpi(self, error: BaseException) -> bool:
        return any(isinstance(e, self.mpi.Exception) for e in (error, error.__cause__))

    def _report_loss_of_master(self, failed: set[int]) -> None:
        """Print, on the first worker that is left, that the master is gone, and how to continue."""
        comm = self.comm
        if comm.rank != min(set(range(comm.size)) - failed):
            return
        sentence = "the master (rank 0) is gone, and its run is lost: a run with checkpoints can be resumed."
        if self.checkpoints is not None:
            command = f"mpiexec ... {self.checkpoints.command}"
            sentence = f"the master (rank 0) is gone; continue with: {command}"
        print(f"asyncqn: {sentence}", file=sys.stderr, flush=True)
        comm.Revoke()

    def _leave(self) -> None:
        """End this process without MPI_Finalize, which waits for others, after its last messages have left."""
        until = time.monotonic() + REVOCATION_SECONDS
        while time.monotonic() < until:
            self._let_messages_move()
        _depart(1)

    def _let_messages_move(self) -> None:
        with suppress(Exception):
            self.comm.Iprobe()
        time.sleep(0.01)


def failed_ranks(mpi: Any, comm: Any) -> set[int]:
    """Return the ranks that are gone, as far as MPI knows."""
    failed = comm.Get_failed()
    places = comm.group.Translate_ranks(list(range(comm.size)), failed)
    return {rank for rank, place in enumerate(places) if place != mpi.UNDEFINED}


def end_job_on_uncaught_exceptions(mpi: Any) -> None:
    """Let an uncaught exception of this rank end the job, even where no run is under way."""
    # Installed once; a single process has nobody to end.
    if getattr(sys.excepthook, "ends_mpi_job", False) or mpi.COMM_WORLD.size < 2:
        return

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        MpiJob(mpi, mpi.COMM_WORLD).end(error)

    hook.ends_mpi_job = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _survives_losses() -> bool:
    """Return whether the launcher keeps the other ranks when one dies (ULFM)."""
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable", "0")  # noqa: SIM112 (not ours to spell)
    return enabled.lower() in ("1", "true", "ulfm", "mpi")


def _depart(code: int) -> None:
    """End this process at once: after a loss MPI_Finalize may wait forever."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
