"""`aq.sample(minibatches=True)` on three posteriors of posteriordb that are sums over many rows.

python -m benchmarks.studies.posteriors.minibatches CHECKOUT [--seeds 0 1 2] [--draws 10000] [--batch ROWS]

Each row of the table has the batch that the method chose (or the one asked for), errors against the
reference draws, the widening of variances that the run itself estimates, and effective draws per pass over
the data.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

import asyncqn as aq
from benchmarks.studies.posteriors.database import Database
from benchmarks.studies.posteriors.density import normal
from benchmarks.studies.posteriors.further import engine
from benchmarks.studies.posteriors.rows import Case

Parts = tuple[int, Callable[[Any], Any], Callable[[Any, Any], Any], Any]
"""dim, the log prior, the log likelihood of some rows, and the rows."""


class RowSum:
    """A posterior whose log likelihood is a sum over rows, as a problem of asyncqn."""

    def __init__(self, parts: Parts) -> None:
        self.dim, prior, likelihood, rows = parts
        self.n_data = len(rows)

        def scaled(theta: Any, some: Any) -> Any:
            return -prior(theta) - likelihood(theta, some) * (self.n_data / some.shape[0])

        self._rows = np.asarray(rows)
        self._value, self._grad = jax.jit(scaled), jax.jit(jax.grad(scaled))

    def value(self, theta: np.ndarray) -> float:
        return float(self._value(theta, self._rows))

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        out[:] = self._grad(theta, self._rows[rows])


def linear(X: Any, y: Any, prior: Callable[[Any, Any], Any]) -> Parts:
    """Coefficients and log sigma of a linear regression; the last column of the rows is y."""
    k = X.shape[1]

    def likelihood(theta: Any, rows: Any) -> Any:
        off = rows[:, k] - rows[:, :k] @ theta[:k]
        return -0.5 * (off**2).sum() * jnp.exp(-2.0 * theta[k]) - rows.shape[0] * theta[k]

    def log_prior(theta: Any) -> Any:
        return prior(theta[:k], jnp.exp(theta[k])) + theta[k]

    return k + 1, log_prior, likelihood, np.column_stack([X, y])


def diamonds(data: dict[str, Any]) -> Parts:
    X = np.array(data["X"], float)[:, 1:]

    def student(x: Any, mean: float) -> Any:
        return -2.0 * jnp.log1p(((x - mean) / 10.0) ** 2 / 3.0)

    def prior(b: Any, sigma: Any) -> Any:
        return normal(b[:-1], 0.0, 1.0) + student(b[-1], 8.0) + student(sigma, 0.0)

    return linear(np.column_stack([X - X.mean(axis=0), np.ones(len(X))]), data["Y"], prior)


def nes(data: dict[str, Any]) -> Parts:
    d = {name: np.array(value) for name, value in data.items()}
    ages = [d["age_discrete"] == level for level in (2, 3, 4)]
    columns = [d["real_ideo"], d["race_adj"], *ages, d["educ1"], d["gender"], d["income"]]
    X = np.column_stack([np.ones(len(columns[0])), *columns]).astype(float)
    return linear(X, d["partyid7"], lambda b, sigma: 0.0)


def mixture(data: dict[str, Any]) -> Parts:
    def likelihood(t: Any, rows: Any) -> Any:
        mu, sigma = jnp.array([t[0], t[0] + jnp.exp(t[1])]), jnp.exp(t[2:4])
        weights = jnp.array([jax.nn.log_sigmoid(t[4]), jax.nn.log_sigmoid(-t[4])])
        parts = -0.5 * ((rows - mu) / sigma) ** 2 - jnp.log(sigma)
        return logsumexp(parts + weights, axis=1).sum()

    def prior(t: Any) -> Any:
        mu, sigma = jnp.array([t[0], t[0] + jnp.exp(t[1])]), jnp.exp(t[2:4])
        weights = jax.nn.log_sigmoid(t[4]) + jax.nn.log_sigmoid(-t[4])
        return normal(mu, 0.0, 2.0) + normal(sigma, 0.0, 2.0) + 5.0 * weights + t[1] + t[2] + t[3]

    return 5, prior, likelihood, np.array(data["y"], float)[:, None]


SUMS: dict[str, Callable[[dict[str, Any]], Parts]] = {
    "diamonds-diamonds": diamonds,
    "nes1972-nes": nes,
    "low_dim_gauss_mix-low_dim_gauss_mix": mixture,
}


def measured(case: Case, problem: RowSum, draws: int, seed: int, batch: int | None) -> str:
    """One run, as the cells of a row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if batch is None:
            samples = aq.sample(
                problem, chains=8, draws=draws, engine=engine(), seed=seed, minibatches=True, check=False
            )
        else:
            method = aq.MinibatchLangevin(draws, batch=batch)
            run = aq.minimize(
                problem, method, engine=engine(), commits=2 * draws, seed=seed, keep=1, check=False, tol=None
            )
            samples = aq.Samples.from_run(run)
    found = case.compared(samples.chains)
    used = samples.run.counters["batch"]
    return (
        f"{used} of {problem.n_data} | {found['mean']:.3f} | {found['sd']:.3f} | {samples.widening:.1%} | "
        f"{found['ess'] / samples.gradients:.3f} | {'; '.join(samples.warnings) or 'none'}"
    )


def main() -> None:
    """Print the table, as the page has it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of posteriordb")
    parser.add_argument("--only", nargs="+", default=list(SUMS), choices=SUMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--batch", type=int, help="rows of a gradient; by default the method chooses")
    asked = parser.parse_args()
    database = Database(asked.checkout)
    print(
        "| posterior | seed | batch | largest error of a mean (sd) | sd ratio farthest from 1 | widening, "
        "estimated | ESS per pass | warnings |\n|" + "---|" * 8
    )
    for name in asked.only:
        case, problem = Case.read(database, name), RowSum(SUMS[name](database.data(name)))
        theta = np.random.default_rng(0).standard_normal(problem.dim)
        both = [problem.value(t) - case.problem.value(t) for t in (theta, 0.5 * theta)]
        assert abs(both[0] - both[1]) < 1e-6 * (1.0 + abs(problem.value(theta))), "not the same posterior"
        for seed in asked.seeds:
            cells = measured(case, problem, asked.draws, seed, asked.batch)
            print(f"| {name} | {seed} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
