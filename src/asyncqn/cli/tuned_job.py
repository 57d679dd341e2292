"""A job as a tuning problem: the user's own problem and simulated cluster, and the metric to lower."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from asyncqn.cli.jobfile import RunOptions, make_problem, setting_of
from asyncqn.cli.options import SettingOptions, parse_parameters
from asyncqn.cluster.cluster import Cluster
from asyncqn.errors import BadInput, require
from asyncqn.lab.tuning.problem import TuningProblem
from asyncqn.parameters import from_json
from asyncqn.types import Problem

CYCLES_AT_MOST = 100.0
"""The default of --max-time, in cycles: a cycle is a worker's computation with its messages."""


@dataclass(frozen=True, kw_only=True)
class JobProblem(TuningProblem):
    """Sections of a job file and the goal, as plain data that a study stores and other processes receive."""

    problem: Mapping[str, Any]
    times: Mapping[str, Any]
    metric: str
    target: float
    fixed: Mapping[str, Any] = field(default_factory=dict)
    looks: int | None = None
    allow_imports: bool = False

    @property
    def goal(self) -> tuple[str, float]:
        return self.metric, self.target

    @property
    def kept(self) -> Mapping[str, Any]:
        return self.fixed

    @property
    def evaluate(self) -> int | None:
        return self.looks

    def model(self) -> Problem:
        # As text, because `lru_cache` needs a hashable key and a section is a dictionary.
        return _made(json.dumps(self.problem), self.allow_imports)

    def cluster(self, parameters: Mapping[str, Any]) -> Cluster:
        made: Cluster = from_json(Cluster, dict(self.times), "[cluster]")
        return made


# Trials of one process share the problem; building it from a file may take longer than a trial.
@lru_cache(maxsize=2)
def _made(section: str, allow_imports: bool) -> Problem:
    return make_problem(json.loads(section), allow_imports=allow_imports)


def job_problem(algorithm: str, options: SettingOptions, runs: Mapping[str, int]) -> JobProblem:
    """Return the tuning problem; mistakes are found here, before the first trial."""
    setting = setting_of(options.job, options.overrides())
    cluster = from_json(Cluster, setting["cluster"], "[cluster]")
    run = from_json(RunOptions, setting["run"], "[run]")
    if run.target is None:
        raise BadInput("a study needs a goal: give --target X, and --metric NAME unless it is fun.")
    require(math.isfinite(run.target), f"--target must be a finite number, not {run.target:g}.")
    # The cycle of an average worker is the natural unit of a time limit.
    cycle = float(cluster.means().mean()) + cluster.message + cluster.master
    made = JobProblem(
        algorithm=algorithm,
        workers=cluster.workers,
        limit=run.max_time or CYCLES_AT_MOST * cycle,
        problem=setting["problem"],
        times=setting["cluster"],
        metric=run.metric,
        target=run.target,
        fixed=parse_parameters(options.parameter or []),
        looks=run.evaluate,
        allow_imports=options.allow_imports,
        **runs,
    )
    # Build the problem once, so that a mistake in [problem] is found now.
    made.model()
    return made
