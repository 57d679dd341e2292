from __future__ import annotations

from typing import Any

import factorization_oracles as oracle
import numpy as np
import pytest

from asyncqn.errors import BadInput
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization

RANKS = [1, 2, 5, 8, 33]
"""Below, at and between powers of two, and one rank beyond the vectorised ones."""
REAL = [np.float64, np.float32]


def model(p: oracle.Problem, rank: int = 5, **options: Any) -> MatrixFactorization:
    """In the given order, so that rows mean the same to the oracle."""
    return MatrixFactorization(
        **oracle.arguments(p), rank=rank, **{"seed": None, **options}
    )


def tolerance(problem: MatrixFactorization) -> dict[str, float]:
    """An entry sums at most n_data terms |error g| of at most about 100, each with K + 3 roundings."""
    eps = float(np.finfo(problem.dtype).eps)
    return {
        "rtol": 1e3 * eps,
        "atol": 100 * (problem.rank + 3) * np.sqrt(problem.n_data) * eps,
    }


def gradient(
    problem: MatrixFactorization, theta: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    out = np.full(problem.dim, np.nan, problem.dtype)
    problem.grad(theta, np.asarray(rows, np.int64), out)
    return out


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("rank", RANKS)
def test_value_and_gradients_equal_the_numpy_oracle(rank: int, dtype: type) -> None:
    p = oracle.make_problem(rank)
    problem = model(p, rank, prior=0.7, alpha=0.3, dtype=dtype)
    rng = np.random.default_rng(1)
    theta = problem.initial(rng)
    expected = oracle.value(p, theta, rank, 0.7, 0.3)
    assert problem.value(theta) == pytest.approx(
        expected, rel=1e3 * float(np.finfo(dtype).eps)
    )
    scattered = rng.integers(
        0, problem.n_data, 700
    )  # more than are gathered at once, with repeats
    for rows in (
        np.arange(problem.n_data),
        np.arange(17, 60),
        np.array([5]),
        scattered,
    ):
        exact = oracle.gradient(p, theta, rank, 0.7, 0.3, rows)
        scale = problem.n_data / len(rows)
        bound = tolerance(problem)
        close = {"rtol": bound["rtol"], "atol": scale * bound["atol"]}
        np.testing.assert_allclose(gradient(problem, theta, rows), exact, **close)


def test_metrics_are_the_root_mean_squares_and_the_exact_gradient_norm() -> None:
    p, q = oracle.make_problem(7), oracle.make_problem(8, n=50)
    problem = model(p, test=(q.users, q.items, q.values), seed=3)
    theta = problem.initial(np.random.default_rng(0))
    F, G = oracle.split(p, theta, 5)
    metrics = problem.metrics(theta)
    for name, r in (("rmse", p), ("test_rmse", q)):
        errors = (F[r.items] * G[r.users]).sum(1) - r.values
        assert metrics[name] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-12)
    exact = oracle.gradient(p, theta, 5, 1.0, 0.0, np.arange(300))
    assert metrics["grad_norm"] == pytest.approx(np.linalg.norm(exact), rel=1e-12)
    assert "test_rmse" not in model(p).metrics(theta)


@pytest.mark.parametrize("mean", [3.5, -2.0, 0.0])
def test_initial_predicts_about_the_mean_rating(mean: float) -> None:
    p = oracle.make_problem(10)
    problem = model(p._replace(values=p.values - p.values.mean() + np.float32(mean)))
    F, G = oracle.split(p, problem.initial(np.random.default_rng(0)), 5)
    # f.g has mean `mean` and, per entry, variance at most 2 |mean| 0.1^2 + K 0.1^4; rows are shared.
    spread = np.sqrt(2 * abs(mean) * 0.01 + 5e-4)
    assert abs((F @ G.T).mean() - mean) < 4 * spread / np.sqrt(13)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rank": 0}, "rank must be an integer of at least 1, not 0."),
        ({"prior": 0.0}, "prior must be a positive finite number"),
        ({"alpha": -1.0}, "alpha must be a finite number of at least 0"),
        ({"dtype": np.float16}, "float64 or float32"),
        ({"users": [0, 1]}, "equally long, but their lengths are 2, 3, 3"),
        ({"users": [0, 1, 4]}, "users must lie in 0..3, but they span 0..4"),
        ({"items": [0.0, 1.0, 1.0]}, "items must be a vector of integers"),
        ({"values": [1.0, np.nan, 2.0]}, "NaN or infinite in 1 rows, first in row 1"),
        ({"values": ["a", "b", "c"]}, "values must be an array of real numbers"),
        ({"users": [], "items": [], "values": []}, "there are none"),
        ({"test": ([0], [9], [1.0])}, "test ratings: items must lie in 0..2"),
        ({"test": ([0], [1])}, "test must be three arrays"),
    ],
)
def test_bad_input_is_one_sentence_about_what_is_wrong(
    change: dict[str, Any], sentence: str
) -> None:
    good = {
        "users": [0, 1, 2], "items": [0, 1, 1], "values": [1.0, 2.0, 3.0],
        "n_users": 4, "n_items": 3, "rank": 2,
    }  # fmt: skip
    MatrixFactorization(**good)
    with pytest.raises(BadInput) as caught:
        MatrixFactorization(**{**good, **change})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "rows", [[300], [-1, 5], [0, 2, 300], list(range(290, 301)), []]
)
def test_rows_that_do_not_exist_are_refused(rows: list[int]) -> None:
    problem = model(oracle.make_problem(0))
    theta = problem.initial(np.random.default_rng(0))
    with pytest.raises(BadInput, match="row"):
        problem.grad(theta, np.array(rows, np.int64), np.empty_like(theta))


def test_vectors_of_a_wrong_shape_or_type_are_refused() -> None:
    problem = model(oracle.make_problem(0))
    theta = problem.initial(np.random.default_rng(0))
    for wrong in (
        theta[:-1].copy(),
        theta.astype(np.float32),
        np.repeat(theta, 2)[::2],
    ):
        with pytest.raises(BadInput, match="contiguous float64 vectors"):
            problem.value(wrong)
