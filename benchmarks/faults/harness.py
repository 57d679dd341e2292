"""The base of all fault scenarios: start a run in its own processes, injure it, resume it, replay, count."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import mpi_start
from benchmarks.faults.job import Settings, newest_commit

BEGIN, END = 90.0, 90.0
"""Seconds within which a run must begin, and must end once nobody disturbs it."""

COLUMNS = (
    "scenario",
    "tries",
    "completed",
    "replayed bit for bit",
    "checkpoints lost",
    "most commits done again",
    "longest time to notice, s",
    "left behind",
    "what failed",
)


@dataclass
class Tally:
    """The results of the tries of one scenario; a row of the table."""

    scenario: str
    tries: int = 0
    completed: int = 0
    replayed: int = 0
    checkpoints_lost: int = 0
    done_again: int = 0
    notice: float | None = None
    left_behind: int = 0
    faults: list[str] = field(default_factory=list)

    def noticed(self, seconds: float) -> None:
        self.notice = max(seconds, self.notice or 0.0)

    def ended(self, report: dict[str, Any], commits: int) -> None:
        """Count the end of a run that should have made all its commits."""
        # Both: a run may report success for fewer commits than were asked for.
        status = report.get("status")
        complete = status == "completed" and report.get("commits") == commits
        self.completed += complete
        self.replayed += bool(report.get("replayed"))
        if not complete:
            self.faults.append(str(report.get("words") or status or "it did not end"))

    @property
    def good(self) -> bool:
        whole = self.completed == self.replayed == self.tries
        return whole and not (self.checkpoints_lost or self.left_behind or self.faults)

    def row(self) -> dict[str, str]:
        notice = "" if self.notice is None else f"{self.notice:.1f}"
        faults = "; ".join(sorted({fault[:120] for fault in self.faults}))
        counts = (self.tries, self.completed, self.replayed, self.checkpoints_lost)
        cells = (self.scenario, *counts, self.done_again, notice, self.left_behind)
        return dict(zip(COLUMNS, map(str, (*cells, faults))))


class Victim:
    """A run in processes of its own, in a folder of its own."""

    def __init__(
        self, folder: Path, settings: Settings, options: tuple[str, ...] = ()
    ) -> None:
        self.folder, self.settings, self.options = folder, settings, options
        folder.mkdir(parents=True)
        self.checkpoints = folder / "checkpoints"
        self.family: set[int] = set()

    def start(self) -> subprocess.Popen[str]:
        """Start the run, or continue it from its checkpoints."""
        job = ["-m", "benchmarks.faults.job"]
        arguments = [*job, str(self.folder), self.settings.to_json()]
        if self.settings.engine == "mpi":
            return mpi_start.start(self.settings.workers + 1, arguments, self.options)
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=mpi_start.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # A session of its own, so that signals of the terminal reach only this program.
            start_new_session=True,
        )

    def rows(self) -> list[list[float]]:
        """Of every evaluation: when, commit, workers."""
        file = self.folder / "progress"
        lines = file.read_text().splitlines() if file.exists() else []
        rows = [[float(word) for word in line.split()] for line in lines]
        # The last line may be half written.
        return [row for row in rows if len(row) == 3]

    def commit(self) -> int:
        """Return the last commit that was evaluated."""
        rows = self.rows()
        return int(rows[-1][1]) if rows else 0

    def wait(
        self, process: subprocess.Popen[str], condition: Callable[[], bool]
    ) -> bool:
        """Until the condition holds (True), the process ends or takes too long."""
        until = time.monotonic() + BEGIN
        while process.poll() is None and time.monotonic() < until:
            self.family |= descendants(process.pid)
            if condition():
                return True
            time.sleep(0.01)
        return False

    def running(self, process: subprocess.Popen[str], commits: int = 1) -> bool:
        """Wait until this process has evaluated some commits."""
        begun = len(self.rows())
        return self.wait(process, lambda: len(self.rows()) >= begun + commits)

    def saved_commit(self) -> int:
        """Return the commit of the newest whole checkpoint, 0 where there is none."""
        for _ in range(20):  # a living run may replace what is being read
            if (commit := newest_commit(self.checkpoints)) is not None:
                return commit
            time.sleep(0.02)
        return 0

    def rank(self, number: int) -> int:
        """Return the process of a rank."""
        return int((self.folder / f"pid.{number}").read_text())

    def kill_all(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL to every process of the run, by id."""
        self.family |= descendants(process.pid)
        # The family is collected while the run is alive: orphans have another parent after its death.
        for pid in [process.pid, *self.family]:
            kill(pid)
        process.communicate()

    def end(
        self, process: subprocess.Popen[str], seconds: float = END
    ) -> dict[str, Any]:
        """Let it end; what it reports, or its last words."""
        self.family |= descendants(process.pid)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill_all(process)
            return {"words": f"it hung: no end within {seconds:.0f} s"}
        for line in reversed(out.splitlines()):
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        # mpiexec frames its messages with dashes; our own sentence is preferred.
        lines = [
            line for line in err.replace("\0", "").splitlines() if line.strip(" -")
        ]
        ours = [line for line in lines if line.startswith("asyncqn")]
        words = (ours or lines or [""])[-1].strip()
        return {"words": f"exit code {process.returncode}: {words}"}

    def left_behind(self, seconds: float = 8.0) -> int:
        """Processes of the run that are there so long after its end; they are killed."""
        until = time.monotonic() + seconds
        while (
            alive := {pid for pid in self.family if is_alive(pid)}
        ) and time.monotonic() < until:
            time.sleep(0.1)
        for pid in alive:
            kill(pid)
        return len(alive)


def resume_to_the_end(victim: Victim, tally: Tally, was_at: int) -> None:
    """Continue a run that was ended from its checkpoint, and count its result."""
    saved = victim.saved_commit()
    tally.done_again = max(tally.done_again, was_at - saved)
    process = victim.start()
    tally.ended(victim.end(process), victim.settings.commits)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal; the process may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        # The name of the program, in parentheses, may itself contain blanks and parentheses.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def descendants(pid: int) -> set[int]:
    """Return the children of a process, theirs, and so on."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                children = set(map(int, (task / "children").read_text().split()))
                waiting += children - found
                found |= children
    return found


def named(pids: set[int], word: str) -> list[int]:
    """Return those whose command line contains a word."""
    chosen = []
    for pid in sorted(pids):
        with suppress(OSError):
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                chosen.append(pid)
    return chosen


def tries(
    tally: Tally,
    stem: Path,
    count: int,
    settings: Settings,
    options: tuple[str, ...] = (),
) -> Iterator[tuple[Victim, subprocess.Popen[str]]]:
    """Yield `count` runs that are under way, one after the other; see `watched`."""
    for number in range(count):
        victim = Victim(stem.with_name(f"{stem.name}{number}"), settings, options)
        with watched(victim, tally) as process:
            yield victim, process


@contextmanager
def watched(victim: Victim, tally: Tally) -> Iterator[subprocess.Popen[str]]:
    """Yield a started run that is under way; whatever happens, none of its processes outlives the block."""
    tally.tries += 1
    process = victim.start()
    try:
        # After twenty evaluations the run is past its start.
        if not victim.running(process, 20):
            words = victim.end(process, 1.0).get("words", "")
            tally.faults.append(f"it did not begin: {words}")
        yield process
    finally:
        if process.poll() is None:
            victim.kill_all(process)
        tally.left_behind += victim.left_behind()


def stop_and_continue(
    victim: Victim, tally: Tally, process: subprocess.Popen[str], pid: int
) -> None:
    """SIGSTOP to one process, three seconds, SIGCONT: the others continue meanwhile."""
    kill(pid, signal.SIGSTOP)
    time.sleep(3.0)
    kill(pid, signal.SIGCONT)
    tally.ended(victim.end(process), victim.settings.commits)


def check_losses(
    victim: Victim, tally: Tally, report: dict[str, Any], moment: float, lost: int
) -> None:
    """Compare the losses that a run counted since `moment`, and how soon its master noticed."""
    if report.get("lost") not in (None, lost):
        tally.faults.append(f"{report['lost']} losses were counted, of {lost}")
    fewest = victim.settings.workers - lost
    after = [row[0] for row in victim.rows() if row[2] <= fewest and row[0] > moment]
    if after:
        tally.noticed(after[0] - moment)


Scenario = Callable[[Path, int, random.Random], Iterator[Tally]]
"""Takes a scratch folder, how many tries, and dice; yields a tally per row of the table."""
