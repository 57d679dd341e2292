"""What theory says of the dynamics: stationary law, ergodic error, and their signs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import Quadratic

from asyncqn import ASLBFGS, SGLD, Cluster, Simulator, minimize
from asyncqn.core.request import Request
from asyncqn.core.schedule import Schedule
from asyncqn.core.streams import Stream
from asyncqn.runs.execution import run_schedule
from asyncqn.types import Commit, Task
from asyncqn_paper import langevin_sde as sde
from asyncqn_paper.figures.theory_cells import problem


def step_p(theta, p, H, force, h, gamma, beta, Z):
    """Make one Euler step of the SDE (10), (11); H multiplies elementwise or as a matrix."""
    times = H.dot if H.ndim == 2 else H.__mul__
    moved = p + h * (force - gamma * p) + np.sqrt(2.0 * h * gamma / beta) * Z
    return theta + h * times(p), moved


class Separable:
    """U = sum_j lambda_j theta_j^2 / 2, the same from every row: gradients are exact."""

    n_data = 2

    def __init__(self, curvature):
        self.curvature = np.asarray(curvature, float)

    @property
    def dim(self):
        return self.curvature.size

    def value(self, theta):
        return 0.5 * float(np.sum(self.curvature * theta**2))

    def grad(self, theta, rows, out):
        np.multiply(self.curvature, theta, out=out)


def sampled(problem, algorithm, commits, keep, seed=0):
    """Iterates of a serial run: every `keep`-th after its first quarter."""
    seen = []

    def look(progress):
        if progress.commit > commits // 4:
            seen.append(progress.theta)

    minimize(
        problem,
        algorithm,
        engine=Simulator(Cluster(1)),
        commits=commits,
        seed=seed,
        evaluate=keep,
        callback=look,
    )
    return np.array(seen)


def exact_variance(curvature, h, gamma, beta):
    """Stationary variance of theta for the discrete dynamics with H = I, from the Lyapunov equation.

    (theta, u)+ = [[1, 1], [-h lambda, 1 - gamma]] (theta, u) + (0, sqrt(2 h gamma / beta) Z).
    """
    A = np.array([[1.0, 1.0], [-h * curvature, 1.0 - gamma]])
    Q = np.array([[0.0, 0.0], [0.0, 2 * h * gamma / beta]])
    return np.linalg.solve(np.eye(4) - np.kron(A, A), Q.ravel())[0]


# Many equal coordinates are as many independent chains, so a short run gives a precise variance.
CHAINS = 4000


def test_the_stationary_law_tends_to_the_gibbs_law_as_the_step_shrinks():
    """Var theta -> 1 / (beta lambda) with h = a^2, gamma = a g: the error falls at least like a."""
    beta, curvature = 3.0, 2.0
    errors = []
    for a in (0.4, 0.2, 0.1):
        h, gamma = a * a, 1.5 * a
        closed = abs(exact_variance(curvature, h, gamma, beta) * beta * curvature - 1.0)
        algorithm = ASLBFGS(h, gamma, beta, 0, 2, 1, initial_scale=1.0)
        theta = sampled(
            Separable([curvature] * CHAINS),
            algorithm,
            int(240 / a),
            int(20 / a),
            seed=1,
        )
        measured = abs(theta.var() * beta * curvature - 1.0)
        # About nine looks, a relaxation time (about 1/a steps) times 20 apart: independent.
        assert abs(measured - closed) < 4 * math.sqrt(2 / (CHAINS * len(theta)))
        errors.append((measured, closed))
    assert errors[0][0] > 1.5 * errors[1][0] > 1.5 * 1.5 * errors[2][0]
    assert errors[0][1] > 1.9 * errors[1][1] > 1.9 * 1.9 * errors[2][1]


def test_the_stationary_law_is_normal_with_the_precision_of_the_problem_in_every_direction():
    curvatures = np.repeat([1.0, 2.0, 8.0], 1500)
    beta, a = 2.0, 0.05
    algorithm = ASLBFGS(a * a, 2 * a, beta, 0, 2, 1, initial_scale=1.0)
    theta = sampled(Separable(curvatures), algorithm, 3000, 250, seed=2)
    z = theta * np.sqrt(beta * curvatures)
    for curvature, group in zip((1.0, 2.0, 8.0), np.split(z, 3, axis=1)):
        # Without bias of the step the variance is 1; a finite step adds what the closed form says.
        closed = exact_variance(curvature, a * a, 2 * a, beta) * beta * curvature
        assert closed == pytest.approx(1.0, abs=5 * a * curvature / 2)
        assert group.var() == pytest.approx(closed, rel=5 * math.sqrt(2 / group.size))
        kurtosis = np.mean(group**4) / np.mean(group**2) ** 2
        assert abs(kurtosis - 3.0) < 5 * math.sqrt(24 / group.size)


def test_sgld_has_the_variance_of_its_own_recursion():
    """theta+ = (1 - h lambda) theta + sqrt(2h/beta) Z: Var = 1 / (beta lambda (1 - h lambda / 2))."""
    beta, curvature, h = 3.0, 2.0, 0.1
    theta = sampled(Separable([curvature] * CHAINS), SGLD(h, beta, 2), 300, 30, seed=4)
    expected = 1 / (beta * curvature * (1 - h * curvature / 2))
    assert theta.var() == pytest.approx(expected, rel=4 * math.sqrt(2 / CHAINS))


def ergodic_error(
    commits, *, staleness=0, beta=1e4, h=2e-4, gamma=0.1, start=1.0, seed=0
):
    """|mean_n U(theta_n) - U*| of one run with a constant staleness."""
    p = Quadratic.random(6, 30, seed=1)
    algorithm = ASLBFGS(h, gamma, beta, 0, 30, 15, initial_scale=1.0)
    n = np.arange(1, commits + 1)
    schedule = Schedule(
        (n - 1) % (staleness + 1), np.maximum(n - 1 - staleness, 0), n, n.astype(float)
    )  # fmt: skip
    request = Request(p, algorithm, p.minimum + start, commits=commits, seed=seed)
    run = run_schedule(request, schedule, engine={"kind": "test"})
    assert run.status == "completed"
    return abs(run.metrics["fun"][1:].mean() - p.value(p.minimum))


def test_the_ergodic_error_rises_with_staleness():
    """From the minimum there is no start to forget: what is left is noise, which stale friction amplifies."""

    def error(l):
        return np.mean(
            [
                ergodic_error(4000, staleness=l, beta=1.0, h=1e-4, start=0.0, seed=s)
                for s in range(2)
            ]
        )

    errors = [error(l) for l in (0, 4, 8)]
    # Measured 3.0, 4.0 and 6.4, with a standard deviation of 0.2 per run.
    assert 1.1 * errors[0] < errors[1]
    assert 1.2 * errors[1] < errors[2]


def test_proposition_1_holds_with_gamma_and_fails_without_where_h_depends_on_theta():
    """In one dimension both laws are known: exp(-beta U) with Gamma, exp(-beta U) / H without."""
    right, wrong = (sde.expected(1.0, corrected) for corrected in (True, False))
    assert wrong[0] < 0.7 * right[0]
    h, chains = 0.1, 4000
    for corrected, law in ((True, right), (False, wrong)):
        rng = np.random.default_rng(3)
        theta, p = rng.standard_normal((2, chains))
        total = np.zeros((2, chains))
        for k in range(400):
            H = sde.inverse(theta)
            # Gamma = H' in one dimension, by a central difference.
            slope = (sde.inverse(theta + 1e-4) - sde.inverse(theta - 1e-4)) / 2e-4
            force = corrected * slope - H * sde.gradient(theta)
            theta, p = step_p(
                theta, p, H, force, h, 1.0, 1.0, rng.standard_normal(chains)
            )
            if k >= 150:
                total += np.array([theta**2, sde.value(theta)])
        found = total / 250
        # Four deviations of the mean over independent chains, and an error of the Euler step of order h.
        allowed = 4 * found.std(axis=1) / math.sqrt(chains) + h * np.array(law)
        assert (abs(found.mean(axis=1) - law) < allowed).all()


def test_the_integrator_in_p_and_the_algorithm_s_own_steps_are_the_same():
    """h' = h^2, gamma' = h gamma, u = h p: one Euler step of the SDE is one step of as-L-BFGS, pairs on."""
    problem = Quadratic.random(3, 30, seed=1)
    h, gamma, beta = 0.02, 1.5, 4.0
    method = ASLBFGS(h * h, h * gamma, beta, 2, 12, 6, initial_scale="pair")
    theta0 = problem.minimum + 1.0
    iterate, local = method.init(theta0), method.init_worker(problem, theta0)
    theta, p = theta0.copy(), np.zeros(3)
    for k in range(12):
        stream = Stream(5, 0, k)
        H = np.empty((3, 3))
        for column, unit in zip(H.T, np.eye(3), strict=True):
            out = np.empty(3)
            local.memory.product(unit, out)
            column[...] = out
        rows, g = stream.rows(30, np.zeros(12, np.int64)), np.empty(3)
        problem.grad(iterate.theta, rows, g)
        Z = stream.normals(np.empty(3))
        theta, p = step_p(theta, p, H, -H @ g, h, gamma, beta, Z)
        task = Task(0, k, stream)
        update = method.step(iterate, local, problem, task)
        local = method.learn(iterate, local, problem, task)
        iterate = method.apply(iterate, [update], Commit(1, [0], problem.value))
        np.testing.assert_allclose(theta, iterate.theta, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(h * p, iterate.u, rtol=1e-9, atol=1e-12)
    # The first step starts with u = 0 and does not move theta, which makes no pair.
    assert method.counters(iterate, [local])["pairs_accepted"] == 10


def test_a_step_of_the_sde_moves_theta_by_order_h_and_p_by_order_root_h():
    """What Lemma S1 of the paper needs holds for theta alone: the noise in p is of order sqrt(h)."""
    rng = np.random.default_rng(0)
    moved = []
    for h in (0.01, 0.0025):
        theta, p = rng.standard_normal((2, 20_000))
        H = sde.inverse(theta)
        Z = rng.standard_normal(20_000)
        to = step_p(theta, p, H, -H * sde.gradient(theta), h, 1.0, 1.0, Z)
        moved.append([np.abs(to[0] - theta).mean(), np.abs(to[1] - p).mean()])
    theta, p = (
        math.log(big / small) / math.log(4.0) for big, small in zip(*moved, strict=True)
    )
    assert theta == pytest.approx(1.0, abs=0.02)
    assert p == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("delay", [1, 4, 9, 19])
def test_friction_that_is_stale_is_stable_only_below_a_limit_of_its_own(delay):
    """u_{n+1} = u_n - gamma' u_{n-l}: roots of z^{l+1} - z^l + gamma' leave the unit circle at the limit."""

    def radius(gamma):
        polynomial = np.zeros(delay + 2)
        polynomial[[0, 1, -1]] = 1.0, -1.0, gamma
        return np.abs(np.roots(polynomial)).max()

    limit = 2.0 * math.sin(math.pi / (2.0 * (2 * delay + 1)))
    assert radius(0.999 * limit) < 1.0 < radius(1.001 * limit)
    if delay == 19:
        assert limit < ASLBFGS.from_paper("ml-1m").gamma, (
            "the table's friction is too large for W = 20"
        )


def test_the_second_moment_falls_as_one_over_beta_about_the_minimum_and_not_about_the_origin():
    """Assumption 6 bounds beta times the moment by a constant: there is none about the origin."""
    model, betas = problem(), np.array([1.0, 10.0, 100.0, 1000.0])
    rng = np.random.default_rng(0)
    factor = np.linalg.cholesky(np.linalg.inv(model.precision))
    slopes = []
    for centre in (model.optimum_theta, np.zeros(model.dim)):
        moments_ = []
        for beta in betas:
            drawn = model.optimum_theta + rng.standard_normal(
                (4000, model.dim)
            ) @ factor.T / np.sqrt(beta)
            moments_.append(beta * ((drawn - centre) ** 2).sum(axis=1).mean())
        slopes.append(np.polyfit(np.log(betas), np.log(moments_), 1)[0])
    assert slopes[0] == pytest.approx(0.0, abs=0.02)
    assert slopes[1] > 0.7
