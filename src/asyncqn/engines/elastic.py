"""Engines to whose run workers can be added: what the engines of processes and of Ray actors share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from asyncqn.engines.master_loop import MasterLoop
from asyncqn.engines.real import RealEngine
from asyncqn.errors import require
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.runs.run import Run
from asyncqn.types import extra

StartTimeout = Annotated[float, parameter(gt=0.0, infinite=True)]


class RunsUnderWay(list[MasterLoop[Any]]):
    """The masters of an engine's runs that are under way; a copy of the engine has none of them."""

    def __reduce__(self) -> tuple[type[RunsUnderWay], tuple[()]]:
        return RunsUnderWay, ()


@dataclass(frozen=True)
class ElasticEngine(RealEngine):
    """A real engine to whose run workers can be added."""

    under_way: RunsUnderWay = field(
        default_factory=RunsUnderWay, init=False, repr=False, compare=False
    )

    def conduct(self, master: MasterLoop[Any]) -> Run:
        """Return the run of this master, to which `add` adds workers meanwhile."""
        self.under_way.append(master)
        try:
            return master.run()
        finally:
            self.under_way.remove(master)

    @checked
    def add(self, n: Workers = 1) -> None:
        """Start n more workers in the run that is under way: from its callback, or from another thread."""
        require(
            bool(self.under_way), "workers can be added only while a run is under way."
        )
        master = self.under_way[-1]
        algorithm = master.coordinator.algorithm
        require(
            # An algorithm with a limit was checked against the number of workers at the start.
            extra(algorithm, "max_workers") is None,
            f"{type(algorithm).__name__} limits its workers: none can be added.",
        )
        master.wanted.put(n)
