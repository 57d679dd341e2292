"""Exact L-BFGS on all rows: exact sums, the safeguard, and numbers that do not depend on the cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from exact_versions import versions
from oracles import Quadratic, one_sentence

import asyncqn as aq
from asyncqn import ExactLBFGS
from asyncqn.algorithms import make_algorithm


def test_it_is_textbook_lbfgs_with_unit_steps():
    problem = Quadratic.random(dim=6, n_data=40, seed=3)
    theta = np.random.default_rng(2).standard_normal(6)
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    points = [theta]
    g = problem.hessian @ theta - problem.A.T @ problem.y
    step = (
        -g
        / np.linalg.norm(g)
        * max(1 / np.linalg.norm(g), 0.01 * np.linalg.norm(theta))
    )
    for _ in range(8):
        points.append(points[-1] + step)
        new = g + problem.hessian @ step
        pairs, g = [*pairs, (step, new - g)][-3:], new
        s, y = pairs[-1]
        H = np.eye(6) * (s @ y) / (y @ y)
        for s, y in pairs:
            V = np.eye(6) - np.outer(y, s) / (s @ y)
            H = V.T @ H @ V + np.outer(s, s) / (s @ y)
        step = -H @ g
    algorithm = ExactLBFGS(5, memory=3)
    for expected, iterate in zip(points[1:], versions(problem, algorithm, theta, 8)):
        # The condition number is below 100: eight steps magnify rounding by far less than 1e6.
        np.testing.assert_allclose(iterate.theta, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("algorithm", [ExactLBFGS(7), ExactLBFGS(7, pieces=4)])
@pytest.mark.parametrize("workers", [1, 2, 7, 30])
def test_no_bit_depends_on_the_cluster(workers, algorithm):
    problem = aq.LinearGaussian.random(dim=20, n_data=90, seed=0)
    cluster = aq.Cluster(
        workers, worker_mean=5.0, worker_std=6.0, message=1.0, master=1.0
    )
    run = aq.minimize(
        problem, algorithm, engine=aq.Simulator(cluster), commits=12, seed=4, tol=None
    )
    *_, alone = versions(problem, algorithm, run.theta0, 12)
    assert (
        run.theta.tobytes()
        == min((alone.theta, alone.base), key=problem.value).tobytes()
    )


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_runs_with_backups_and_deaths_replay_to_the_bit(dtype, pieces, tmp_path):
    problem = aq.LinearGaussian.random(dim=20, n_data=90, seed=0, dtype=dtype)
    cluster = aq.Cluster(
        6, worker_mean=5.0, worker_std=9.0, message=1.0, master=1.0, deaths={2: 40.0}
    )
    algorithm = ExactLBFGS(9, pieces=pieces)
    run = aq.minimize(
        problem, algorithm, engine=aq.Simulator(cluster), commits=20, seed=1, tol=None
    )
    assert run.schedule.dropped > 0
    assert run.status == "completed"
    run.save(tmp_path / "run")
    again = aq.replay(tmp_path / "run")
    assert again.theta.tobytes() == run.theta.tobytes()


@dataclass
class Rosenbrock:
    """A sum of banana valleys, one per data point, with or without `value_rows`."""

    dim: int = 6
    n_data: int = 12

    def value(self, theta):
        a, b = theta[:-1], theta[1:]
        return float(self.n_data * np.sum(100 * (b - a * a) ** 2 + (1 - a) ** 2))

    def grad(self, theta, rows, out):
        a, b = theta[:-1], theta[1:]
        out[...] = 0.0
        out[:-1] += self.n_data * (-400 * a * (b - a * a) - 2 * (1 - a))
        out[1:] += self.n_data * 200 * (b - a * a)


@pytest.mark.parametrize("problem", [Rosenbrock()])
@pytest.mark.parametrize("seed", range(5))
def test_a_curved_valley_is_followed_to_its_end(problem, seed):
    theta0 = 3.0 * np.random.default_rng(seed).standard_normal(6)
    *_, last = versions(problem, ExactLBFGS(3, memory=5), theta0, 300)
    g = np.empty(6)
    problem.grad(last.base, np.arange(12), g)
    assert np.linalg.norm(g) < 1e-6, (
        "a minimum, the global one or the valley's other end"
    )


class Cliff(Rosenbrock):
    """U = n sum(exp(theta) - theta): a step too far gives gradients that are not finite."""

    def value(self, theta):
        with np.errstate(over="ignore"):
            return float(self.n_data * np.sum(np.exp(theta) - theta))

    def grad(self, theta, rows, out):
        with np.errstate(over="ignore"):
            out[...] = self.n_data * (np.exp(theta) - 1.0)


def test_a_trial_beyond_the_numbers_is_taken_back():
    problem = Cliff()
    # The first step goes 0.01 |theta| = 800 up the cliff, where exp overflows.
    theta0 = np.array([-8e4, -1.0, 0.0, 1.0, 2.0, 3.0])
    run_ = [*versions(problem, ExactLBFGS(2), theta0, 400)]
    assert all(np.isfinite(problem.value(iterate.base)) for iterate in run_)
    assert problem.value(run_[-1].base) < 12 * 6 + 1e-6


class Digits:
    """A network of one tanh layer on scikit-learn's digits, with a weak Gaussian prior: not convex."""

    def __init__(self, hidden: int = 6) -> None:
        from sklearn.datasets import load_digits

        images, digits = load_digits(return_X_y=True)
        self.X, self.T = images[::4] / 16.0, np.eye(10)[digits[::4]]
        self.hidden, self.n_data, self.dim = hidden, len(self.X), 75 * hidden

    def layers(self, theta):
        h = self.hidden
        return (
            theta[: 64 * h].reshape(64, h),
            theta[64 * h : 65 * h],
            theta[65 * h :].reshape(h, 10),
        )

    def value_rows(self, theta, rows):
        W, b, V = self.layers(theta)
        out = np.tanh(self.X[rows] @ W + b) @ V
        out -= out.max(axis=1, keepdims=True)
        loss = np.log(np.exp(out).sum(axis=1)) - (out * self.T[rows]).sum(axis=1)
        return 0.05 * theta @ theta + self.n_data / len(rows) * loss.sum()

    def value(self, theta):
        return float(self.value_rows(theta, np.arange(self.n_data)))

    def grad(self, theta, rows, out):
        W, b, V = self.layers(theta)
        Z = np.tanh(self.X[rows] @ W + b)
        P = np.exp(Z @ V - (Z @ V).max(axis=1, keepdims=True))
        D = (P / P.sum(axis=1, keepdims=True) - self.T[rows]) * (
            self.n_data / len(rows)
        )
        E = (D @ V.T) * (1 - Z * Z)
        out[...] = 0.1 * theta + np.concatenate(
            [(self.X[rows].T @ E).ravel(), E.sum(0), (Z.T @ D).ravel()]
        )


@pytest.mark.parametrize(("scale", "share"), [(0.3, 0.2), (3.0, 0.2), (30.0, 0.5)])
def test_a_network_is_trained_from_tame_and_from_wild_starts(scale, share):
    problem = Digits()
    for seed in range(2):
        theta0 = scale * np.random.default_rng(seed).standard_normal(problem.dim)
        *_, last = versions(problem, ExactLBFGS(4), theta0, 80)
        # A loss near ln 10 per image means nothing learned; these shares of the start mean much was.
        assert problem.value(last.base) < share * problem.value(theta0)


@pytest.mark.parametrize(
    "parameters",
    [{"blocks": 0}, {"blocks": 2.5}, {"blocks": 4, "memory": 0},
     {"blocks": 4, "samples": -1}, {"blocks": 4, "samples": 99}, {"blocks": 4, "inverse": "none"},
     {"blocks": 4, "inverse": "metric"}, {"blocks": 4, "curvature": 3},
     {"blocks": 4, "pieces": 0}, {"blocks": 4, "pieces": 1.5},
     {"blocks": 4, "speed": 1}],
)  # fmt: skip
def test_bad_parameters_are_named_in_one_sentence(parameters):
    with pytest.raises(aq.BadInput) as error:
        make_algorithm("exact-lbfgs", parameters)
    assert one_sentence(error.value)


def test_serially_it_finds_the_closed_form_optimum_and_ends_by_itself():
    p = aq.LinearGaussian.random(20, 60, 2.0, seed=1)
    run = aq.minimize(p, ExactLBFGS(1), engine=aq.Simulator(aq.Cluster(1)), seed=0)
    assert (run.status, run.success) == ("converged", True)
    assert run.fun == pytest.approx(p.optimum, rel=1e-12)
    # At the optimum U is flat: an error of sqrt(eps) in theta is all that values can tell.
    assert np.abs(run.theta - p.optimum_theta).max() < 1e-6
