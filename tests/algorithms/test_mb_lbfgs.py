"""mb-L-BFGS against a synchronous NumPy reference, with all updates in time and with drops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles import mb_lbfgs, thetas_of

from asyncqn import MBLBFGS, Cluster, LinearGaussian, Simulator
from asyncqn.types import Commit


def make_problem(dtype=np.float64):
    return LinearGaussian.random(
        8, 60, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0), dtype=dtype
    )


THETA0 = np.linspace(-1, 1, 8)


def compare(algorithm, cluster, commits):
    p = make_problem()
    run, thetas = thetas_of(
        p, algorithm, Simulator(cluster), commits, theta0=THETA0, seed=2
    )
    expected = mb_lbfgs(algorithm, p, run.schedule, THETA0, 2)
    # Contracting dynamics: roundings of each round, some hundred operations, are not amplified.
    np.testing.assert_allclose(
        thetas, expected["theta"], rtol=0, atol=1e-9 * np.abs(thetas).max()
    )
    assert run.counters["pairs_accepted"] == expected["accepted"]
    assert run.counters["pairs_rejected"] == expected["rejected"]
    return run, expected


@pytest.mark.parametrize("W", [1, 5])
@pytest.mark.parametrize("scale", ["pair", 0.05])
def test_with_a_full_quorum_it_is_the_synchronous_method(W, scale):
    algorithm = MBLBFGS(0.05, 3, 30, 15, quorum=1.0, initial_scale=scale)
    run, expected = compare(algorithm, Cluster(W, 2.0, 1.0), 60)
    assert run.schedule.dropped == 0
    assert expected["accepted"] == 59
    assert expected["pairless"] == 0


@pytest.mark.parametrize("quorum", [1.0, 0.3])
def test_the_overlap_of_the_round_before_enters_the_gradient_where_asked(quorum):
    cluster = Cluster(5, 2.0, 3.0, message=0.3, master=0.1)
    plain = MBLBFGS(0.05, 3, 30, 15, timeout=1.0, quorum=quorum)
    both = replace(plain, reuse_overlap=True)
    run, _ = compare(both, cluster, 60)
    other, _ = compare(plain, cluster, 60)
    assert not np.array_equal(run.theta, other.theta)


def test_late_updates_are_dropped_and_pairs_come_from_workers_in_both_rounds():
    algorithm = MBLBFGS(0.05, 3, 30, 15, timeout=1.0, quorum=0.3)
    run, expected = compare(
        algorithm, Cluster(5, 2.0, 3.0, message=0.3, master=0.1), 80
    )
    assert run.schedule.dropped > 10
    assert expected["accepted"] > 10


def test_a_round_without_a_common_worker_gives_no_pair():
    # Two workers that send in turn, each late for the other's round.
    algorithm = MBLBFGS(0.02, 3, 30, 15, timeout=0.0, quorum=0.1)
    run, expected = compare(algorithm, Cluster(3, [1.0, 1.1, 1.3], 0.4), 80)
    assert expected["pairless"] > 5
    assert (
        run.counters["pairs_accepted"] + run.counters["pairs_rejected"]
        == 79 - expected["pairless"]
    )


def test_deaths_and_joins_do_not_disturb_the_pairs():
    algorithm = MBLBFGS(0.05, 3, 30, 15, timeout=2.0, quorum=0.5)
    cluster = Cluster(5, 2.0, 1.0, deaths={0: 30.0, 1: 60.0}, joins={3: 20.0, 4: 55.0})
    compare(algorithm, cluster, 60)


def test_float32_stays_float32():
    p = make_problem(np.float32)
    algorithm = MBLBFGS(0.05, 3, 30, 15)
    _, thetas = thetas_of(
        p, algorithm, Simulator(Cluster(3)), 30, theta0=THETA0, seed=2
    )
    assert thetas.dtype == np.float32
    assert np.isfinite(thetas).all()


def test_pairs_that_overflow_are_forgotten_and_theta_stays_finite():
    algorithm = MBLBFGS(0.05, 2, 30, 15)
    iterate = algorithm.init(THETA0)
    iterate.memory.middle[...] = np.inf
    iterate.memory.pairs[...] = 1.0
    from asyncqn.algorithms.paper.mb_lbfgs import Update

    after = algorithm.apply(
        iterate,
        [Update(np.ones(8), np.zeros(8), 0, False)],
        Commit(1, [0], make_problem().value),
    )
    np.testing.assert_allclose(after.theta, THETA0 - 0.05)
    assert after.memory.stored == 0
