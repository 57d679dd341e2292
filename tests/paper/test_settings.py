"""The times that the paper gives, and who pays for messages."""

from __future__ import annotations

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.cluster.cluster import Cluster
from asyncqn_paper.movielens import Timing, measured_cluster
from asyncqn_paper.settings import (
    EVERYONE,
    NO_MOMENTUM,
    NOBODY,
    UPDATES_ONLY,
    algorithm,
    cluster,
)


def test_clusters_have_the_times_of_the_paper() -> None:
    assert cluster("as-lbfgs", 40, 4.0) == Cluster(40, 70.0, 2.0, 10.0, 0.0)
    assert cluster("mb-lbfgs", 40, 4.0) == Cluster(40, 10.0, 2.0, 10.0, 30.0)
    assert cluster("async-sgd", 5, 1.0) == Cluster(5, 10.0, 1.0, 10.0, 0.0)


@pytest.mark.parametrize(
    ("payer", "link", "message"),
    [(NOBODY, 0.0, 0.5), (EVERYONE, 0.25, 0.0), (UPDATES_ONLY, 0.25, 0.25)],
)
def test_an_exchange_takes_as_long_whoever_pays_for_it(
    payer: str, link: float, message: float
) -> None:
    machines = measured_cluster(Timing(2.0, 0.1, 0.5), 3, payer)
    assert (machines.workers, machines.worker_mean, machines.master) == (3, 2.0, 0.1)
    assert (machines.link, machines.message) == (link, message)


def test_without_momentum_a_worker_moves_theta_by_h_H_g_alone() -> None:
    # Both draw the same rows, and without pairs H = I.
    problem = aq.LinearGaussian.random(dim=4, n_data=20, seed=0)
    rule = {"memory": 0, "batch": 3, "overlap": 1, "initial_scale": 1.0}
    method = algorithm(NO_MOMENTUM, {"h": 1e-3, "gamma": 1.0, **rule})
    engine, start = aq.Simulator(aq.Cluster(1)), np.ones(4)
    ours, plain = (
        aq.minimize(problem, one, engine=engine, commits=50, theta0=start)
        for one in (method, aq.AsyncSGD(h=1e-3, batch=3))
    )
    # The blend of two equal gradients rounds once more per step.
    np.testing.assert_allclose(ours.theta, plain.theta, rtol=0, atol=1e-12)
