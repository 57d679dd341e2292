"""First-order methods at W = 1 equal plain serial loops to the bit; with staleness, a plain lookup."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import gradient, thetas_of

from asyncqn import SGD, SGLD, AsyncSGD, Cluster, LinearGaussian, Simulator
from asyncqn.core.streams import Stream

DTYPES = [np.float64, np.float32]
SERIAL = Simulator(Cluster(1))


def make_problem(dtype):
    return LinearGaussian.random(
        9, 50, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0), dtype=dtype
    )


def theta0(dtype):
    return np.linspace(-1, 1, 9).astype(dtype)


def subsample(p, theta, k, worker=0):
    return gradient(p, theta, Stream(6, worker, k).rows(50, np.empty(4, np.int64)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_async_sgd_with_one_worker_is_the_serial_loop_to_the_bit(dtype):
    p = make_problem(dtype)
    _, thetas = thetas_of(
        p, AsyncSGD(1e-3, 4), SERIAL, 60, theta0=theta0(dtype), seed=6
    )
    theta = theta0(dtype)
    for k in range(60):
        theta = theta + -1e-3 * subsample(p, theta, k)
        assert theta.tobytes() == thetas[k + 1].tobytes()
    assert theta.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_with_one_worker_is_heavy_ball_to_the_bit(dtype, momentum):
    p = make_problem(dtype)
    _, thetas = thetas_of(
        p, SGD(1e-4, 4, momentum), SERIAL, 60, theta0=theta0(dtype), seed=6
    )
    theta, u = theta0(dtype), np.zeros(9, dtype)
    for k in range(60):
        u = momentum * u + -1e-4 * subsample(p, theta, k)
        theta = theta + u
        assert theta.tobytes() == thetas[k + 1].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beta", [10.0, math.inf])
def test_sgld_with_one_worker_is_the_serial_loop_to_the_bit(dtype, beta):
    p = make_problem(dtype)
    _, thetas = thetas_of(
        p, SGLD(1e-3, beta, 4), SERIAL, 60, theta0=theta0(dtype), seed=6
    )
    theta = theta0(dtype)
    scale = dtype(math.sqrt(2e-3 / beta))
    for k in range(60):
        z = Stream(6, 0, k).normals(np.empty(9, dtype))
        noise = scale * z if beta < math.inf else dtype(0)
        theta = theta + (-1e-3 * subsample(p, theta, k) + noise)
        assert theta.tobytes() == thetas[k + 1].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_async_sgd_with_five_workers_uses_the_versions_of_the_schedule_to_the_bit(
    dtype,
):
    p = make_problem(dtype)
    run, thetas = thetas_of(p, AsyncSGD(1e-3, 4), Simulator(Cluster(5, 1.0, 2.0)), 80, theta0=theta0(dtype),
                            seed=6)  # fmt: skip
    steps = dict.fromkeys(range(5), 0)
    # The rows after the last commit were under way when the run ended.
    workers, reads = run.schedule.worker[:80].tolist(), run.schedule.read[:80].tolist()
    for n, (w, read) in enumerate(zip(workers, reads)):
        d = -1e-3 * subsample(p, thetas[read], steps[w], w)
        steps[w] += 1
        assert (thetas[n] + d).tobytes() == thetas[n + 1].tobytes()
    assert run.schedule.staleness.max() > 3
