"""Posteriors of 1,000 and 10,000 parameters, whose metric is a diagonal and 24 secants.

python -m benchmarks.studies.posteriors.long [--dims 1000 10000] [--only NAME ...] [--seeds 0 1]

- scaled: a Gaussian of independent parameters, standard deviations from 0.01 to 1; the diagonal is exact.
- rotated: a Gaussian with variances from 0.01 to 1 along directions that lie on no axis.
- walk: a Gaussian process, a random walk seen in noise: all parameters have about the same standard deviation
  and their precision has condition 100, so that no diagonal helps.
- logistic: groups of ten correlated coefficients with 200 rows each.  Groups are independent given the data,
  so that importance sampling in ten dimensions gives the moments; two groups alternate.

Moments of the first three are in closed form.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from benchmarks.studies.posteriors.compare import moments
from benchmarks.studies.posteriors.further import engine, importance_moments
from tests.posterior_models import Model

CONDITION = 100.0
GROUP, ROWS_OF_A_GROUP, PRIOR = 10, 200, 1.0
COMPARED = 200
"""Parameters, evenly spaced, whose moments and effective draws are computed."""


class Long(NamedTuple):
    """A problem, and the exact means and standard deviations of all its parameters."""

    problem: Any
    mean: Any
    sd: Any


def scaled(dim: int) -> Long:
    sd = np.geomspace(1.0 / CONDITION, 1.0, dim)
    return Long(Model(lambda t: (0.5 * ((t / sd) ** 2).sum(), t / sd**2), dim), np.zeros(dim), sd)


def rotated(dim: int, reflections: int = 4) -> Long:
    """Variances along the columns of a product of reflections I - 2 v v'."""
    rng = np.random.default_rng(0)
    axes = [v / np.linalg.norm(v) for v in rng.standard_normal((reflections, dim))]
    precision = np.geomspace(1.0, CONDITION, dim)

    def reflected(x: Any, order: Any) -> Any:
        for v in order:
            x = x - 2.0 * (v @ x) * v
        return x

    def function(t: Any) -> tuple[float, Any]:
        inside = reflected(t, axes)
        g = reflected(precision * inside, axes[::-1])
        return 0.5 * (t @ g), g

    # The rows of the rotation, of whose squares the marginal variances are means, column by column.
    variance = np.empty(dim)
    for start in range(0, dim, 500):
        columns = np.eye(dim, min(500, dim - start), -start)
        for v in axes:
            columns = columns - 2.0 * np.multiply.outer(v, v @ columns)
        variance[start : start + columns.shape[1]] = (columns**2 / precision[:, None]).sum(axis=0)
    return Long(Model(function, dim), np.zeros(dim), np.sqrt(variance))


def walk(dim: int) -> Long:
    """x_i - x_{i-1} ~ N(0, 4/99), y_i ~ N(x_i, 1): eigenvalues of the precision from about 1 to 100."""
    step = (CONDITION - 1.0) / 4.0
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.standard_normal(dim) / np.sqrt(step)) + rng.standard_normal(dim)

    def function(t: Any) -> tuple[float, Any]:
        off, increment = t - y, np.diff(t)
        g = off.copy()
        g[1:] += step * increment
        g[:-1] -= step * increment
        return 0.5 * (off @ off + step * (increment @ increment)), g

    # Messages from both ends: the precision of x_i given what lies to its left, and to its right.
    left = np.zeros(dim)
    for i in range(1, dim):
        before = left[i - 1] + 1.0
        left[i] = before * step / (before + step)
    variance = 1.0 / (left + left[::-1] + 1.0)
    forward, backward = np.zeros(dim), np.zeros(dim)
    for i in range(1, dim):
        forward[i] = (left[i - 1] * forward[i - 1] + y[i - 1]) / (left[i - 1] + 1.0)
        backward[i] = (left[i - 1] * backward[i - 1] + y[dim - i]) / (left[i - 1] + 1.0)
    mean = variance * (left * forward + left[::-1] * backward[::-1] + y)
    return Long(Model(function, dim), mean, np.sqrt(variance))


def logistic(dim: int) -> Long:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2, ROWS_OF_A_GROUP, GROUP))
    X[:, :, 1:] = 0.8 * X[:, :, :1] + 0.6 * X[:, :, 1:]
    chance = 1.0 / (1.0 + np.exp(-X @ rng.standard_normal(GROUP)))
    y = rng.uniform(size=chance.shape) < chance
    found = [importance_moments(aq.LogisticRegression(X[k], y[k], prior=PRIOR), 100_000) for k in range(2)]
    signed, half = np.where(y, -1.0, 1.0)[:, :, None] * X, dim // (2 * GROUP)

    def function(t: Any) -> tuple[float, Any]:
        theta = t.reshape(half, 2, GROUP)
        U, g = 0.5 * PRIOR * (t @ t), PRIOR * theta
        for k in range(2):
            odds = np.exp(theta[:, k] @ signed[k].T)
            U += np.log1p(odds).sum()
            g[:, k] += (odds / (1.0 + odds)) @ signed[k]
        return U, g.reshape(-1)

    mean, sd = (np.tile(np.concatenate(part), half) for part in zip(*found))
    return Long(Model(function, dim), mean, sd)


LONG: dict[str, Callable[[int], Long]] = {
    "scaled": scaled,
    "rotated": rotated,
    "walk": walk,
    "logistic": logistic,
}


def measured(case: Long, draws: int, seed: int) -> str:
    """One run, as the cells of a row."""
    before = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = aq.sample(case.problem, chains=8, draws=draws, engine=engine(), seed=seed)
    seconds = time.process_time() - before
    dim = case.problem.dim
    some = np.arange(0, dim, max(1, dim // COMPARED))
    drawn = moments([chain[:, some] for chain in samples.chains])
    z = (drawn.mean - case.mean[some]) / drawn.mean_error
    z_sd = (drawn.sd - case.sd[some]) / drawn.sd_error
    off = np.abs(drawn.mean - case.mean[some]) / case.sd[some]
    ratio = drawn.sd / case.sd[some]
    counters = samples.run.counters
    leapfrog = counters["gradients"] / counters["draws"]
    return (
        f"{off.max():.3f} | {ratio.min():.3f} to {ratio.max():.3f} | {z.std():.2f}, {z_sd.std():.2f} | "
        f"{drawn.ess / counters['gradients']:.4f} | {leapfrog:.1f} | {samples.accept:.2f} | "
        f"{counters['warm_up_gradients']} | {seconds:.0f}"
    )


def main() -> None:
    """Print the table, as the page has it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", nargs="+", type=int, default=[1000, 10_000])
    parser.add_argument("--only", nargs="+", default=list(LONG), choices=LONG)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--draws", type=int, default=2000)
    asked = parser.parse_args()
    print(
        "| posterior | d | seed | largest error of a mean (sd) | standard deviations over exact ones | "
        "sd of z, means and sds | ESS per gradient | leapfrog steps | accepted | warm-up gradients | "
        "seconds |\n"
        "|" + "---|" * 11
    )
    for dim in asked.dims:
        for name in asked.only:
            case = LONG[name](dim)
            for seed in asked.seeds:
                print(f"| {name} | {dim:,} | {seed} | {measured(case, asked.draws, seed)} |", flush=True)


if __name__ == "__main__":
    main()
