"""Momentum L-BFGS: noise with covariance H, the stationary law, and the limits it must have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import Quadratic

import asyncqn as aq
from asyncqn.algorithms.pair_memory import PairMemory, PairRule
from asyncqn.algorithms.sampling.momentum_lbfgs import MomentumLBFGS
from asyncqn.checks.testing import IN_THIS_PROCESS, check_algorithm
from asyncqn.kernels.memory import correlate


def filled(size: int, pairs: int, d: int, rng: np.random.Generator):
    """A memory of pairs (s, B s) of one positive definite B, after any number of ring turns."""
    root = rng.standard_normal((d, d))
    B = root @ root.T + np.eye(d)
    memory = PairMemory.compact(size, np.zeros(d), "pair")
    zero = np.zeros(d)
    for _ in range(pairs):
        s = rng.standard_normal(d)
        memory.consider(PairRule(1e-10), True, s, zero, B @ s, zero)
    return memory


def dense(memory, d: int) -> np.ndarray:
    return np.column_stack(
        [memory.product(column, np.empty(d)) for column in np.eye(d)]
    )


@given(st.integers(1, 4), st.integers(0, 9), st.integers(0, 999))
def test_the_noise_is_a_linear_map_of_normals_whose_square_is_H(size, pairs, seed):
    d = 5
    memory = filled(size, pairs, d, np.random.default_rng(seed))
    columns = []
    for basis in np.eye(d + size):
        x = basis[:d].copy()
        scale = memory.scale[0]
        correlate(
            memory.pairs, memory.gram, memory.stored, memory.newest, scale, basis[d:], x
        )
        columns.append(x)
    L = np.column_stack(columns)
    H = dense(memory, d)
    np.testing.assert_allclose(L @ L.T, H, rtol=0, atol=1e-9 * np.abs(H).max())


def test_for_constant_H_the_stationary_covariance_tends_to_the_posteriors_as_h_falls():
    # (theta, u) is a linear recursion x <- F x + noise; its covariance solves C = F C F' + Q.
    d, gamma, beta = 4, 0.2, 3.0
    rng = np.random.default_rng(0)
    B = Quadratic.random(dim=d, n_data=20, seed=1).hessian
    H = dense(filled(3, 3, d, rng), d) / np.linalg.norm(B)
    off = []
    for h in (1e-2, 5e-3):
        kick = np.block([[-h * H @ B, (1 - gamma) * np.eye(d)]])
        F = np.vstack([np.eye(d, 2 * d) + kick, kick])
        G = np.vstack([np.eye(d), np.eye(d)]) * math.sqrt(2 * h * gamma / beta)
        Q = G @ H @ G.T
        C = np.linalg.solve(np.eye(4 * d * d) - np.kron(F, F), Q.ravel()).reshape(
            2 * d, 2 * d
        )
        posterior = np.linalg.inv(B) / beta
        off.append(np.abs(C[:d, :d] - posterior).max() / posterior.max())
    # The bias is of order h: half of it for half the step, up to terms of order h^2.
    assert 0.4 * off[0] < off[1] < 0.6 * off[0]
    assert off[1] < 0.01


def test_a_chain_on_a_gaussian_has_the_posteriors_variance():
    # Exact gradients (one data point), H0 = I and no pairs, so the law above holds with its bias O(h).
    problem = Quadratic(np.array([[1.0, 0.0]]), np.array([0.0]))  # precision diag(2, 1)
    algorithm = MomentumLBFGS(
        h=0.01, gamma=0.2, memory=0, batch=2, overlap=1, beta=2.0, initial_scale=1.0
    )
    squares = []
    aq.minimize(
        problem, algorithm, engine=aq.Simulator(aq.Cluster(1)), commits=80_000, seed=1, evaluate=25,
        callback=lambda p: squares.append(p.theta**2),
    )  # fmt: skip
    variance = np.mean(squares[200:], axis=0)
    # Relaxation takes gamma / (h lambda) = 20 commits at most: squares 25 commits apart correlate by
    # exp(-2.5), 3000 count as 2540, and their mean is off by sqrt(2 / 2540) = 2.8 %; four times that is
    # 11 %, and the bias adds 5 %.
    np.testing.assert_allclose(variance, [1 / 4, 1 / 2], rtol=0.16)


def test_without_memory_or_noise_one_worker_is_heavy_ball_sgd():
    problem = Quadratic.random(
        dim=4, n_data=1, seed=0
    )  # one data point: every batch is the same
    engine = aq.Simulator(aq.Cluster(1))
    algorithm = MomentumLBFGS(
        h=1e-3, gamma=0.3, memory=0, batch=3, overlap=1, initial_scale=1.0
    )
    ours = aq.minimize(problem, algorithm, engine=engine, commits=50, theta0=np.ones(4))
    theirs = aq.minimize(problem, aq.SGD(h=1e-3, batch=3, momentum=0.7), engine=engine, commits=50,
                         theta0=np.ones(4))  # fmt: skip
    # The blend of two equal gradients rounds once more per step.
    np.testing.assert_allclose(ours.theta, theirs.theta, rtol=0, atol=1e-12)


def test_it_keeps_the_rules_of_an_algorithm():
    problem = aq.LinearGaussian.random(dim=5, n_data=20)
    algorithm = MomentumLBFGS(
        h=1e-3, gamma=0.1, memory=2, batch=4, overlap=2, beta=10.0
    )
    check_algorithm(algorithm, problem, commits=40, engines=IN_THIS_PROCESS)


def test_noise_with_a_diagonal_H0_is_refused():
    with pytest.raises(aq.BadInput, match="scalar H0"):
        MomentumLBFGS(
            h=1,
            gamma=0.1,
            memory=2,
            batch=4,
            overlap=2,
            beta=1.0,
            initial_scale="diagonal",
        )
