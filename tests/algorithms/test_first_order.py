"""First-order methods at W = 1 equal plain serial loops to the bit; with staleness, a plain lookup."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import gradient, thetas_of

from asyncqn import SGD, SGLD, AsyncSGD, Cluster, LinearGaussian, Simulator
from asyncqn.core.streams import Stream


def make_problem(dtype):
    return LinearGaussian.random(
        9, 50, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0), dtype=dtype
    )


def theta0(dtype):
    return np.linspace(-1, 1, 9).astype(dtype)


def subsample(p, theta, k, worker=0):
    return gradient(p, theta, Stream(6, worker, k).rows(50, np.empty(4, np.int64)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "algorithm",
    [
        AsyncSGD(1e-3, 4),
        SGD(1e-4, 4, 0.9),
        SGLD(1e-3, 10.0, 4),
        SGLD(1e-3, math.inf, 4),
    ],
    ids=str,
)
def test_one_worker_is_the_serial_loop_to_the_bit(algorithm, dtype):
    p = make_problem(dtype)
    engine = Simulator(Cluster(1))
    _, thetas = thetas_of(p, algorithm, engine, 60, theta0=theta0(dtype), seed=6)
    assert thetas.dtype == dtype
    theta, u = theta0(dtype), np.zeros(9, dtype)
    momentum = getattr(algorithm, "momentum", 0.0)
    noise = dtype(math.sqrt(2e-3 / getattr(algorithm, "beta", math.inf)))
    for k in range(60):
        d = -algorithm.h * subsample(p, theta, k)
        if noise:
            d = d + noise * Stream(6, 0, k).normals(np.empty(9, dtype))
        u = momentum * u + d
        theta = theta + u
        assert theta.tobytes() == thetas[k + 1].tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_five_workers_use_the_versions_of_the_schedule_to_the_bit(dtype):
    p = make_problem(dtype)
    engine = Simulator(Cluster(5, 1.0, 2.0))
    run, thetas = thetas_of(
        p, AsyncSGD(1e-3, 4), engine, 80, theta0=theta0(dtype), seed=6
    )
    steps = dict.fromkeys(range(5), 0)
    # The rows after the last commit were under way when the run ended.
    workers, reads = run.schedule.worker[:80].tolist(), run.schedule.read[:80].tolist()
    for n, (w, read) in enumerate(zip(workers, reads)):
        d = -1e-3 * subsample(p, thetas[read], steps[w], w)
        steps[w] += 1
        assert (thetas[n] + d).tobytes() == thetas[n + 1].tobytes()
    assert run.schedule.staleness.max() > 3
