"""Difference L-BFGS: its Hessian, what it costs, and that it goes on where a Hessian is no good."""

from __future__ import annotations

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.quasi_newton.difference_lbfgs import (
    DifferenceLBFGS,
    curvature_size,
    differences,
    inverse_of_hessian,
)

ONE = aq.Simulator(aq.Cluster(workers=1))


class Plain(aq.LogisticRegression):
    """It offers values and gradients alone."""

    sampled_metric = grad_with_curvature = None  # type: ignore[assignment]


def test_an_ill_conditioned_problem_with_gradients_alone_takes_a_handful_of_passes():
    problem = Plain.random(40_000, 20, condition=1000.0, correlation=0.95, seed=1)
    chosen = aq.default_algorithm(problem, 1, message=1e6, master=1e6)  # cheap rows
    assert isinstance(chosen, DifferenceLBFGS)
    run = aq.minimize(problem, chosen, engine=ONE)
    assert run.status == "converged"
    # 1.5 passes on samples, two Hessians of 0.2, and about ten versions on all rows, as with a metric.
    assert run.passes < 14
    growing = aq.minimize(problem, aq.GrowingLBFGS(1, 2, memory=100), engine=ONE, max_passes=2 * run.passes)
    assert growing.status == "stopped"


def test_the_hessian_is_that_of_the_formula_and_its_inverse_is_applied():
    problem, theta, rows = aq.LogisticRegression.random(150, 5, seed=0), np.full(5, 0.2), np.arange(150)
    packed, g, summary = np.zeros(curvature_size(5)), np.empty(5), np.zeros(problem.curvature_size)
    differences(problem, theta, rows, packed)
    problem.grad_with_curvature(theta, rows, g, summary)
    mine, theirs = np.empty(5), np.empty(5)
    inverse_of_hessian(packed).apply(g, mine)
    problem.inverse_metric_from(summary).apply(g, theirs)
    # Forward differences of 1e-6: third derivatives over second ones are of the order of 1.
    np.testing.assert_allclose(mine, theirs, rtol=1e-4)


@pytest.mark.parametrize("bad", ["saddle", "flat", "not finite", "a part is missing"])
def test_a_hessian_that_is_no_good_is_not_used(bad):
    packed = np.array([1.0, 0.0, -1.0 if bad == "saddle" else 0.0 if bad == "flat" else 1.0, 1.0])
    if bad == "not finite":
        problem = aq.FiniteSum(
            value=lambda theta, rows: 0.0 * len(rows),
            grad=lambda theta, rows: np.full(2, np.inf if theta[0] > 0 else 0.0),
            n_data=5, dim=2,
        )  # fmt: skip
        differences(problem, np.zeros(2), np.arange(5), packed)
    if bad == "a part is missing":
        packed[-1] = 0.75
    assert inverse_of_hessian(packed) is None


@pytest.mark.parametrize("value", [True, False])
def test_a_problem_that_is_not_convex_ends_as_l_bfgs_would(value):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(20_000) < 0.5, 2.0, -2.0) + 0.1 * rng.standard_normal(20_000)

    class TwoMinima:
        n_data, dim = 20_000, 2

        def value(self, theta):
            return float(((theta[0] ** 2 - y**2) ** 2).mean() * 1e4 + 5e3 * (theta[1] - y.mean()) ** 2)

        def grad(self, theta, rows, out):
            out[0] = 4e4 * (theta[0] * (theta[0] ** 2 - y[rows] ** 2)).mean()
            out[1] = 1e4 * (theta[1] - y[rows].mean()) + 1e4 * (y[rows].mean() - y.mean())

    problem = TwoMinima()
    algorithm = DifferenceLBFGS(2, curvature_size(2), samples=1)
    run = aq.minimize(problem, algorithm, theta0=np.array([0.1, 1.0]), engine=ONE, check=value)
    # The curvature at the start is negative: -4e4 * 4.
    assert run.status == "converged"
    assert abs(run.theta[0]) == pytest.approx(np.sqrt((y**2).mean()), rel=1e-6)


def test_passes_count_the_rows_of_differences():
    algorithm = DifferenceLBFGS(2, curvature_size(3), samples=2, versions=5)
    versions = np.repeat([0, 5, 6, 8, 9], 2)
    rows = algorithm.rows_of(64_000, versions, np.tile([0, 1], 5))
    # 60 rows are wanted: one of 66 in the sample of 4,000 and one of 1066 of all, four gradients of each.
    assert rows.reshape(5, 2).sum(axis=1).tolist() == [1000, 4000 + 4 * 62, 4000, 64_000 + 4 * 62, 64_000]


@pytest.mark.parametrize("workers", [1, 7])
def test_every_bit_is_the_same_for_any_delays(workers):
    problem = Plain.random(2_000, 5, seed=0)
    algorithm = DifferenceLBFGS(3, curvature_size(5), samples=1, pieces=2)
    engine = aq.Simulator(aq.Cluster(workers, worker_mean=3.0, worker_std=4.0))
    once = aq.minimize(problem, algorithm, engine=ONE)
    again = aq.minimize(problem, algorithm, engine=engine, commits=once.schedule.commits)
    assert once.theta.tobytes() == again.theta.tobytes()


@pytest.mark.parametrize("scale", [0.01, 100.0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_features_of_any_scale_and_precision_end_at_the_minimum(scale, dtype):
    problem = Plain.random(20_000, 8, scale=scale, seed=2, dtype=dtype)
    run = aq.minimize(problem, engine=aq.Simulator(aq.Cluster(workers=5, worker_std=0.5)))
    assert run.success
    exact = aq.LogisticRegression(problem.X.astype(float), problem.y)
    best = aq.minimize(exact, engine=ONE, tol=1e-12)
    # A float32 gradient is known to about 1e-5 of the first, and U to its square.
    assert exact.value(run.theta.astype(float)) <= best.fun * (1.0 + 1e-9 + 1e-6 * (dtype == "float32"))


def test_a_sample_that_was_fitted_too_closely_is_left_for_the_start():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 150))  # 250 rows of the first sample are separable, whatever the labels
    problem = Plain(X, rng.random(4000) < 0.5, prior=1e-6)
    levels = aq.GrowingLBFGS(1, 2, memory=100)
    run = aq.minimize(problem, levels, engine=ONE, commits=levels.growing_versions + 25)
    assert run.fun < problem.value(np.zeros(150))


def test_impossible_parameters_are_refused():
    problem = Plain.random(50, 3)
    with pytest.raises(aq.BadInput, match="samples must be an integer from 1 to 14"):
        DifferenceLBFGS(1, curvature_size(3), samples=0)
    with pytest.raises(aq.BadInput, match="curvature must be 7"):
        DifferenceLBFGS(1, 8).check(problem)
    with pytest.raises(aq.BadInput, match="cannot be cut"):
        DifferenceLBFGS(4, 7).check(problem)
