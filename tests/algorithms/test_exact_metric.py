"""Exact L-BFGS over a metric: what it costs, when it asks for curvature, and that it holds where features misbehave."""

from __future__ import annotations

import numpy as np
import pytest

import asyncqn as aq
from asyncqn import ExactLBFGS
from asyncqn.algorithms.exact.inverse import Curvature, SampledMetric
from asyncqn.algorithms.exact.samples import RENEWAL_PERIOD, RENEWALS
from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.core.streams import Stream
from asyncqn.types import Task

ONE = aq.Simulator(aq.Cluster(workers=1))


def over_metric(problem, summary, theta0):
    """H of three pairs at most over the metric of a summary that came with the trial."""
    state = Curvature(np.zeros(problem.curvature_size))
    memory = PairMemory.empty(3, theta0)
    return SampledMetric(memory, state, summary, problem.inverse_metric_from)


def over_samples(problem, samples, **parameters):
    """The method over the problem's metric, in blocks of its own."""
    size = problem.curvature_size
    return ExactLBFGS(
        samples=samples, inverse="metric", curvature=size, **{"blocks": 2, **parameters}
    )


@pytest.mark.parametrize(
    "model", [aq.LogisticRegression, aq.PoissonRegression, aq.RobustRegression]
)
def test_an_ill_conditioned_model_takes_a_handful_of_passes(model):
    problem = model.random(40_000, 20, condition=1000.0, correlation=0.95, seed=1)
    run = aq.minimize(problem, engine=ONE)
    assert run.status == "converged"
    # The one sample costs 0.75 passes.  A metric of 40 rows per number is off by about 1 / sqrt(40), so that
    # a version leaves a sixth of the error: ten for a gradient of 1e-8.
    assert run.passes < 12


def test_summaries_come_by_a_timetable_and_are_zero_at_other_versions():
    problem = aq.LogisticRegression.random(320, 3, seed=0)
    algorithm = over_samples(problem, 1)
    iterate = algorithm.init(np.zeros(3))
    local = algorithm.init_worker(problem, np.zeros(3))
    asked = []
    for read in range(12 + 2 * RENEWAL_PERIOD + 1):
        update = algorithm.step(
            iterate, local, problem, Task(0, read, Stream(0, 0, read), 1)
        )
        if update.summary.any():
            asked.append(read)
    on_all_rows = [0, 2, RENEWAL_PERIOD, 2 * RENEWAL_PERIOD]
    assert asked == [*RENEWALS, *(12 + version for version in on_all_rows)]


def test_directions_are_those_of_the_dense_recursion_over_the_metric():
    problem = aq.LeastSquares.random(50, 6, seed=0)
    rng = np.random.default_rng(0)
    summary, g = np.zeros(problem.curvature_size), np.empty(6)
    problem.grad_with_curvature(np.zeros(6), np.arange(50), g, summary)
    H0 = problem.inverse_metric_from(summary)
    H = np.empty((6, 6))
    for j, e in enumerate(np.eye(6)):
        H0.apply(e, H[j])
    metric = over_metric(problem, summary, g)
    metric.keep()
    for _ in range(5):  # two more than there is room for
        s = rng.standard_normal(6)
        y = s * np.arange(1.0, 7.0)
        assert metric.learn(s.copy(), y[None].copy())
    S, Y = metric.memory.pairs
    newest = metric.memory.newest
    for back in (2, 1, 0):
        s, y = S[(newest - back) % 3], Y[(newest - back) % 3]
        V = np.eye(6) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    out = np.empty(6)
    assert metric.direction(g[None], out)
    # Three rank-two updates in float64: rounding of about 1e-15 times H's condition.
    np.testing.assert_allclose(out, H @ g, rtol=1e-10)


def test_a_metric_that_fails_is_dropped_with_its_pairs():
    problem = aq.LeastSquares.random(50, 6, seed=0)
    summary, g = np.zeros(problem.curvature_size), np.ones(6)
    problem.grad_with_curvature(np.zeros(6), np.arange(50), g, summary)
    metric = over_metric(problem, summary, g)
    metric.keep()
    metric.forget()
    assert not metric.direction(g[None], np.empty(6))
    assert metric.learn(np.ones(6), 2.0 * np.ones((1, 6)))
    out = np.empty(6)
    assert metric.direction(g[None], out)
    np.testing.assert_allclose(out @ np.ones(6), 0.5 * g.sum())  # H y = s


@pytest.mark.parametrize("scale", [0.01, 100.0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_features_of_any_scale_and_precision_end_at_the_minimum(scale, dtype):
    problem = aq.LogisticRegression.random(20_000, 8, scale=scale, seed=2, dtype=dtype)
    run = aq.minimize(
        problem, engine=aq.Simulator(aq.Cluster(workers=5, worker_std=0.5))
    )
    assert run.success
    exact = aq.LogisticRegression(problem.X.astype(float), problem.y, intercept=False)
    best = aq.minimize(exact, ExactLBFGS(1, memory=100), engine=ONE, tol=1e-12)
    # A float32 gradient is known to about 1e-5 of the first, and U to its square.
    assert exact.value(run.theta.astype(float)) <= best.fun * (
        1.0 + 1e-9 + 1e-6 * (dtype == "float32")
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"curvature": 3}, "curvature must be the problem's"),
        ({"samples": 2}, "cannot be cut"),
    ],
)
def test_parameters_that_do_not_fit_the_problem_are_refused(change, words):
    problem = aq.LogisticRegression.random(20, 3)
    parameters = {"samples": 0, "curvature": problem.curvature_size, **change}
    with pytest.raises(aq.BadInput, match=words):
        ExactLBFGS(2, inverse="metric", **parameters).check(problem)
