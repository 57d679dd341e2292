"""Pairs on a diagonal H0 of their own: H against the dense recursion, what D is, and when it is used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.exact.inverse import LearnedDiagonal
from asyncqn.algorithms.pair_memory import PairMemory

DIM = 6


def untaught(size: int, theta0: Any) -> LearnedDiagonal:
    """H without pairs on a diagonal that they are to teach."""
    state = LearnedDiagonal.empty(theta0, 0)
    return LearnedDiagonal(PairMemory.empty(size, theta0), state)


def quadratic(seed: int = 0) -> Any:
    B = np.random.default_rng(seed).standard_normal((DIM, DIM))
    return B @ B.T + np.eye(DIM)


def taught(hessian: Any, count: int, dtype: Any = np.float64) -> Any:
    """A memory after `count` random steps on a quadratic."""
    pairs = untaught(4, np.zeros(len(hessian), dtype))
    rng = np.random.default_rng(7)
    for _ in range(count):
        s = rng.standard_normal(len(hessian))
        assert pairs.learn(s.astype(dtype), (hessian @ s).astype(dtype)[None])
    return pairs


@pytest.mark.parametrize("lead", [2.9, 3.1])
@pytest.mark.parametrize("count", range(1, 10))
def test_the_direction_is_the_dense_recursion_at_every_ring_offset(
    count: int, lead: float
) -> None:
    pairs = taught(quadratic(), count)
    memory = pairs.memory
    pairs.state.lead[0] = lead
    stored = min(count, 4)
    slots = [(memory.newest - back) % 4 for back in range(stored)][::-1]
    D = pairs.state.D if lead > 3.0 else np.ones(DIM)
    H = float(memory.scale[0]) * np.diag(D)
    for i in slots:
        s, y = memory.pairs[:, i]
        V = np.eye(DIM) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    g, out = np.arange(1.0, DIM + 1), np.empty(DIM)
    assert pairs.direction(g[None], out)
    # The condition number is a few hundred: rounding is magnified by far less than 1e4.
    np.testing.assert_allclose(
        out, H @ g, rtol=1e-10, atol=1e-12 * np.linalg.norm(H @ g)
    )
    s, y = memory.pairs[:, slots[-1]]
    pairs.direction(y[None], out)
    np.testing.assert_allclose(
        out, s, rtol=0, atol=1e-12 * np.linalg.norm(s) * np.linalg.cond(H)
    )


def test_d_is_what_its_formula_says() -> None:
    pairs = taught(quadratic(), 3)
    S, Y = pairs.memory.pairs[:, :3]
    own = np.einsum("ij,ij->i", S, Y)[:, None]
    D = np.sqrt((S**2 / own).sum(axis=0) / (Y**2 / own).sum(axis=0))
    np.testing.assert_allclose(pairs.state.D, D / np.exp(np.log(D).mean()), rtol=1e-12)


def test_a_new_pair_tests_d_against_the_identity_and_older_tests_fade() -> None:
    hessian = quadratic()
    pairs, expected = taught(hessian, 1), 0.0
    rng = np.random.default_rng(3)
    for _ in range(4):
        D, s = pairs.state.D.copy(), rng.standard_normal(DIM)
        y = hessian @ s
        fits = [
            (s @ y) ** 2 / ((s @ (s / d)) * (y @ (d * y))) for d in (D, np.ones(DIM))
        ]
        expected = 0.9 * expected + math.log(fits[0] / fits[1])
        pairs.learn(s.copy(), y.copy()[None])
        assert pairs.state.lead[0] == pytest.approx(expected, rel=1e-10)


def test_d_is_used_for_units_that_differ_and_not_for_a_curvature_across_the_coordinates() -> (
    None
):
    assert taught(np.diag(np.geomspace(1.0, 1e6, DIM)), 3).state.lead[0] > 3.0
    turned, _ = np.linalg.qr(np.random.default_rng(5).standard_normal((40, 40)))
    across = turned @ np.diag(np.geomspace(1.0, 1e4, 40)) @ turned.T
    for count in range(30):
        assert taught(across, count).state.lead[0] <= 3.0


@pytest.mark.parametrize("condition", [1e2, 1e4])
def test_units_that_differ_by_orders_of_magnitude_cost_few_passes(
    condition: float,
) -> None:
    problem = aq.LogisticRegression.random(1000, 60, condition, 0.5, prior=1e-4, seed=1)
    run = aq.minimize(problem, engine=aq.Simulator(aq.Cluster(1)))
    assert run.status == "converged"
    # 50 and 49 passes here; without D 394 and 620.
    assert run.passes < 100
