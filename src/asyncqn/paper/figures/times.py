"""Simulated times to epsilon on the linear Gaussian problems: the jobs of Figs. 2 and 3 and of the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn.minimize import starting_point
from asyncqn.paper.experiment import Context
from asyncqn.paper.problems import PROBLEMS
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import algorithm, cluster
from asyncqn.tuning.measure import time_to

STARTS = {"prior": 1.0, "zero": 0.0, "far": 3.0}
"""Multiples of a draw from the prior."""


@dataclass(frozen=True)
class Job:
    """Some repetitions of one point of a curve; a run that needs longer than `limit` is too slow."""

    problem: str
    kind: str
    parameters: tuple[tuple[str, Any], ...]
    variance: float
    seeds: tuple[int, ...]
    workers: int = 40
    epsilon: float = 0.05
    limit: float = 12_000.0
    serial: float = 0.0
    start: str = "prior"


def measure(job: Job) -> list[Record]:
    """One record per repetition."""
    potential = PROBLEMS[job.problem].potential()
    method = algorithm(job.kind, dict(job.parameters))
    records = []
    for seed in job.seeds:
        found = time_to(
            potential,
            method,
            cluster(job.kind, job.workers, job.variance, serial=job.serial),
            seed=seed,
            target=job.epsilon,
            limit=job.limit,
            theta0=STARTS[job.start] * starting_point(potential, None, seed),
        )
        told = {"algorithm": job.kind, "workers": job.workers, "variance": job.variance, "seed": seed}
        records.append({**told, **found._asdict()})
    return records


def jobs_of(
    problem: str,
    kind: str,
    parameters: Mapping[str, Any],
    variances: Sequence[float],
    seeds: range,
    **options: Any,
) -> list[Job]:
    """One job for each value of sigma_w^2; `options` are fields of `Job`."""
    plain = tuple(sorted(parameters.items()))
    return [Job(problem, kind, plain, variance, tuple(seeds), **options) for variance in variances]


def run_labelled(context: Context, label: str, jobs: Sequence[tuple[Record, Job]]) -> list[Record]:
    """The records of all jobs, each with its labels; jobs that settings share run once."""
    records = iter(context.jobs(label, measure, [job for _, job in jobs]))
    return [{**labels, **next(records)} for labels, job in jobs for _ in job.seeds]


def run_named(context: Context, label: str, jobs: Sequence[tuple[str, Job]]) -> list[Record]:
    """The records of all jobs under the names of their settings."""
    return run_labelled(context, label, [({"setting": name}, job) for name, job in jobs])


class Curve(NamedTuple):
    """Means over the runs that arrive, as in the paper, infinite where fewer than half do; 10 and 90 %."""

    x: Any
    mean: Any
    low: Any
    high: Any
    share: Any
    """The share of the runs that arrive."""

    @property
    def arrives(self) -> bool:
        """Whether at every point at least half of the runs arrive."""
        return bool(np.isfinite(self.mean).all())


def curve(records: Sequence[Record], what: str = "time", by: str = "variance") -> Curve:
    """`what` against `by`."""
    xs = sorted(distinct(records, by))
    rows = []
    for x in xs:
        values = column(where(records, **{by: x}), what)
        good = values[np.isfinite(values)]
        share = good.size / values.size
        points = (good.mean(), *np.quantile(good, (0.1, 0.9))) if share >= 0.5 else (np.inf,) * 3
        rows.append((*points, share))
    return Curve(np.array(xs), *np.array(rows).reshape(-1, 4).T)
