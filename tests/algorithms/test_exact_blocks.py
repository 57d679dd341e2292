"""Exact L-BFGS on all rows: exact sums, the safeguard, and numbers that do not depend on the cluster."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "algorithm", [ExactLBFGS(7), ExactLBFGS(7, pieces=4), ExactLBFGS(3, 2, samples=1)]
)
@pytest.mark.parametrize("workers", [1, 2, 7, 30])
def test_no_bit_depends_on_the_cluster(workers, algorithm):
    problem = aq.LinearGaussian.random(dim=20, n_data=90, seed=0)
    cluster = aq.Cluster(
        workers, worker_mean=5.0, worker_std=6.0, message=1.0, master=1.0
    )
    run = aq.minimize(
        problem, algorithm, engine=aq.Simulator(cluster), commits=12, seed=4, tol=None
    )
    *_, alone = versions(problem, algorithm, run.theta0, 12, seed=4)
    assert (
        run.theta.tobytes()
        == min((alone.theta, alone.base, alone.start), key=problem.value).tobytes()
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
