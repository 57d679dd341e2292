"""The mixture with unknown centres: gradients, symmetry, local minima, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from asyncqn import minimize
from asyncqn.checks.testing import IN_THIS_PROCESS, check_problem
from asyncqn.cluster.cluster import Cluster
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import BadInput
from asyncqn.models import rebuild
from asyncqn.models.mixture import Mixture


def test_it_keeps_the_rules_of_a_problem():
    check_problem(
        Mixture.random(3, 40, width=10.0, gap=4.0, seed=3), engines=IN_THIS_PROCESS
    )


def test_value_is_the_formula_on_any_rows():
    p = Mixture.random(3, 30, width=10.0, gap=4.0, seed=1)
    theta, rows = np.linspace(-3.0, 4.0, 6), np.array([3, 3, 29, 0])
    squares = ((p.X[:, None, :] - theta.reshape(3, 2)[None]) ** 2).sum(axis=2)
    terms, prior = -np.log(np.exp(-squares / 2).mean(axis=1)), theta @ theta / 200.0
    # Sums of 30 logarithms: a few roundings of the largest.
    assert p.value(theta) == pytest.approx(terms.sum() + prior, rel=1e-12)
    assert p.value_rows(theta, rows) == pytest.approx(
        30 / 4 * terms[rows].sum() + prior, rel=1e-12
    )


def test_centres_far_from_all_data_still_have_a_finite_value_and_gradient():
    p = Mixture.random(2, 20, seed=0)
    theta, g = np.full(4, 1e6), np.empty(4)
    p.grad(theta, np.arange(20), g)
    assert np.isfinite(p.value(theta))
    assert np.isfinite(g).all()


def test_the_order_of_the_centres_does_not_matter():
    p = Mixture.random(4, 50, seed=2)
    theta = p.centres.ravel()
    swapped = p.centres[[2, 0, 3, 1]].ravel()
    assert p.value(theta) == pytest.approx(p.value(swapped), rel=1e-13)


def test_descent_from_some_starts_ends_in_a_local_minimum_that_misses_a_cluster():
    p = Mixture.random(8, 400, width=20.0, seed=0)
    engine = Simulator(Cluster(1))
    planted = minimize(p, engine=engine, theta0=p.centres.ravel(), commits=100).fun
    runs = [minimize(p, engine=engine, commits=150, seed=seed) for seed in range(6)]
    stuck = 0
    for run in runs:
        slope, curvature = _stationary(p, run.theta)
        # A missed cluster of 50 points, two units or more away on average, costs at least 100.
        stuck += bool(slope < 1e-2 and curvature > 0.0 and run.fun > planted + 100.0)
    assert stuck >= 1


def _stationary(p: Mixture, theta: np.ndarray) -> tuple[float, float]:
    """|grad U| and the smallest eigenvalue of the Hessian, from differences of gradients."""
    everything, step = np.arange(p.n_data), 1e-5
    ahead, behind, H = np.empty(p.dim), np.empty(p.dim), np.empty((p.dim, p.dim))
    for i, e in enumerate(step * np.eye(p.dim)):
        p.grad(theta + e, everything, ahead)
        p.grad(theta - e, everything, behind)
        H[i] = (ahead - behind) / (2 * step)
    p.grad(theta, everything, ahead)
    return float(np.linalg.norm(ahead)), float(np.linalg.eigvalsh((H + H.T) / 2)[0])


def test_a_reference_makes_it_again():
    p = Mixture.random(3, 20, seed=5)
    again = rebuild(p.reference())
    assert isinstance(again, Mixture)
    assert again.X.tobytes() == p.X.tobytes()
    assert again.scale == p.scale


def test_the_defaults_make_a_mixture():
    assert Mixture.random().dim == 12


def test_bad_input_gets_a_sentence():
    with pytest.raises(BadInput, match="integer of at least 1"):
        Mixture.random(0, 5)
    with pytest.raises(BadInput, match="do not fit"):
        Mixture.random(9, 50, width=10.0, gap=5.0)
    with pytest.raises(BadInput, match="with 2 columns"):
        Mixture(np.ones((3, 2)), np.ones((2, 3)), 1.0)
    with pytest.raises(BadInput, match="scale must be a positive finite number"):
        Mixture(np.ones((3, 2)), np.ones((2, 2)), 0.0)
    p = Mixture.random(2, 5, seed=0)
    for theta, rows in ((np.ones(2), [0]), (np.ones(4), [5]), (np.ones(4), [-1])):
        with pytest.raises(BadInput, match="rows must lie between"):
            p.grad(theta, np.array(rows), np.empty(4))
