"""mb-L-BFGS against a synchronous NumPy reference, with all updates in time and with drops."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import mb_lbfgs, thetas_of

from asyncqn import MBLBFGS, Cluster, LinearGaussian, Simulator
from asyncqn.algorithms.paper.mb_lbfgs import Update
from asyncqn.types import Commit

P = LinearGaussian.random(8, 60, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0))
THETA0 = np.linspace(-1, 1, 8)


def compare(algorithm, cluster, commits):
    run, thetas = thetas_of(
        P, algorithm, Simulator(cluster), commits, theta0=THETA0, seed=2
    )
    expected = mb_lbfgs(algorithm, P, run.schedule, THETA0, 2)
    # Contracting dynamics: roundings of each round, some hundred operations, are not amplified.
    np.testing.assert_allclose(
        thetas, expected["theta"], rtol=0, atol=1e-9 * np.abs(thetas).max()
    )
    assert run.counters["pairs_accepted"] == expected["accepted"]
    assert run.counters["pairs_rejected"] == expected["rejected"]
    return run, expected


@pytest.mark.parametrize("scale", ["pair", 0.05])
@pytest.mark.parametrize("W", [1, 5])
def test_with_a_full_quorum_it_is_the_synchronous_method(W, scale):
    algorithm = MBLBFGS(0.05, 3, 30, 15, quorum=1.0, initial_scale=scale)
    run, expected = compare(algorithm, Cluster(W, 2.0, 1.0), 60)
    assert run.schedule.dropped == 0
    assert (expected["accepted"], expected["pairless"]) == (59, 0)


@pytest.mark.parametrize(
    ("algorithm", "cluster"),
    [
        (
            MBLBFGS(0.05, 3, 30, 15, timeout=1.0, quorum=0.3),
            Cluster(5, 2.0, 3.0, message=0.3, master=0.1),
        ),
        # Workers that send in turn, each late for the other's round: rounds without a pair.
        (
            MBLBFGS(0.02, 3, 30, 15, timeout=0.0, quorum=0.1),
            Cluster(3, [1.0, 1.1, 1.3], 0.4),
        ),
        (
            MBLBFGS(0.05, 3, 30, 15, timeout=2.0, quorum=0.5),
            Cluster(5, 2.0, 1.0, deaths={0: 30.0, 1: 60.0}, joins={3: 20.0, 4: 55.0}),
        ),
    ],
    ids=["late", "in turn", "deaths and joins"],
)
def test_pairs_come_from_workers_in_both_rounds_and_late_updates_are_dropped(
    algorithm, cluster
):
    run, expected = compare(algorithm, cluster, 80)
    if cluster.deaths:
        return
    assert run.schedule.dropped > 10
    assert (expected["pairless"] > 5) == (algorithm.timeout == 0.0)


def test_pairs_that_overflow_are_forgotten_and_theta_stays_finite():
    algorithm = MBLBFGS(0.05, 2, 30, 15)
    iterate = algorithm.init(THETA0)
    iterate.memory.admit(algorithm.rule, np.ones(8), np.ones(8))
    iterate.memory.pairs[0] = 1e200
    after = algorithm.apply(
        iterate,
        [Update(np.ones(8), np.zeros(8), 0, False)],
        Commit(1, [0], P.value),
    )
    np.testing.assert_allclose(after.theta, THETA0 - 0.05)
    assert after.memory.stored == 0
