"""The stochastic phase of the table: when it is chosen, how it learns its step, and how it ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.quasi_newton import stochastic_phase
from asyncqn.algorithms.quasi_newton.centred_table import Progress, Table, Update
from asyncqn.algorithms.quasi_newton.stochastic_phase import (
    FALL,
    MAX_WAIT,
    NOISE,
    SAFETY,
    WINDOW,
    Phase,
)
from asyncqn.kernels.table import CHANGES, MOVED, RESPONSES, RISE, SEEN, VALUE
from asyncqn_paper.nonconvex import Mixture
from asyncqn_recommender import MatrixFactorization


def ratings(seed: int = 0) -> MatrixFactorization:
    """A pattern of rank 2 at rank 3: the start near the mean rating lies beside a saddle."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice(60 * 50, 1500, replace=False)
    users, items = pairs // 50, pairs % 50
    rows = rng.standard_normal((60, 2)), rng.standard_normal((50, 2))
    values = (
        3.5
        + (rows[0][users] * rows[1][items]).sum(axis=1)
        + 0.3 * rng.standard_normal(1500)
    )
    return MatrixFactorization(
        users, items, values, n_users=60, n_items=50, rank=3, dtype="float64"
    )


def test_it_is_chosen_where_rows_are_few_unless_the_problem_is_convex_or_parts_are_few() -> (
    None
):
    factorization = ratings()
    assert not aq.table_algorithm(
        Mixture.random(n_data=4000, seed=0), 4, message=1.0
    ).stochastic
    assert aq.table_algorithm(factorization, 4, message=1.0).stochastic
    assert not aq.table_algorithm(factorization, 4, message=100.0).stochastic  # 4 parts
    assert not aq.table_algorithm(
        factorization, 200, message=1.0
    ).stochastic  # 375 parts for 200 workers
    for convex in (
        aq.LogisticRegression.random(n_data=400, dim=20, seed=0),
        aq.LinearGaussian.random(dim=20, n_data=400, seed=0),
        aq.PoissonRegression.random(n_data=400, dim=20, seed=0),
    ):
        assert not aq.table_algorithm(convex, 4, message=0.5).stochastic


def window(parts: int, changes: float, responses: float) -> Table:
    """The sums of a window on a U with Hessian diag(2, 8, 4)."""
    table = Table.empty(parts, np.zeros(3))
    table.S[:] = [1.0, -2.0, 0.5]
    table.Y[:] = np.array([2.0, 8.0, 4.0]) * table.S
    table.tally[SEEN], table.tally[MOVED], table.tally[RISE] = parts, 40.0, -80.0
    table.tally[CHANGES], table.tally[RESPONSES] = changes, responses
    return table


def test_the_step_follows_from_curvature_staleness_and_the_curvature_of_parts() -> None:
    # |Y| / |S| is a curvature along the way: between 2 and 8.  A part's own curvature is 30 here.
    table = window(240, changes=2.0, responses=2.0 * 30.0**2)
    expected = np.linalg.norm(table.Y) / np.linalg.norm(table.S)
    assert 2.0 < expected < 8.0
    for staleness, stiffness in (
        (5.0, NOISE * 30.0),
        (199.0, expected * 200.0 / SAFETY),
    ):
        table = window(240, changes=2.0, responses=2.0 * 30.0**2)
        before = Phase(active=True, staleness=staleness)
        phase = stochastic_phase._learn_step(table, before)
        assert phase.stiffness == pytest.approx(stiffness, rel=1e-12)
        assert phase.step == pytest.approx(1.0 / stiffness, rel=1e-12)
        assert (phase.fall, phase.compared) == (80.0, 40)
        assert not table.tally[MOVED : RESPONSES + 1].any()
        assert table.tally[SEEN] == 240
        assert not table.S.any()
    # A step doubles at most, and the largest 1 / h fades slowly.
    table = window(240, changes=2.0, responses=2.0 * 30.0**2)
    small = Phase(active=True, stiffness=100.0 * NOISE * 30.0, step=1e-6)
    phase = stochastic_phase._learn_step(table, small)
    assert phase.stiffness == pytest.approx(90.0 * NOISE * 30.0, rel=1e-12)
    assert phase.step == 2e-6


def test_a_window_without_curvature_or_with_an_overflow_sets_no_step() -> None:
    for responses, Y in ((0.0, 0.0), (math.inf, 1.0)):
        table = window(240, changes=2.0, responses=responses)
        table.Y[:] = Y
        phase = stochastic_phase._learn_step(table, Phase(active=True))
        assert (phase.stiffness, phase.step) == (0.0, 0.0)


def test_a_half_pass_that_falls_far_less_than_the_best_one_ends_it() -> None:
    phase = Phase(active=True)
    for fall, slowing in (
        (10.0, False),
        (FALL * 10.0 - 0.1, True),
        (3.0, False),
        (1.0, True),
        (-2.0, True),
    ):
        phase = stochastic_phase._judge_half_pass(
            phase._replace(fall=20.0 * fall, compared=20)
        )
        assert phase.slowing == slowing
    assert phase.best == 10.0
    assert phase.gained == pytest.approx(10.0 + 2.4 + 3.0 + 1.0 - 2.0)


def test_it_does_not_end_on_a_plateau_and_not_wait_for_ever_either() -> None:
    table = Table.empty(100, np.zeros(3))
    table.tally[SEEN] = 100.0
    for first, now, halves, left in (
        (100.0, 71.0, 1, False),
        (100.0, 69.0, 1, True),
        (-100.0, -129.0, 1, False),
        (-100.0, -131.0, 1, True),
        (100.0, 99.0, MAX_WAIT, False),
        (100.0, 99.0, MAX_WAIT + 1, True),
        (math.nan, math.nan, 1, True),  # no values: nothing can be waited for
    ):
        table.tally[VALUE] = 100.0 * now
        phase = Phase(active=True, halves=halves, slowing=True)
        assert (
            stochastic_phase._has_left(table, Progress(first_value=first), phase)
            == left
        )


@pytest.mark.parametrize("workers", [1, 5])
def test_a_run_with_it_converges_to_a_stationary_point_below_the_start(
    workers: int,
) -> None:
    problem = ratings()
    algorithm = aq.TableLBFGS(parts=100, first=workers, stochastic=True)
    run = aq.minimize(
        problem, algorithm, engine=aq.Simulator(aq.Cluster(workers, 1.0, 0.5)), seed=1
    )
    assert run.status == "converged"
    g = np.empty(problem.dim)
    problem.grad(run.theta, np.arange(problem.n_data), g)
    assert np.linalg.norm(g) <= 1e-6 * abs(run.fun)
    assert run.fun < 0.5 * problem.value(run.theta0)


def test_a_run_on_threads_replays_bit_for_bit() -> None:
    problem = ratings()
    run = aq.minimize(
        problem,
        aq.TableLBFGS(100, 3, stochastic=True),
        engine=aq.Threads(3),
        commits=1500,
    )
    again = aq.replay(run, problem=problem)
    assert again.theta.tobytes() == run.theta.tobytes()
    assert again.fingerprints.tolist() == run.fingerprints.tolist()


class Cliff:
    """Curvature grows steeply away from the minimum: at the start it is far above that of the end."""

    dim, n_data = 5, 400

    def __init__(self) -> None:
        self.A = np.random.default_rng(0).standard_normal((self.n_data, self.dim))

    def value(self, theta: np.ndarray) -> float:
        with np.errstate(over="ignore"):
            r = self.A @ (theta - 1.0)
            return float(np.cosh(6.0 * r).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        A = self.A[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            out[:] = (
                self.n_data / len(rows) * (6.0 * np.sinh(6.0 * (A @ (theta - 1.0))) @ A)
            )


def test_a_phase_that_makes_U_rise_turns_back_and_the_run_still_converges() -> None:
    problem = Cliff()
    algorithm = aq.TableLBFGS(parts=100, first=4, stochastic=True)
    run = aq.minimize(
        problem,
        algorithm,
        engine=aq.Simulator(aq.Cluster(4, 1.0, 0.5)),
        theta0=np.zeros(5),
    )
    assert run.status == "converged"
    assert np.allclose(run.theta, 1.0, atol=1e-4)


def test_a_start_that_throws_theta_far_out_is_given_up_at_once() -> None:
    algorithm = aq.TableLBFGS(parts=400, first=40, stochastic=True)
    iterate = algorithm.init(np.zeros(3))
    table = window(400, changes=2.0, responses=2.0)
    table.z[:], table.read[:] = 0.0, 0
    table.harmless[:] = iterate.start
    update = Update(np.ones(3), np.zeros(3), 1.0, 0, True, 0)
    for rise, returns in ((0.9, False), (1.1, True)):
        iterate.theta[...] = 5.0
        # Mean rises of 0.9 and 1.1 of U at the start, in less than half a pass.
        table.tally[MOVED], table.tally[RISE] = WINDOW, WINDOW * rise * 100.0
        here = Progress(first_value=100.0)
        after, phase = stochastic_phase.stochastic_step(
            iterate,
            table,
            here,
            Phase(active=True, stiffness=1.0, step=1e-3),
            update,
            7,
            40,
        )
        assert (after.turned == 7) == returns
        assert phase.active
        assert bool((iterate.theta == iterate.start).all()) == returns


def test_a_step_out_of_all_bounds_returns_to_the_start() -> None:
    algorithm = aq.TableLBFGS(parts=400, first=40, stochastic=True)
    for size in (1e9, math.nan):
        iterate = algorithm.init(np.zeros(3))
        table = Table.empty(400, np.zeros(3))
        update = Update(np.array([1.0, size, 1.0]), np.zeros(3), 1.0, 0, True, 0)
        progress, _ = stochastic_phase.stochastic_step(
            iterate,
            table,
            Progress(),
            Phase(active=True, stiffness=1.0, step=1.0),
            update,
            7,
            40,
        )
        assert (progress.turned, progress.turns) == (7, 1)
        assert not iterate.theta.any()
