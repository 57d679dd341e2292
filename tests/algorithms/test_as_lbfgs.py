"""as-L-BFGS against the paper's algorithm written out in NumPy, and its exact limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import Quadratic, as_lbfgs, gradient, heavy_ball, thetas_of

from asyncqn import ASLBFGS, SGD, Cluster, LinearGaussian, Simulator
from asyncqn.core.streams import Stream

SERIAL = Simulator(Cluster(1))
FIVE = Simulator(Cluster(5, 2.0, 1.0, message=0.5, master=0.1))


def make_problem(dtype=np.float64):
    return LinearGaussian.random(
        8, 60, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0), dtype=dtype
    )


@pytest.mark.parametrize(
    "options",
    [
        {"memory": 3},
        {"memory": 1, "rho": 0.5},
        {"memory": 5, "initial_scale": 0.1},
        {"memory": 4, "cosine_floor": 0.6, "epsilon": 0.5},
        {"memory": 0},
        {"memory": 3, "beta": math.inf},
        {"memory": 3, "epsilon": 15.0},
        {"memory": 3, "rho": 0.5, "integrator": "modified"},
    ],
    ids=str,
)
def test_five_workers_compute_what_the_paper_says(options):
    algorithm = ASLBFGS(
        **{"h": 1e-4, "gamma": 0.1, "beta": 1e3, "batch": 12, "overlap": 5, **options}
    )
    p = make_problem()
    theta0 = np.linspace(-1, 1, 8)
    run, thetas = thetas_of(p, algorithm, FIVE, 200, theta0=theta0, seed=3)
    expected = as_lbfgs(algorithm, p, run.schedule, theta0, 3)
    # The dynamics are stable, so roundings (1e-16 per operation, some hundred per step) do not grow.
    np.testing.assert_allclose(
        thetas, expected["theta"], rtol=0, atol=1e-10 * np.abs(thetas).max()
    )
    # Workers learn from every step that they begin, also from those under way at the end.
    assert run.counters["pairs_accepted"] == expected["accepted"]
    assert run.counters["pairs_rejected"] == expected["rejected"]
    if algorithm.memory:
        assert expected["accepted"] > 20
    if options.get("epsilon", 0) > 1:
        assert expected["rejected"] > 20


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_without_noise_and_pairs_it_is_heavy_ball_with_the_papers_order(dtype):
    """theta+ = theta + u, u+ = (1 - gamma) u - h g(theta): both from the values before the step."""
    p, theta0 = make_problem(dtype), np.linspace(-1, 1, 8)
    algorithm = ASLBFGS(1e-3, 0.2, math.inf, 0, 12, 5, initial_scale=1.0)
    _, thetas = thetas_of(p, algorithm, SERIAL, 100, theta0=theta0, seed=4)
    assert thetas.dtype == dtype

    def g(k, theta):
        rows = Stream(4, 0, k).rows(60, np.empty(12, np.int64))
        parts = 5 * gradient(p, theta, rows[:5]) + 7 * gradient(p, theta, rows[5:])
        return parts / 12

    expected = heavy_ball(theta0, 1e-3, 0.2, 100, g)
    # Same operations but for the order inside one sum: some roundings per step, which friction forgets.
    np.testing.assert_allclose(thetas, expected, atol=2000 * np.finfo(dtype).eps)


def test_the_modified_integrator_with_h_equal_to_the_identity_is_sgd_with_momentum():
    p, theta0 = Quadratic.random(3, 10), np.ones(3)
    options = {"initial_scale": 1.0, "integrator": "modified"}
    ours = ASLBFGS(1e-3, 0.3, math.inf, 0, 10, 5, **options)
    plain = SGD(1e-3, 10, momentum=0.7)
    paths = []
    for algorithm in (ours, plain):
        _, thetas = thetas_of(p, algorithm, SERIAL, 200, theta0=theta0, seed=0)
        paths.append(thetas)
    # Equal but for the order inside one sum: some roundings per step, which friction forgets.
    np.testing.assert_allclose(*paths, rtol=0, atol=1e-13)


@pytest.mark.parametrize("gamma", [0.03, 0.4])
@pytest.mark.parametrize(
    ("integrator", "limit"),
    [("explicit", lambda g: g), ("modified", lambda g: 4 - 2 * g)],
)
def test_on_one_worker_the_limit_of_the_step_is_exact(integrator, limit, gamma):
    """With H = I and curvature lambda: h lambda < gamma, or 4 - 2 gamma with the modified step."""
    p = Quadratic(np.diag([1.0, 2.0]), np.zeros(2))
    top = float(np.linalg.eigvalsh(p.hessian)[-1])

    def last(share):
        h = share * limit(gamma) / top
        algorithm = ASLBFGS(h, gamma, math.inf, 0, 2, 1, initial_scale=1.0, sampling="shuffled",
                            integrator=integrator)  # fmt: skip
        _, thetas = thetas_of(p, algorithm, SERIAL, 4000, theta0=np.ones(2), seed=0)
        return np.abs(thetas[-200:]).max(), algorithm.advice(p, np.ones(2), 1, [])

    # Per step |z|^2 is 1 - gamma + h lambda in the explicit form: 4000 steps give exp(-+3) at gamma = 0.03.
    assert last(0.95)[0] < 0.3
    size, advice = last(1.05)
    assert not size < 3.0
    assert (
        f"must stay below {limit(gamma):.2g} with the {integrator} integrator" in advice
    )


def test_noise_has_the_deviation_of_equation_six():
    p = Quadratic(np.zeros((4, 2000)), np.zeros(4))
    algorithm = ASLBFGS(0.02, 0.1, 7.0, 0, 2, 1, initial_scale=1.0)
    _, thetas = thetas_of(p, algorithm, SERIAL, 2, theta0=np.zeros(2000), seed=0)
    expected = math.sqrt(2 * 0.02 * 0.1 / 7.0) * Stream(0, 0, 0).normals(np.empty(2000))
    np.testing.assert_allclose(thetas[2], expected, atol=1e-14)
    assert algorithm.noise == pytest.approx(math.sqrt(2 * 0.02 * 0.1 / 7.0))


def test_a_diagonal_initial_matrix_is_the_inverse_curvature():
    p = make_problem()
    algorithm = ASLBFGS(1e-2, 0.5, math.inf, 0, 12, 5, initial_scale="diagonal")
    theta0 = np.linspace(-1, 1, 8)
    _, thetas = thetas_of(p, algorithm, SERIAL, 2, theta0=theta0, seed=0)
    rows = Stream(0, 0, 0).rows(60, np.empty(12, np.int64))
    g = (5 * gradient(p, theta0, rows[:5]) + 7 * gradient(p, theta0, rows[5:])) / 12
    H0 = 1.0 / np.diag(p.precision)
    np.testing.assert_allclose(
        thetas[2] - theta0, H0 * (-1e-2 * H0 * g), rtol=1e-12, atol=1e-15
    )
