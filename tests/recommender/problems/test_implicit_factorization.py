"""Clicks factorized with the users eliminated, against plain NumPy over all pairs of users and items."""

from __future__ import annotations

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.errors import BadInput
from asyncqn_recommender import ImplicitFactorization
from asyncqn_recommender.staged import staged_algorithm

N_USERS, N_ITEMS, CONFIDENCE, PRIOR = 24, 19, 2.0, 0.7


def clicks(
    rank: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Users, some with more clicks than the rank and one with none, items, strengths, ridges by column."""
    rng = np.random.default_rng(seed)
    chosen = rng.random((N_USERS, N_ITEMS)) < rng.random((N_USERS, 1))
    chosen[3] = False
    users, items = np.nonzero(chosen)
    strengths = rng.integers(1, 4, len(users)) / np.float32(2)
    return (
        users.astype(np.int32),
        items.astype(np.int32),
        strengths,
        1.0 + rng.random(rank),
    )


def made(rank: int, dtype: type = np.float64, seed: int = 0) -> ImplicitFactorization:
    users, items, strengths, columns = clicks(rank, seed)
    return ImplicitFactorization(
        users, items, strengths, n_users=N_USERS, n_items=N_ITEMS, rank=rank, prior=PRIOR,
        confidence=CONFIDENCE, dtype=dtype, columns=columns, seed=seed,
    )  # fmt: skip


def over_all_pairs(F: np.ndarray, rank: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Value, gradient and users by the definition: every pair of a user and an item has its term."""
    users, items, strengths, columns = clicks(rank)
    c, p = np.ones((N_USERS, N_ITEMS)), np.zeros((N_USERS, N_ITEMS))
    c[users, items], p[users, items] = 1.0 + CONFIDENCE * strengths, 1.0
    value, gradient = 0.5 * PRIOR * (columns * F**2).sum(), PRIOR * columns * F
    G = np.zeros((N_USERS, rank))
    for u in range(N_USERS):
        G[u] = np.linalg.solve(
            (c[u, :, None] * F).T @ F + PRIOR * np.eye(rank), F.T @ (c[u] * p[u])
        )
        errors = F @ G[u] - p[u]
        value += 0.5 * (c[u] @ errors**2 + PRIOR * G[u] @ G[u])
        gradient += np.outer(c[u] * errors, G[u])
    return value, gradient, G


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "rank", [1, 5, 17, 37]
)  # the Gram matrix of 37 is made in three bands
def test_value_gradient_and_users_equal_the_sums_over_all_pairs(
    rank: int, dtype: type
) -> None:
    problem = made(rank, dtype)
    theta = problem.initial(np.random.default_rng(1))
    value, gradient, G = over_all_pairs(
        theta.reshape(N_ITEMS, rank).astype(np.float64), rank
    )
    out = np.empty_like(theta)
    problem.grad(theta, np.arange(N_USERS), out)
    near = 1e-11 if dtype is np.float64 else 1e-5
    assert problem.value(theta) == pytest.approx(value, rel=near)
    np.testing.assert_allclose(
        out.reshape(N_ITEMS, rank), gradient, atol=near * np.abs(gradient).max()
    )
    np.testing.assert_allclose(
        problem.user_factors(theta), G, atol=10 * near * np.abs(G).max()
    )
    curvature = np.empty(problem.curvature_size, dtype)
    assert problem.grad_with_curvature(
        theta, np.arange(N_USERS), out, curvature
    ) == problem.value(theta)
    summed = curvature[:-1].reshape(rank, rank)
    np.testing.assert_allclose(summed, G.T @ G, atol=100 * near * np.abs(G.T @ G).max())
    assert curvature[-1] == N_USERS


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_runs_end_at_the_same_bits_on_one_and_two_threads_and_replay(
    dtype: type,
) -> None:
    problem = made(3, dtype)
    algorithm = staged_algorithm(problem, 8)
    one, two = (
        aq.minimize(problem, algorithm, engine=aq.Threads(w), seed=1) for w in (1, 2)
    )
    # In float32 one start in ten, on other processors others, stalls above 100 eps of |U|, and says so.
    assert one.success or (dtype is np.float32 and one.status == "stalled")
    assert one.x.tobytes() == two.x.tobytes()
    assert aq.replay(two, problem=problem).x.tobytes() == two.x.tobytes()


def test_what_are_no_clicks_is_refused_in_a_sentence() -> None:
    def make(users: list[int], strengths: list[float], **options: float) -> None:
        ImplicitFactorization(
            users, [0, 1], strengths, n_users=2, n_items=2, rank=1, **options
        )

    with pytest.raises(BadInput, match="positive strengths"):
        make([0, 1], [1.0, 0.0])
    with pytest.raises(BadInput, match="confidence must be a positive finite number"):
        make([0, 1], [1.0, 1.0], confidence=0.0)
    with pytest.raises(BadInput, match="may occur once"):
        ImplicitFactorization([0, 0], [1, 1], [1.0, 1.0], n_users=1, n_items=2, rank=1)
