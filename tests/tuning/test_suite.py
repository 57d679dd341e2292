"""The linear Gaussian suite: its problems, its timing, and a tuner that treats rivals alike."""

from __future__ import annotations

import numpy as np
import pytest

from asyncqn.algorithms import make_algorithm
from asyncqn.tuning import rivals, suite


def test_there_are_ten_spectra_and_each_problem_has_its_own():
    assert len(suite.SPECTRA) == 10
    for name in ("AR(0.9)", "three 1000 over 2-5"):
        found = np.linalg.eigvalsh(suite.problem(name).precision)
        np.testing.assert_allclose(found, np.sort(suite.SPECTRA[name]), rtol=1e-9)


def test_timing_is_the_papers_table_for_its_batches():
    expected = {"async-sgd": (10.0, 0.0), "mb-lbfgs": (10.0, 30.0), "as-lbfgs": (70.0, 0.0)}
    for kind, (mean, master) in expected.items():
        cluster = suite.cluster(kind, 6, 40, 1.0)
        assert (cluster.worker_mean, cluster.master, cluster.message) == (mean, master, 10.0)
    blocks = suite.cluster("block-lbfgs", 600 / 40, 40, 1.0)
    assert (blocks.worker_mean, blocks.master) == (25.0, 30.0)


@pytest.mark.parametrize("kind", [*rivals.RIVALS, "momentum-lbfgs"])
def test_every_point_of_a_search_space_is_a_valid_algorithm(kind):
    rng = np.random.default_rng(0)
    points = [rivals._draw(kind, rng, None) for _ in range(20)]
    points += [rivals._draw(kind, rng, point) for point in points] + rivals.GOOD[kind]
    for point in points:
        parameters = rivals.parameters_of(kind, point, "flat 30-120", 40)
        if kind == "mb-lbfgs":
            suite.ScaledMBLBFGS(**parameters)
        else:
            make_algorithm(kind, parameters)


def test_tuning_returns_trials_that_arrived_in_order_of_their_times():
    trials = rivals.tuned("async-sgd", "flat 30-120", 1.0, 4, 40, None, 1500.0)
    times = [time for time, _, _ in trials]
    assert times == sorted(times)
    assert all(time <= 1500.0 for time in times)


def test_block_lbfgs_reaches_epsilon_on_the_suites_easiest_and_hardest_spectrum():
    for name in ("flat 30-120", "log-uniform 2-1000"):
        settings = suite.block_settings(name, 40)
        assert settings == {"blocks": 40, "pieces": 4}
        outcome = suite.time_of("block-lbfgs", settings, name, 30.0, 0, limit=4000.0)
        assert outcome.status == "reached"
