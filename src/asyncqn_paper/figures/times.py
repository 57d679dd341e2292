"""Simulated times to epsilon on the linear Gaussian problems: the jobs of Figs. 2 and 3 and of the order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn import Cluster, LinearGaussian, Simulator, starting_point
from asyncqn.lab import HOPELESS, commits_within, time_to
from asyncqn.types import Algorithm, Array, Progress, Request
from asyncqn_paper.drawing import spread
from asyncqn_paper.experiment import Context
from asyncqn_paper.problems import PROBLEMS
from asyncqn_paper.records import Record, column, distinct, where
from asyncqn_paper.settings import Given, algorithm, cluster, given

STARTS = {"prior": 1.0, "zero": 0.0, "far": 3.0}
"""Multiples of a draw from the prior."""


@dataclass(frozen=True)
class Job:
    """Some repetitions of one point of a curve; a run that needs longer than `limit` is too slow."""

    problem: str
    kind: str
    parameters: Given
    variance: float
    seeds: tuple[int, ...]
    workers: int = 40
    epsilon: float = 0.05
    limit: float = 12_000.0
    serial: float = 0.0
    start: str = "prior"

    def problem_and_method(self) -> tuple[LinearGaussian, Algorithm, Cluster]:
        """What runs, and on which cluster."""
        machines = cluster(self.kind, self.workers, self.variance, serial=self.serial)
        return PROBLEMS[self.problem].model(), algorithm(self.kind, self.parameters), machines

    def theta0(self, seed: int) -> Array:
        """Where a repetition begins."""
        return STARTS[self.start] * starting_point(PROBLEMS[self.problem].model(), None, seed)


def measure(job: Job) -> list[Record]:
    """One record per repetition."""
    what = job.problem_and_method()
    told = {"algorithm": job.kind, "workers": job.workers, "variance": job.variance}
    return [
        {**told, "seed": seed}
        | time_to(*what, seed=seed, target=job.epsilon, limit=job.limit, theta0=job.theta0(seed))._asdict()
        for seed in job.seeds
    ]


STAYING = 3.0
"""A run is looked at until this multiple of its time to epsilon."""


def measure_staying(job: Job) -> list[Record]:
    """What becomes of the runs that arrive and go on: the median error from 2 to 3 times their time to
    epsilon, over epsilon; None for runs that do not arrive, infinite for those that blow up."""
    model, method, timing = job.problem_and_method()
    records = []
    for seed in job.seeds:
        watch = _Watch(job.epsilon, job.limit)
        Simulator(timing).minimize(
            Request(
                model,
                method,
                theta0=job.theta0(seed),
                seed=seed,
                commits=commits_within(method, timing, STAYING * job.limit),
                evaluate=1 if method.stages[0].waits else 5,
                callback=watch,
            )
        )
        told = {"algorithm": job.kind, "variance": job.variance, "seed": seed}
        records.append({**told, "later": watch.later()})
    return records


class _Watch:
    """Notes when a run arrives, and its errors from 2 to 3 times that time; then, or when it is hopeless,
    ends it."""

    def __init__(self, epsilon: float, limit: float) -> None:
        self.epsilon, self.limit = epsilon, limit
        self.arrived: float | None = None
        self.first: float | None = None
        self.errors: list[float] = []

    def __call__(self, progress: Progress) -> None:
        error, time = progress.metrics["error"], progress.time
        self.first = error if self.first is None else self.first
        if self.arrived is None:
            if time > self.limit or not error <= HOPELESS * max(1.0, self.first):
                raise StopIteration
            self.arrived = time if error <= self.epsilon else None
        elif time > (STAYING - 1.0) * self.arrived:
            self.errors.append(error)
            if time > STAYING * self.arrived:
                raise StopIteration

    def later(self) -> float | None:
        """The median of these errors over epsilon; `GONE` where the run has blown up by then."""
        if not self.arrived:
            return None
        level = float(np.median(self.errors)) / self.epsilon if self.errors else np.inf
        return level if np.isfinite(level) else GONE


GONE = 1e30
"""Stands for an error that is no number."""


def jobs_of(
    problem: str,
    kind: str,
    parameters: Mapping[str, Any],
    variances: Sequence[float],
    seeds: range,
    **options: Any,
) -> list[Job]:
    """One job for each value of sigma_w^2; `options` are fields of `Job`."""
    return [Job(problem, kind, given(parameters), v, tuple(seeds), **options) for v in variances]


def run_labelled(
    context: Context,
    label: str,
    jobs: Sequence[tuple[Record, Job]],
    what: Callable[[Job], list[Record]] = measure,
) -> list[Record]:
    """The records of all jobs, each with its labels; jobs that settings share run once."""
    records = iter(context.jobs(label, what, [job for _, job in jobs]))
    return [{**labels, **next(records)} for labels, job in jobs for _ in job.seeds]


def run_named(context: Context, label: str, jobs: Sequence[tuple[str, Job]]) -> list[Record]:
    """The records of all jobs under the names of their settings."""
    return run_labelled(context, label, [({"setting": name}, job) for name, job in jobs])


class Curve(NamedTuple):
    """Means over the runs that arrive, as in the paper, infinite where fewer than half do; the band."""

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
        points = (good.mean(), *spread(good)) if share >= 0.5 else (np.inf,) * 3
        rows.append((*points, share))
    return Curve(np.array(xs), *np.array(rows).reshape(-1, 4).T)
