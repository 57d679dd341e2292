"""blame: an estimate of what staleness and each worker cost a run, with their errors over seeds.

Each change is compared with the unchanged run on the same seed.  The pair shares rows and noise, so its
difference varies far less than two independent runs would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from asyncqn.cluster.cluster import Worker
from asyncqn.core.outcome import Outcome
from asyncqn.core.stages import AllParts
from asyncqn.errors import BadInput
from asyncqn.parameters import checked, parameter
from asyncqn.runs.run import Run


class Effect(NamedTuple):
    """The change of the metric at the end of the run when `what` is removed: changed minus unchanged."""

    what: str
    difference: float
    """The mean over the seeds; negative: the run would have ended lower."""
    error: float
    """The standard error of that mean, from the pairs."""
    low: float
    high: float
    """Ends of the 95 % confidence interval of the expected difference (Student's t over the seeds)."""

    def __str__(self) -> str:
        return (
            f"without {self.what}: {self.difference:+.4g} (95 % interval {self.low:.4g} to {self.high:.4g}, "
            f"standard error {self.error:.2g})"
        )


class Blame(NamedTuple):
    """The result of `blame`; printed, it says what `asyncqn blame` does."""

    metric: str
    unchanged: float
    """The metric at the end of the unchanged run, averaged over the seeds."""
    effects: tuple[Effect, ...]
    seeds: int
    """The number of seeds."""

    def __str__(self) -> str:
        first = f"{self.metric} at the end: {self.unchanged:.6g} (mean of {self.seeds} seeds)"
        return "\n".join([first, *map(str, self.effects)])


@checked
def blame(
    run: Run,
    *,
    seeds: Annotated[int, parameter(ge=2, le=1_000_000)] = 8,
    workers: Sequence[Worker] | None = None,
    metric: str = "fun",
    tell: Callable[[int, int], None] | None = None,
) -> Blame:
    """Estimate what staleness, and each worker, cost a run.

    For each of `seeds` seeds, beginning with the run's own, the run is computed again on its schedule, then
    with fresh reads, then without each of the workers. Runs are compared in pairs that share rows and noise,
    so the standard error is that of the effect alone.

    Parameters
    ----------
    run : Run
        The run to explain.
    seeds : int, default 8
        Number of pairs; the intervals come from their scatter.
    workers : sequence of int, optional
        Workers that are removed one by one; by default all, or none where a version needs all parts of the
        data.
    metric : str, default "fun"
        Column of the metric table, compared at the end of the run.
    tell : callable, optional
        Called with (runs made, runs in all).

    Returns
    -------
    Blame
        The effects with their standard errors.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=10, worker_std=0.3))
    >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=engine, commits=300)
    >>> print(aq.blame(run, seeds=4, workers=[0]))  # doctest: +ELLIPSIS
    fun at the end: ... (mean of 4 seeds)
    without staleness: ...
    without worker 0: ...
    """
    if metric not in run.metrics:
        raise BadInput(
            f"the run has no metric '{metric}': it has {', '.join(run.metrics)}."
        )
    if run.status == Outcome.DIVERGED:
        raise BadInput(
            "the run diverged, so where it ended says nothing of its workers: explain another run."
        )
    changes: dict[str, dict[str, Any]] = {"staleness": {"fresh": True}}
    for worker in _removable(run) if workers is None else workers:
        changes[f"worker {worker}"] = {"without_worker": worker}
    # The unchanged run is computed as well, because another seed gives another run.
    columns = [{}, *changes.values()]
    table = np.empty((seeds, len(columns)))
    for i, j in np.ndindex(table.shape):
        # Seeds wrap around at 2^63, the largest that Philox takes.
        seed = (int(run.manifest["seed"]) + i) % 2**63
        again = run.what_if(seed=seed, **columns[j])
        table[i, j] = again.metrics[metric][-1]
        if tell is not None:
            count = i * len(columns) + j + 1
            tell(count, table.size)
    differences = table[:, 1:] - table[:, :1]
    effects = [
        Effect(what, *student_interval(column))
        for what, column in zip(changes, differences.T, strict=True)
    ]
    return Blame(metric, float(table[:, 0].mean()), tuple(effects), seeds)


def _removable(run: Run) -> list[int]:
    """Return the workers that can be removed from the schedule."""
    stages = run.algorithm.stages if run.algorithm is not None else ()
    if len(stages) != 1 or isinstance(stages[0], AllParts):
        return []
    if run.schedule.workers == 1:
        return []
    workers = np.unique(run.schedule.worker)
    return [int(worker) for worker in workers]


def student_interval(values: np.ndarray) -> tuple[float, float, float, float]:
    """Return mean, standard error, and the ends of the 95 % interval of the expectation."""
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    wide = student(values.size - 1) * error
    return mean, error, mean - wide, mean + wide


def student(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t: where the integral of the density from 0 is 0.475."""
    # Gamma functions as logarithms: they overflow at a few hundred degrees.
    half = degrees / 2
    log_scale = math.lgamma(half + 0.5) - math.lgamma(half)
    scale = math.exp(log_scale) / math.sqrt(math.pi)
    # With t = tan(a) sqrt(degrees) the density becomes cos(a)^(degrees - 1), smooth on a bounded interval.
    a = np.linspace(0.0, math.pi / 2, 20_001)
    density = scale * np.cos(a) ** (degrees - 1)
    means = (density[1:] + density[:-1]) / 2
    below = np.zeros_like(a)
    below[1:] = np.cumsum(means * np.diff(a))
    quantile = np.interp(0.475, below, a)
    return math.sqrt(degrees) * math.tan(quantile)
