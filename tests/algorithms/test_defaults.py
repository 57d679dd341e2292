"""The algorithm that is used when none is named."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import Quadratic
from scipy import sparse

import asyncqn as aq
from asyncqn import ExactLBFGS, TableLBFGS
from asyncqn.algorithms.defaults import default_algorithm
from asyncqn.algorithms.exact.choice import growths, pieces_of_a_block
from asyncqn.algorithms.table.choice import table_algorithm
from asyncqn.minimize import choose_algorithm

DEAR = {"message": 1e6, "master": 1e6}
"""Costs at which no part is worth its message."""


def test_a_plain_problem_gets_as_many_blocks_as_workers_or_data_points():
    problem = Quadratic.random(n_data=20)
    assert default_algorithm(problem, 8) == ExactLBFGS(8, memory=100)
    assert default_algorithm(problem, 50) == ExactLBFGS(20, memory=100)


@pytest.mark.parametrize(
    ("dim", "n_data", "workers", "pieces"),
    [
        (100, 600, 1, 1),  # nobody could help
        (100, 600, 2, 4),
        (100, 600, 40, 4),
        (100, 600, 80, 2),  # three rows each at least
        (100, 600, 400, 1),
        (50_000, 20_000, 2, 1),  # a piece's rows cost less than its update
        (50_000, 200_000, 2, 1),
        (50_000, 1_000_000, 2, 2),
        (50_000, 2_000_000, 2, 4),
    ],
)
def test_blocks_are_cut_into_pieces_while_these_are_worth_an_update(
    dim, n_data, workers, pieces
):
    assert pieces_of_a_block(dim, n_data, workers) == pieces


def test_the_default_cuts_blocks_into_pieces():
    problem = aq.LinearGaussian.random(dim=20, n_data=90, seed=0)
    assert default_algorithm(problem, 2) == ExactLBFGS(2, memory=100, pieces=4)
    assert default_algorithm(problem, 1) == ExactLBFGS(1, memory=100)


def test_minimize_needs_nothing_but_the_problem():
    problem = aq.LinearGaussian.random(dim=20, n_data=90, seed=0)
    run = aq.minimize(problem)
    # U falls with the square of the gradient, which is 1e-8 of the first.
    assert run.fun - problem.optimum < 1e-10 * problem.optimum
    assert run.status == "converged"


def test_the_default_gives_the_same_bits_on_threads_and_on_the_simulator():
    problem = aq.LinearGaussian.random(dim=20, n_data=90, seed=0)
    simulated = aq.Simulator(aq.Cluster(2, worker_mean=3.0, worker_std=4.0))
    runs = [
        aq.minimize(problem, engine=engine, commits=12)
        for engine in (aq.Threads(2), simulated)
    ]
    np.testing.assert_array_equal(runs[0].theta, runs[1].theta)


def test_an_exact_method_needs_a_tolerance_or_a_number_of_commits():
    with pytest.raises(aq.BadInput, match="commits is missing"):
        aq.minimize(
            Quadratic.random(),
            ExactLBFGS(2),
            engine=aq.Simulator(aq.Cluster(1)),
            tol=None,
        )


ALL = (0, 1, 2, 3, 4, 6, 8, 10)


@pytest.mark.parametrize(
    ("n_data", "dim", "samples", "versions", "renewals"),
    [
        (10_000, 3, 0, [None], ALL),
        # 1,562 rows of 64 are enough.
        (100_000, 3, 2, [12, 3, None], ALL),
        # Ten rows for every number.
        (40_000, 302, 0, [None], (0,)),
        (49_000, 302, 1, [12, None], (0,)),
        # The metric is a diagonal.
        (49_000, 2001, 0, [None], (0, 2)),
    ],
)
def test_samples_in_a_metric_begin_where_they_are_enough_for_it(
    n_data, dim, samples, versions, renewals
):
    row = sparse.csr_matrix(
        (np.ones(n_data), np.zeros(n_data, int), np.arange(n_data + 1)), (n_data, dim)
    )
    algorithm = default_algorithm(
        aq.LeastSquares(row, np.ones(n_data), intercept=False), 2
    )
    assert (algorithm.inverse, algorithm.samples) == ("metric", samples)
    assert [stage.commits for stage in algorithm.stages] == versions
    first = {v for v in range(versions[0] or 12) if algorithm._wants_summary(v, dim)}
    assert first == set(renewals)


def test_samples_grow_where_all_rows_are_more_than_a_few_waves():
    class Large(Quadratic):
        n_data = 1_000_000

    large = Large(np.eye(300), np.zeros(300))
    assert default_algorithm(large, 2, **DEAR) == ExactLBFGS(2, 4, 4, memory=100)
    # Waves of 8000 rows:
    assert default_algorithm(large, 80, **DEAR) == ExactLBFGS(80, 4, 3, memory=100)
    assert default_algorithm(large, 2500, **DEAR) == ExactLBFGS(2500, 4, memory=100)


def test_the_table_is_chosen_where_its_parts_are_worth_their_messages_and_commits():
    class Many(Quadratic):
        n_data = 100_000

    many = Many(np.eye(50), np.zeros(50))
    # 100,000 rows in parts of four messages are 2500; in parts of half a message 100, and 99.
    assert default_algorithm(many, 4) == table_algorithm(many, 4)
    least = default_algorithm(many, 4, message=100_000 / 100 * 2.0)
    assert least == TableLBFGS(100, 4, stochastic=True)
    dear = 100_000 / 99 * 2.0
    assert isinstance(default_algorithm(many, 4, message=dear), ExactLBFGS)
    assert isinstance(default_algorithm(many, 4, waits=True), ExactLBFGS)
    assert isinstance(default_algorithm(many, 4, message=dear, waits=False), TableLBFGS)
    # The master needs 100 rows' time for an update: 40 workers may send one in 4000.
    assert isinstance(default_algorithm(many, 40, master=100.0), ExactLBFGS)
    # Four parts of eight rows per worker.
    assert isinstance(default_algorithm(many, 3125, master=0.0), TableLBFGS)
    assert not isinstance(default_algorithm(many, 3126, master=0.0), TableLBFGS)

    # A large table is not chosen unless it is asked for.
    class Wide(Many):
        dim = 500_000

    wide = Wide(np.eye(50), np.zeros(50))
    assert not isinstance(default_algorithm(wide, 4), TableLBFGS)
    assert isinstance(default_algorithm(wide, 4, waits=False), TableLBFGS)


def test_costs_are_measured_only_where_the_choice_depends_on_them():
    class Timed(Quadratic):
        calls = 0

        def grad(self, theta, rows, out):
            self.calls += 1
            super().grad(theta, rows, out)

    small = Timed.random(dim=3, n_data=3)
    many = Timed.random(dim=3, n_data=100_000)
    assert isinstance(choose_algorithm(small, aq.Threads(2)).algorithm, ExactLBFGS)
    assert small.calls == 0
    choose_algorithm(many, aq.Threads(2))
    assert many.calls > 0
    # A cluster states its costs by rows: nothing is measured.
    many.calls = 0
    free = aq.Cluster(2, rows=1, message=1.0)
    dear = aq.Cluster(2, rows=1, message=1e6)
    assert isinstance(choose_algorithm(many, aq.Simulator(free)).algorithm, TableLBFGS)
    assert not isinstance(
        choose_algorithm(many, aq.Simulator(dear)).algorithm, TableLBFGS
    )
    assert many.calls == 0


@pytest.mark.parametrize(("dim", "levels"), [(3329, 2), (16_000, 1), (17_000, 0)])
def test_the_first_sample_of_a_network_has_three_rows_for_two_numbers_at_least(
    dim, levels
):
    assert growths(dim, 100_000, 2) == levels


class WithoutCurvature(aq.LogisticRegression):
    """It offers values and gradients alone."""

    sampled_metric = grad_with_curvature = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("model", "algorithm", "workers"),
    [
        (aq.LogisticRegression, ExactLBFGS, 2),
        *((WithoutCurvature, TableLBFGS, workers) for workers in (1, 2, 40)),
    ],
)
def test_the_default_on_many_rows_finds_their_minimum(model, algorithm, workers):
    problem = model.random(20_000 * workers, 4, seed=0)
    engine = aq.Simulator(aq.Cluster(workers, worker_std=0.5))
    chosen = default_algorithm(problem, workers)
    assert isinstance(chosen, algorithm)
    run = aq.minimize(problem, engine=engine)
    assert run.algorithm == chosen
    g, start = np.empty(4), np.empty(4)
    problem.grad(run.theta, np.arange(problem.n_data), g)
    problem.grad(np.zeros(4), np.arange(problem.n_data), start)
    assert np.linalg.norm(g) < 1e-8 * np.linalg.norm(start)
