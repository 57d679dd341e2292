from __future__ import annotations

from typing import Any

import factorization_oracles as oracle
import numpy as np
import pytest

from asyncqn.errors import BadInput
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
from asyncqn_recommender.problems.profiled_factorization import (
    ProfiledFactorization,
    als,
)

RANKS = [1, 3, 5, 8, 20, 33]
REAL = [np.float64, np.float32]


def model(p: oracle.Problem, rank: int = 5, **options: Any) -> ProfiledFactorization:
    return ProfiledFactorization(
        **oracle.arguments(p), rank=rank, **{"seed": None, **options}
    )


def gradient(
    problem: ProfiledFactorization, theta: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    out = np.full(problem.dim, np.nan, problem.dtype)
    problem.grad(theta, np.asarray(rows, np.int64), out)
    return out


def summary(problem: ProfiledFactorization, theta: np.ndarray) -> np.ndarray:
    """The curvature of all rows."""
    curvature = np.empty(problem.curvature_size, problem.dtype)
    rows = np.arange(problem.n_data)
    problem.grad_with_curvature(theta, rows, np.empty_like(theta), curvature)
    return curvature


def solve_error(problem: ProfiledFactorization) -> float:
    """Of a solved row: rounding times the condition, (lambda + sum |f|^2) / lambda < 1e3 here."""
    return 1e3 * (problem.rank + 3) * float(np.finfo(problem.dtype).eps)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("rank", RANKS)
def test_solved_users_value_and_gradients_equal_the_numpy_oracle(
    rank: int, dtype: type
) -> None:
    p = oracle.make_problem(rank)
    problem = model(p, rank, prior=0.7, alpha=0.3, dtype=dtype)
    rng = np.random.default_rng(0)
    theta = problem.initial(rng)
    F = theta.astype(np.float64).reshape(p.n_items, rank)
    G = oracle.best_users(p, F, 0.7, 0.3)
    error = solve_error(problem)
    np.testing.assert_allclose(
        problem.user_factors(theta), G, atol=error * np.abs(G).max()
    )
    best = oracle.value(
        p, np.concatenate([theta.astype(np.float64), G.ravel()]), rank, 0.7, 0.3
    )
    assert problem.value(theta) == pytest.approx(best, rel=error)
    for rows in (
        np.arange(20),
        np.arange(4, 11),
        np.array([3]),
        rng.integers(0, 20, 50),
    ):
        exact = oracle.profiled_gradient(p, theta, rank, 0.7, 0.3, rows)
        found = gradient(problem, theta, rows)
        np.testing.assert_allclose(
            found, exact, atol=error * max(1.0, np.abs(exact).max())
        )


def test_a_ridge_by_column_is_that_of_the_formula_in_value_gradient_and_metric() -> (
    None
):
    p, columns = oracle.make_problem(5), np.array([1.0, 1.0, 2.5, 4.0])
    plain, problem = (
        model(p, 4, prior=0.7, alpha=0.3, columns=c) for c in (None, columns)
    )
    theta = problem.initial(np.random.default_rng(0))
    ridges = np.multiply.outer(oracle.row_ridges(p, 0.7, 0.3)[0], columns - 1.0).ravel()
    assert problem.value(theta) - plain.value(theta) == pytest.approx(
        0.5 * ridges @ theta**2
    )
    everyone = np.arange(p.n_users)
    more = gradient(problem, theta, everyone) - gradient(plain, theta, everyone)
    np.testing.assert_allclose(more, ridges * theta, atol=1e-9)
    H = problem.inverse_metric_from(summary(problem, theta))
    image = np.empty_like(theta)
    v = np.random.default_rng(1).standard_normal(problem.dim)
    H.apply(v, image)
    G = problem.user_factors(theta)
    C = (G * problem.user_counts[:, None]).T @ G / problem.user_counts.sum()
    for m in range(p.n_items):
        dense = problem.item_ridges[m] * np.diag(columns) + problem.item_counts[m] * C
        row = slice(4 * m, 4 * m + 4)
        np.testing.assert_allclose(dense @ image[row], v[row], atol=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_shuffling_the_users_only_renames_the_rows(seed: int) -> None:
    p = oracle.make_problem(3)
    plain, mixed = model(p), model(p, seed=seed)
    theta = plain.initial(np.random.default_rng(0))
    rows = np.array([0, 7, 7, 13])
    assert sorted(mixed.order) == list(range(20))
    np.testing.assert_array_equal(mixed.user_factors(theta), plain.user_factors(theta))
    np.testing.assert_array_equal(
        gradient(mixed, theta, rows), gradient(plain, theta, mixed.order[rows])
    )


def test_metrics_agree_with_the_joint_problem() -> None:
    p, q = oracle.make_problem(5), oracle.make_problem(6, n=50)
    options: dict[str, Any] = {
        "alpha": 0.2,
        "test": (q.users, q.items, q.values),
        "seed": 1,
    }
    profiled, both = (
        model(p, **options),
        MatrixFactorization(**oracle.arguments(p), rank=5, **options),
    )
    theta = profiled.initial(np.random.default_rng(0))
    found, expected = profiled.metrics(theta), both.metrics(profiled.joint(theta))
    # At the minimum over G the joint gradient has no user part, so even its norm is the same.
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("rank", RANKS)
def test_inverse_metric_equals_the_dense_formula(rank: int, dtype: type) -> None:
    p = oracle.make_problem(7)
    problem = model(p, rank, prior=0.5, alpha=0.1, dtype=dtype, seed=2)
    rng = np.random.default_rng(0)
    theta = problem.initial(rng)
    G = oracle.best_users(p, theta.astype(np.float64).reshape(-1, rank), 0.5, 0.1)
    share = np.bincount(p.users, minlength=20) / 300
    C = (G * share[:, None]).T @ G
    v, out = (
        rng.standard_normal(problem.dim).astype(dtype),
        np.empty(problem.dim, dtype),
    )
    curvature = summary(problem, theta)
    problem.inverse_metric_from(curvature, 0.3 * 20 / 4).apply(v, out)
    counts, lam = np.bincount(p.items, minlength=13), oracle.row_ridges(p, 0.5, 0.1)[0]
    delta = 0.3 * 20 / 4 * np.trace(C)
    for m in range(13):
        block = (lam[m] + delta) * np.eye(rank) + counts[m] * C
        exact = np.linalg.solve(block, v.reshape(-1, rank)[m].astype(np.float64))
        # The condition of a block is below 100 (lambda + delta against n_m tr C).
        close = 100 * solve_error(problem) * np.abs(exact).max()
        np.testing.assert_allclose(out.reshape(-1, rank)[m], exact, atol=close)
    assert np.all(problem.inverse_metric_from(curvature).base == problem.item_ridges)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_als_never_raises_the_value_and_threads_change_no_bit(
    threads: int, dtype: type
) -> None:
    p = oracle.make_problem(8, n=2000, n_users=60, n_items=40)
    both = MatrixFactorization(**oracle.arguments(p), rank=5, alpha=0.1, dtype=dtype)
    theta = both.initial(np.random.default_rng(0))
    points = [als(both, theta, sweeps=n, threads=threads) for n in range(9)]
    values = [both.value(point) for point in points]
    rounding = 1e2 * float(np.finfo(dtype).eps) * values[0]
    assert np.all(np.diff(values) <= rounding)
    assert np.array_equal(points[-1], als(both, theta, sweeps=8))
    assert points[-1].dtype == dtype


def test_rows_vectors_and_counts_that_do_not_fit_are_refused() -> None:
    p = oracle.make_problem(11)
    problem = model(p)
    theta = problem.initial(np.random.default_rng(0))
    for rows in ([20], [-1], [0, 25, 3]):
        with pytest.raises(BadInput, match=r"rows must lie in 0\.\.19"):
            gradient(problem, theta, np.array(rows))
    with pytest.raises(BadInput, match="contiguous float64 vectors of length 65"):
        problem.value(theta[1:].copy())
    with pytest.raises(BadInput, match="separate array"):
        problem.inverse_metric_from(summary(problem, theta)).apply(theta, theta)
