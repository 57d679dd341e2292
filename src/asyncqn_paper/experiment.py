"""What an experiment is: a specification that becomes tables, and tables that become figures and outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from asyncqn.errors import BadInput
from asyncqn.lab import SharedPool, Tell, read_study
from asyncqn_paper.claims import Outcome
from asyncqn_paper.records import Record
from asyncqn_paper.result_cache import Spent, run_jobs

J = TypeVar("J")
Tables = dict[str, list[Record]]

Progress = Callable[[str, int], AbstractContextManager[Tell]]


def _silent(label: str, total: int) -> AbstractContextManager[Tell]:
    return nullcontext(lambda done, note="": None)


def tuned_folder() -> Path:
    """The results of tuning that come with the package."""
    return Path(__file__).resolve().parent / "tuned"


@dataclass(frozen=True)
class Context:
    """Where an experiment keeps its things, and how much it may do."""

    folder: Path
    full: bool = False
    processes: int = 2
    seed: int = 0
    progress: Progress = _silent
    tuned_from: Path | None = None
    shared: SharedPool | None = None
    """Processes that serve all jobs of the experiment."""
    spent: list[Spent] = field(default_factory=list)
    """What the jobs so far took, those of earlier runs included; by the clock, on all processes at once."""

    @property
    def alone(self) -> Context:
        """The same on one process: a neighbour on the other core would be measured too."""
        return replace(self, processes=1)

    def jobs(self, label: str, function: Callable[[J], list[Record]], jobs: Sequence[J]) -> list[Record]:
        """Run jobs on the processes; finished ones are found in the experiment's folder."""
        path = self.folder / "parts" / f"{function.__module__.rpartition('.')[2]}.{function.__name__}.jsonl"
        with self.progress(label, len({str(job) for job in jobs})) as tell:
            options: dict[str, Any] = {"tell": tell, "spend": self._spend, "shared": self.shared}
            return run_jobs(function, jobs, path, processes=self.processes, **options)

    def _spend(self, spent: Spent) -> None:
        self.spent.append(spent._replace(clock=spent.clock / self.processes))

    def _study(self, name: str) -> Path:
        return (self.tuned_from or tuned_folder()) / f"{name}.json"

    def has_study(self, name: str) -> bool:
        """Whether there is a study of this name."""
        return self._study(name).is_file()

    def tuned(self, name: str) -> dict[str, Any]:
        """A study of the tuner, by the name of its file: {"best": {"parameters": ...}, "command": ...}."""
        path = self._study(name)
        if not path.is_file():
            raise BadInput(
                f"there is no study {path}: make it with python -m asyncqn_paper tune --output {path}."
            )
        document = read_study(path)
        if document["best"] is None:
            raise BadInput(f"the study {path} found no parameters that reach the goal: give it more trials.")
        return document


@dataclass(frozen=True)
class Experiment:
    """compute -> tables; draw, outcomes and headline see the tables only."""

    name: str
    title: str
    about: str
    compute: Callable[[Context], Tables]
    draw: Callable[[Tables], dict[str, Any]]
    outcomes: Callable[[Tables], list[Outcome]]
    """What each setting says about each claim: see `claims`."""
    quick: str = ""
    full: str = ""
    """How much is computed in either size, in a few words."""
    minutes: tuple[float, float] = (1.0, 10.0)
    """About how long either size takes to compute on two processors, by the processor time it took on a busy
    machine; starting and drawing come on top, some ten seconds each."""
    headline: Callable[[Tables], list[str]] | None = None
    """Sentences for the head of the page."""
