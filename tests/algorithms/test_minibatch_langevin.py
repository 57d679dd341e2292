"""MinibatchLangevin: its law, the error it estimates, the batch it chooses."""

from __future__ import annotations

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.errors import BadInput, SamplingWarning

ENGINE = aq.Simulator(aq.Cluster(workers=4))


def informative_rows(few: int = 4, n_data: int = 2000) -> aq.LinearGaussian:
    """A regression in which only `few` rows say anything."""
    rng = np.random.default_rng(0)
    A = np.zeros((n_data, 3))
    A[:few] = 5.0 * rng.standard_normal((few, 3))
    return aq.LinearGaussian(A, A @ np.ones(3), noise_var=1.0)


def alike_rows(n_data: int = 4000) -> aq.LinearGaussian:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((n_data, 3)) + 1.0
    return aq.LinearGaussian(A, A @ np.ones(3) + rng.standard_normal(n_data), noise_var=1.0)


def test_draws_from_minibatches_have_the_posterior_moments_and_cost_fewer_passes() -> None:
    problem = alike_rows()
    samples = aq.sample(problem, chains=4, draws=3000, engine=ENGINE, minibatches=True)
    sd = np.sqrt(np.diag(np.linalg.inv(problem.precision)))
    pooled = np.concatenate(samples.chains)
    assert np.abs((pooled.mean(axis=0) - problem.optimum_theta) / sd).max() < 0.1
    assert np.abs(pooled.std(axis=0) / sd - 1.0).max() < 0.07
    assert 0.0 < samples.widening < 0.05
    assert samples.run.counters["batch"] < problem.n_data / 2
    assert samples.gradients < 0.6 * 3000 * 8  # passes of exact gradients
    assert "approximate" in str(samples.summary())
    assert np.isnan(samples.accept)
    again = aq.Samples.from_run(aq.replay(samples.run))
    assert all((a == b).all() for a, b in zip(again.chains, samples.chains))


def test_the_widening_that_it_estimates_is_the_one_that_it_has() -> None:
    problem = alike_rows()
    method = aq.MinibatchLangevin(draws=8000, batch=6, h=0.5, steps=6)
    run = aq.minimize(problem, method, engine=ENGINE, commits=9000, keep=1)
    samples = aq.Samples.from_run(run)
    assert samples.widening > 0.15
    pooled = np.concatenate(samples.chains) - problem.optimum_theta
    whitened = pooled @ np.linalg.cholesky(problem.precision)
    widened = (whitened**2).mean() - 1.0
    estimate = float(run.results["widening"].mean())
    assert widened == pytest.approx(estimate, abs=0.05 + 0.2 * estimate)
    assert any("minibatches widens" in sentence for sentence in samples.warnings)


def test_a_few_rows_that_say_everything_get_exact_gradients() -> None:
    problem = informative_rows()
    samples = aq.sample(problem, chains=4, draws=1500, engine=ENGINE, minibatches=True)
    assert samples.run.counters["batch"] == problem.n_data
    assert samples.widening == 0.0
    sd = np.sqrt(np.diag(np.linalg.inv(problem.precision)))
    assert np.abs(np.concatenate(samples.chains).std(axis=0) / sd - 1.0).max() < 0.1


def test_a_batch_that_is_far_too_small_is_told() -> None:
    method = aq.MinibatchLangevin(draws=300, batch=4)
    run = aq.minimize(informative_rows(), method, engine=ENGINE, commits=700, keep=1)
    assert aq.Samples.from_run(run).warnings != []


def test_it_takes_no_warm_up_and_has_no_metric_of_its_own() -> None:
    problem = alike_rows(500)
    with pytest.raises(BadInput, match="warm_up does not go"):
        aq.sample(problem, draws=10, warm_up=5, minibatches=True)
    with pytest.warns(SamplingWarning):
        samples = aq.sample(problem, chains=4, draws=60, engine=ENGINE, minibatches=True)
    with pytest.raises(BadInput, match="no metric"):
        _ = samples.metric


class NanRow:
    """A regression whose row 7 has no gradient where theta[0] exceeds `beyond`."""

    dim, n_data = 3, 4000

    def __init__(self, beyond: float) -> None:
        self.beyond, self.A = beyond, np.random.default_rng(0).standard_normal((4000, 3))

    def value(self, theta: np.ndarray) -> float:
        return float(0.5 * ((self.A @ theta) ** 2).sum() + 0.5 * theta @ theta)

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        A = self.A[rows]
        out[:] = A.T @ (A @ theta) * (self.n_data / len(rows)) + theta
        if theta[0] > self.beyond and (rows == 7).any():
            out[:] = np.nan


def test_a_row_that_is_nan_at_times_is_told() -> None:
    with pytest.warns(SamplingWarning, match=r"\d+ of 600 draws .* look for rows with NaN"):
        samples = aq.sample(NanRow(0.03), chains=4, draws=600, engine=ENGINE, minibatches=True, check=False)
    assert samples.widening == np.inf
    assert "after a restart at the mode" in samples.run.message


def test_a_row_that_is_nan_everywhere_near_the_mode_ends_the_run_with_a_sentence() -> None:
    with pytest.raises(BadInput, match="look for rows with NaN"):
        aq.sample(NanRow(0.0), chains=4, draws=300, engine=ENGINE, minibatches=True, check=False)
