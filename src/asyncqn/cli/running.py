"""How a run is carried out and shown: live progress, signals, saving, the numbers at its end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncqn.cli.ending import INTERRUPTED, TERMINATED, exit_code
from asyncqn.cli.output import Output

if TYPE_CHECKING:
    from asyncqn.core.run import Run
    from asyncqn.types import Callback, Progress


def output_of_rank(
    json: bool, quiet: bool, mpi: bool
) -> tuple[Output, Callable[[], AbstractContextManager[None]]]:
    """Where this process talks, and a context in which the mistakes of several become one sentence."""
    if not mpi:
        return Output(json, quiet), nullcontext
    from asyncqn.engines.mpi.engine import first_rank, mistakes_at_rank_0

    if first_rank():
        return Output(json, quiet), mistakes_at_rank_0
    warnings.simplefilter("ignore")
    return Output(False, True), mistakes_at_rank_0


def under_mpiexec() -> bool:
    """Whether a launcher of OpenMPI, MPICH or Slurm's PMI started this process among others."""
    return any(
        int(os.environ.get(name, "1")) > 1 for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
    )


class Heard:
    """A signal that asks the run to end: the first is left as a note, a second breaks the command off."""

    def __init__(self) -> None:
        self.number = 0


@contextmanager
def ending_at_signals(wanted: bool) -> Iterator[Heard]:
    """Inside, Ctrl-C and SIGTERM let a run end at its next evaluation, so that what it computed is kept."""
    heard = Heard()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before: dict[int, Any] = {}

    def hear(number: int, frame: Any) -> None:
        if heard.number:
            before[number](number, frame)
        heard.number = number

    for heeded in (signal.SIGINT, signal.SIGTERM):
        before[heeded] = signal.signal(heeded, hear)
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_run(
    go: Callable[[Callback], Run | None],
    commits: int,
    save: Path | None,
    out: Output,
    mistakes_at_rank_0: Callable[[], AbstractContextManager[None]] = nullcontext,
    *,
    simulated: bool = False,
    checkpoint: bool = False,
) -> int:
    """Run with live progress, save, print; returns the exit code.  None: another rank has the run."""
    label = "simulate" if simulated else "run"
    # A run with checkpoints hears signals itself; workers of real runs hear those of the terminal too.
    signals = ending_at_signals(simulated and not checkpoint)
    with out.progress(label, commits) as advance, mistakes_at_rank_0(), signals as heard:
        run = go(_Live(advance, heard, simulated).progressed)
    if run is None:
        return 0
    if heard.number and run.status == "stopped":
        word = "terminated" if heard.number == signal.SIGTERM else "interrupted"
        kept = "" if save is None else f"; what was computed is in {save}"
        run = replace(run, status=word, message=f"{word} after {run.nit} of {commits} commits{kept}.")
    if save is not None:
        run.save(save)
    numbers = run.summary() if simulated else real_summary(run)
    numbers = {**numbers, "run": None if save is None else str(save)}
    code = exit_code(run)
    if code:
        said = run.status in ("interrupted", "terminated")  # their messages begin with the word
        out.fail(run.message if said else f"{run.status}: {run.message}")
    if not out.json and not (out.quiet and run.status == "diverged"):
        for name, value in numbers.items():
            if value is not None and not (code and name == "message"):
                out.show(f"{name:<18} {f'{value:.6g}' if isinstance(value, float) else value}")
    out.result(numbers)
    if code in (INTERRUPTED, TERMINATED):
        sys.stdout.flush()
        sys.exit(code)  # it was said above: the program need not say it again
    return code


def real_summary(run: Run) -> dict[str, Any]:
    """What `simulate` prints, and what only a real run has; seconds are those of the time axis."""
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


class _Live:
    """Turns a `Progress` into a line: objective, and of a real run commits per second, staleness, workers."""

    def __init__(self, advance: Callable[..., None], heard: Heard, simulated: bool) -> None:
        self.advance, self.heard, self.simulated = advance, heard, simulated
        self.commit, self.time = 0, time.monotonic()

    def progressed(self, progress: Progress) -> None:
        now, metrics = time.monotonic(), progress.metrics
        rate = (progress.commit - self.commit) / max(now - self.time, 1e-9)
        self.commit, self.time = progress.commit, now
        note = f"error {metrics['error']:.4g}" if "error" in metrics else f"U {metrics['fun']:.6g}"
        if not self.simulated:
            note += f", {rate:.0f} commits/s, staleness {progress.staleness:.1f}, {progress.workers} workers"
        self.advance(progress.commit, note)
        if self.heard.number:
            raise StopIteration
