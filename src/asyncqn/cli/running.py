"""One run of a command: live progress, signals, saving, and the numbers at its end.

`show_run` is the entry point.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncqn.cli.ending import INTERRUPTED, TERMINATED, exit_code, hearing
from asyncqn.cli.output import Output
from asyncqn.core.outcome import Outcome

if TYPE_CHECKING:
    from asyncqn.runs.run import Run
    from asyncqn.types import Progress
    from asyncqn.view.progress import Advance


def output_of_rank(
    out: Output, mpi: bool
) -> tuple[Output, Callable[[], AbstractContextManager[None]]]:
    """Return this process's output, and a context that merges the errors of all MPI ranks into one
    sentence."""
    if not mpi:
        return out, nullcontext
    from asyncqn.engines.mpi.engine import first_rank, mistakes_at_rank_0

    # All ranks run the same command, and only the first one speaks.
    if not first_rank():
        warnings.simplefilter("ignore")
        out = Output(quiet=True)
    return out, mistakes_at_rank_0


def under_mpiexec() -> bool:
    """Return whether OpenMPI, MPICH or Slurm's PMI started this process as one of several."""
    # Each launcher sets a variable of its own.
    return any(
        # A job of a single rank is an ordinary process and needs no MPI.
        int(os.environ.get(name, "1")) > 1
        for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
    )


@contextmanager
def ending_at_signals(wanted: bool) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM end a run at its next evaluation, so that its result is kept.

    The first signal is noted in the yielded list; a second one interrupts the command at once.
    """
    heard: list[int] = []

    def hear(number: int, frame: Any) -> None:
        # The second signal has its usual effect: the previous handler ends the command.
        if heard:
            before[number](number, frame)
        heard.append(number)

    with hearing((signal.SIGINT, signal.SIGTERM) if wanted else (), hear) as before:
        yield heard


def show_run(
    go: Callable[..., Run | None],
    commits: int,
    save: Path | None,
    out: Output,
    mistakes_at_rank_0: Callable[[], AbstractContextManager[None]] = nullcontext,
    *,
    simulated: bool = False,
    checkpoint: bool = False,
    further: Callable[[Run], dict[str, Any]] = lambda run: {},
) -> int:
    """Run with live progress, save the run, print its numbers, and return the exit code.

    `go` returns None on an MPI rank that does not hold the run.  `further` receives the run after its end and
    returns more entries to print.
    """
    label = "simulate" if simulated else "run"
    # A run with checkpoints handles signals itself; workers of real runs receive those of the terminal, too.
    signals = ending_at_signals(simulated and not checkpoint)
    with (
        out.progress(label, commits) as advance,
        mistakes_at_rank_0(),
        signals as heard,
    ):
        run = go(callback=_live(advance, heard, simulated), progress=False)
    if run is None:
        return 0
    # The callback stopped the run on behalf of a signal, which is the better reason to report.
    if heard and run.status is Outcome.STOPPED:
        word = Outcome.TERMINATED if heard[0] == signal.SIGTERM else Outcome.INTERRUPTED
        kept = "" if save is None else f"; what was computed is in {save}"
        run = replace(
            run,
            status=word,
            message=f"{word} after {run.nit} of {commits} commits{kept}.",
        )
    if save is not None:
        run.save(save)
    # Seconds and lost workers exist only for real runs.
    numbers = run.summary() if simulated else real_summary(run)
    # `further` comes after saving: should it fail, the run is on disk.
    numbers = {**numbers, **further(run), "run": None if save is None else str(save)}
    code = exit_code(run)
    if code:
        said = run.status in (
            Outcome.INTERRUPTED,
            Outcome.TERMINATED,
        )  # their messages start with the status
        out.fail(run.message if said else f"{run.status}: {run.message}")
    # The numbers of a run that diverged say no more than the error, which was printed above.
    if not (out.quiet and run.status is Outcome.DIVERGED):
        for name, value in numbers.items():
            if value is not None and not (code and name == "message"):
                out.show(
                    f"{name:<18} {f'{value:.6g}' if isinstance(value, float) else value}"
                )
    out.result(numbers)
    # `typer.Exit` with 130 would reach `main` as typer's own reaction to Ctrl-C.
    if code in (INTERRUPTED, TERMINATED):
        sys.stdout.flush()
        sys.exit(code)  # directly, because the message was printed above
    return code


def real_summary(run: Run) -> dict[str, Any]:
    """Return the numbers of `simulate`, and those of a real run; `seconds` excludes evaluations."""
    # The manifest and not the engine itself: a resumed run may have had several.
    engine = run.manifest["engine"]
    seconds = run.time * float(engine.get("time_unit", 1.0))
    return {
        **run.summary(),
        "engine": engine["kind"],
        "workers": engine["workers"],
        "workers_lost": engine.get("workers_lost", 0),
        "workers_joined": engine.get("workers_joined", 0),
        "seconds": seconds,
        "commits_per_second": run.schedule.commits / seconds if seconds > 0 else 0.0,
        "resumed_from": engine.get("resumed_from"),
    }


def _live(
    advance: Advance, heard: list[int], simulated: bool
) -> Callable[[Progress], None]:
    """Return the callback of a run that shows progress and ends at a signal."""
    from asyncqn.view.progress import as_callback

    tell = as_callback(advance, simulated=simulated)

    def progressed(progress: Progress) -> None:
        tell(progress)
        if heard:
            # `minimize` ends a run whose callback raises StopIteration, and returns what was computed.
            raise StopIteration

    return progressed
