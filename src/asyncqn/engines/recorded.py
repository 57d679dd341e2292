"""Recorded: run an algorithm under exactly the delays of a schedule, such as the log of another system."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from asyncqn.core.request import Request
from asyncqn.core.schedule import Schedule
from asyncqn.errors import require
from asyncqn.parameters import Checked, parameter
from asyncqn.runs.execution import run_schedule
from asyncqn.runs.manifest import EngineManifest
from asyncqn.runs.run import Run


@dataclass(frozen=True, eq=False)
class Recorded(Checked):
    """Run an algorithm on a given schedule: who read which version, and which commit delivered the update.

    Any two algorithms then meet the same delays.  The run ends at the latest with the last commit of the
    schedule.

    Parameters
    ----------
    schedule : Schedule
        The schedule, for instance of `Schedule.from_table` or of another run (`run.schedule`).

    Examples
    --------
    >>> import asyncqn as aq
    >>> log = {"worker": ["a", "b", "a"], "start": [0.0, 0.0, 2.0], "end": [2.0, 3.0, 4.0]}
    >>> engine = aq.Recorded(aq.Schedule.from_table(log))
    >>> problem = aq.LinearGaussian.random(dim=3, n_data=30, seed=0)
    >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=6), engine=engine, commits=3)
    >>> run.schedule.staleness.tolist(), run.time
    ([0, 1, 1], 4.0)
    """

    schedule: Annotated[
        Schedule, parameter(words="a Schedule, as in Recorded(run.schedule)")
    ]

    @property
    def workers(self) -> int:
        return self.schedule.workers

    def minimize(self, request: Request) -> Run:
        require(
            request.checkpoints is None,
            "a run on a recorded schedule takes no checkpoints: it is computed again from the start.",
        )
        commits = min(request.commits, self.schedule.commits)
        schedule = self.schedule.until(commits)
        engine: EngineManifest = {"kind": "recorded", "workers": self.workers}
        return run_schedule(replace(request, commits=commits), schedule, engine=engine)
