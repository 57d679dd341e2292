"""blame: an estimate of what staleness and each worker cost a run, with intervals over seeds.

Each change is compared with the unchanged run on the same seed.  The pair shares rows and noise, so its
difference varies far less than two independent runs would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from asyncqn.cluster.cluster import Worker
from asyncqn.core.stages import Closes
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
    independent_error: float
    """The standard error that the same number of unpaired runs would have."""


class Blame(NamedTuple):
    """The result of `blame`; printed, it is the table of `asyncqn blame`."""

    metric: str
    unchanged: float
    """The metric at the end of the unchanged run, averaged over the seeds."""
    effects: tuple[Effect, ...]
    seeds: int
    """The number of seeds."""

    def __str__(self) -> str:
        lines = [
            f"{self.metric} at the end: {self.unchanged:.6g} (mean of {self.seeds} seeds)",
            f"{'without':<14}{'difference':>12}{'95 % interval':>26}{'error':>10}{'unpaired':>10}",
        ]
        for effect in self.effects:
            interval = f"{effect.low:.4g} to {effect.high:.4g}"
            lines.append(
                f"{effect.what:<14}{effect.difference:>12.4g}{interval:>26}{effect.error:>10.2g}"
                f"{effect.independent_error:>10.2g}"
            )
        return "\n".join(lines)


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
        The effects with their standard errors; `print` shows them as a table.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=10, worker_std=0.3))
    >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=engine, commits=300)
    >>> found = aq.blame(run, seeds=4, workers=[0])
    >>> [effect.what for effect in found.effects]
    ['staleness', 'worker 0']
    >>> found.effects[0].error < found.effects[0].independent_error
    True
    >>> print(found)  # doctest: +ELLIPSIS
    fun at the end: ... (mean of 4 seeds)
    without         difference             95 % interval     error  unpaired
    staleness ...
    worker 0 ...
    """
    if metric not in run.metrics:
        raise BadInput(
            f"the run has no metric '{metric}': it has {', '.join(run.metrics)}."
        )
    # An explicit worker that cannot be removed raises an error; by default such workers are skipped.
    taken = _removable(run) if workers is None else list(workers)
    own = int(run.manifest["seed"])
    # The unchanged run is computed as well, because another seed gives another run.
    changes: list[dict[str, Any]] = [
        {},
        {"fresh": True},
        *({"without_worker": w} for w in taken),
    ]
    table = np.empty((seeds, len(changes)))
    for done, (i, j) in enumerate(np.ndindex(table.shape), 1):
        # Seeds wrap around at 2^63, the largest that Philox takes.
        again = run.what_if(seed=(own + i) % 2**63, **changes[j])
        table[i, j] = again.metrics[metric][-1]
        if tell is not None:
            tell(done, table.size)
    names = ["staleness", *(f"worker {w}" for w in taken)]
    effects = tuple(
        _effect(name, table[:, 0], table[:, j + 1]) for j, name in enumerate(names)
    )
    return Blame(metric, float(table[:, 0].mean()), effects, seeds)


def _removable(run: Run) -> list[int]:
    """Return the workers that can be removed from the schedule."""
    stages = run.algorithm.stages if run.algorithm is not None else ()
    if (
        len(stages) != 1
        or stages[0].closes is Closes.ALL_PARTS
        or run.schedule.workers == 1
    ):
        return []
    return [int(w) for w in np.unique(run.schedule.worker)]


def _effect(what: str, unchanged: np.ndarray, changed: np.ndarray) -> Effect:
    n, difference = unchanged.size, changed - unchanged
    mean = float(difference.mean())
    error = float(difference.std(ddof=1)) / math.sqrt(n)
    # Variances of independent runs add; in pairs most of them cancels.
    apart = math.sqrt(float(unchanged.var(ddof=1) + changed.var(ddof=1)) / n)
    wide = student(n - 1) * error
    return Effect(what, mean, error, mean - wide, mean + wide, apart)


def student(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t: where the integral of the density from 0 is 0.475."""
    log_scale = (
        math.lgamma((degrees + 1) / 2)
        - math.lgamma(degrees / 2)
        - 0.5 * math.log(degrees * math.pi)
    )
    # With t = tan(a) sqrt(degrees) the density becomes cos(a)^(degrees - 1), smooth on a bounded interval.
    a = np.linspace(0.0, math.pi / 2, 20_001)
    density = math.exp(log_scale) * math.sqrt(degrees) * np.cos(a) ** (degrees - 1)
    below = np.concatenate(
        [[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(a))]
    )
    return float(math.sqrt(degrees) * math.tan(np.interp(0.475, below, a)))
