"""Full-batch L-BFGS with backtracking: descent, convergence, and its own limits."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import PairList, Quadratic, gradient, one_sentence, thetas_of

from asyncqn import LBFGS, Cluster, LinearGaussian, Simulator, minimize
from asyncqn.errors import BadInput

SERIAL = Simulator(Cluster(1))


def test_it_finds_the_closed_form_optimum():
    p = LinearGaussian.random(20, 60, 2.0, seed=1)
    run = minimize(p, LBFGS(), engine=SERIAL, commits=80, seed=0)
    # At the optimum U is flat: an error of sqrt(eps) in theta is all that values can tell.
    assert run.fun == pytest.approx(p.optimum, rel=1e-12)
    assert np.abs(run.theta - p.optimum_theta).max() < 1e-6


@pytest.mark.parametrize("memory", [0, 1, 4])
def test_it_is_the_textbook_method_step_by_step(memory):
    p = Quadratic.random(6, 30, seed=3)
    theta0 = np.linspace(-1, 1, 6)
    _, thetas = thetas_of(p, LBFGS(memory), SERIAL, 12, theta0=theta0, seed=0)
    theta, pairs, old = theta0, PairList(memory, 1e-10), None
    for n in range(12):
        g = gradient(p, theta, np.arange(30))
        if old is not None and memory:
            pairs.consider(theta - old[0], g - old[1])
        old = (theta, g)
        d = pairs.times(g)
        alpha = 1.0 if pairs.pairs else 1.0 / np.linalg.norm(d)
        while p.value(theta - alpha * d) > p.value(theta) - 1e-4 * alpha * (g @ d):
            alpha /= 2
        theta = theta - alpha * d
        # A step length halves at a value, never near one here; so only roundings differ.
        np.testing.assert_allclose(thetas[n + 1], theta, rtol=0, atol=1e-9)


def test_the_objective_never_rises():
    p = LinearGaussian.random(20, 60, 2.0, seed=1)
    run = minimize(p, LBFGS(3), engine=SERIAL, commits=60, seed=0, evaluate=1)
    # Up to the rounding of U itself, once the optimum is reached.
    assert (np.diff(run.metrics["fun"]) <= 1e-12 * p.optimum).all()


def test_several_workers_are_refused():
    with pytest.raises(
        BadInput, match="LBFGS runs on at most 1 worker, not on 2"
    ) as caught:
        minimize(
            Quadratic.random(), LBFGS(), engine=Simulator(Cluster(2)), commits=5, seed=0
        )
    assert one_sentence(caught.value)


def test_at_the_optimum_it_stays():
    p = Quadratic.random()
    run = minimize(p, LBFGS(), engine=SERIAL, commits=30, seed=0, theta0=p.minimum)
    assert run.status == "converged"
    np.testing.assert_allclose(run.theta, p.minimum, atol=1e-7)


def test_it_ends_by_itself_where_the_gradient_is_small():
    p = LinearGaussian.random(20, 60, 2.0, seed=1)
    run = minimize(p, LBFGS(), engine=SERIAL, seed=0)
    assert (run.status, run.success) == ("converged", True)
    assert np.linalg.norm(gradient(p, run.theta, np.arange(60))) == pytest.approx(
        run.grad_norm, rel=1e-9
    )
    short = minimize(p, LBFGS(), engine=SERIAL, seed=0, commits=3)
    assert (short.status, short.success) == ("completed", False)
