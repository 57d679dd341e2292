"""Before a run a problem's functions are compared: nothing sound is refused, and the cost is small."""

from __future__ import annotations

from typing import Any

import factorization_oracles
import numpy as np
import pytest
from checks.user_models import DTYPES, Model, WithRows
from hypothesis import given
from hypothesis import strategies as st

import asyncqn as aq
from asyncqn.checks.first_calls import check_first_calls, compare_functions
from asyncqn.minimize import starting_point
from asyncqn_paper.nonconvex import Mixture, PhaseRetrieval
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
from asyncqn_recommender.problems.profiled_factorization import ProfiledFactorization


def shipped(dtype: Any) -> list[Any]:
    ratings = factorization_oracles.arguments(factorization_oracles.make_problem(1))
    found = [
        aq.LinearGaussian.random(6, 40, dominant=1, dtype=dtype),
        aq.LinearGaussian.random(30, 3000, dtype=dtype),
        aq.LogisticRegression.random(300, 10, seed=3, dtype=dtype),
        aq.LogisticRegression.random(30_000, 5, seed=3, dtype=dtype),
        MatrixFactorization(**ratings, rank=3, dtype=dtype),
        ProfiledFactorization(**ratings, rank=3, dtype=dtype),
    ]
    if dtype is np.float64:
        found += [
            Mixture.random(3, 40, width=10.0, gap=4.0, seed=3),
            PhaseRetrieval.random(6, 170),
        ]
    return found


class Bare:
    """Another problem with only what a user must write.

    It copies, because our kernels would be compiled again for read-only arrays.
    """

    def __init__(self, whole: Any) -> None:
        self.whole, self.dim, self.n_data = whole, whole.dim, whole.n_data
        self.dtype = getattr(whole, "dtype", np.float64)

    def value(self, theta: np.ndarray) -> float:
        return float(self.whole.value(theta.copy()))

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        self.whole.grad(theta.copy(), rows.copy(), out)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_problem_of_ours_is_refused_wherever_it_starts(dtype: Any) -> None:
    for problem in shipped(dtype):
        start = starting_point(problem, None, 0)
        wild = np.random.default_rng(1).standard_normal(problem.dim)
        for theta in [
            start,
            *(size * wild for size in (0.0, 1e-8, 1.0, 1e4, 1e8, 1e12, 1e30)),
        ]:
            compare_functions(problem, theta.astype(start.dtype))
            compare_functions(Bare(problem), theta.astype(start.dtype))


@given(
    kind=st.sampled_from(["linear", "logistic"]),
    base=st.sampled_from([Model, WithRows]),
    n=st.integers(1, 200),
    dim=st.integers(1, 12),
    dtype=st.sampled_from(DTYPES),
    prior=st.sampled_from([0.0, 1e-6, 1.0, 1e6]),
    size=st.sampled_from([0.0, 1e-6, 1.0, 1e3, 1e9]),
    seed=st.integers(0, 2**30),
)
def test_no_sound_model_is_refused(
    kind: str,
    base: Any,
    n: int,
    dim: int,
    dtype: Any,
    prior: float,
    size: float,
    seed: int,
) -> None:
    model = base(kind, n, dim, dtype, prior, seed)
    theta = (size * np.random.default_rng(seed).standard_normal(dim)).astype(dtype)
    check_first_calls(model, theta)


class Lasso(Model):
    """A prior with kinks, and rows with them: |theta|_1 + sum_i max(0, 1 - y_i x_i'theta)."""

    def value(self, theta: np.ndarray) -> float:
        hinge = np.maximum(0, 1 - self.y * (self.X @ theta))
        return float(np.abs(theta).sum() + hinge.sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        X, y = self.X[rows], self.y[rows]
        active = (1 - y * (X @ theta) > 0).astype(X.dtype)
        out[:] = np.sign(theta) - self.n_data / len(rows) * (X.T @ (y * active))


class Poisson(Model):
    """Counts with rate exp(x'theta): overflows a little way from the start."""

    def value(self, theta: np.ndarray) -> float:
        z = self.X @ theta
        return float((np.exp(z) - abs(self.y) * z).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        X = self.X[rows]
        out[:] = (
            self.n_data / len(rows) * (X.T @ (np.exp(X @ theta) - abs(self.y[rows])))
        )


class Single(Model):
    """Computes in single precision what it is asked for in double."""

    def slope(self, theta: np.ndarray, rows: Any) -> np.ndarray:
        X, y = self.X[rows].astype(np.float32), self.y[rows].astype(np.float32)
        return X.T @ (X @ theta.astype(np.float32) - y)

    def loss(self, theta: np.ndarray, rows: Any) -> float:
        r = self.X[rows].astype(np.float32) @ theta.astype(np.float32) - self.y[
            rows
        ].astype(np.float32)
        return float((r * r).sum() / 2)


class ByDifferences(Model):
    """A gradient from forward differences of the loss of its rows."""

    def slope(self, theta: np.ndarray, rows: Any) -> np.ndarray:
        here = self.loss(theta, rows)
        a = 1.5e-8 * (1 + np.abs(theta))
        return np.array(
            [
                (self.loss(theta + d, rows) - here) / a[i]
                for i, d in enumerate(np.diag(a))
            ]
        )


class OfThePositive(Model):
    """Defined for positive parameters only, and says so elsewhere."""

    def value(self, theta: np.ndarray) -> float:
        if (theta <= 0).any():
            raise ValueError("theta must be positive")
        return float((theta - np.log(theta)).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        out[:] = 1 - 1 / theta


@pytest.mark.parametrize("kind", [Lasso, Poisson, Single, ByDifferences, OfThePositive])
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("dim", [1, 7, 60])
def test_kinks_overflow_rounding_and_domains_are_no_mistakes(
    kind: Any, size: float, dim: int
) -> None:
    model = kind("linear", 500, dim, np.float64)
    for seed in range(5):
        theta = size * np.random.default_rng(seed).standard_normal(dim)
        compare_functions(
            model, theta if kind is not OfThePositive else abs(theta) + 1e-6
        )


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_checks_cost_a_few_calls_on_a_few_rows(kind: str, dtype: Any) -> None:
    bare, with_rows = Model(kind, 30_000, 5, dtype), WithRows(kind, 30_000, 5, dtype)
    for model in (bare, with_rows):
        check_first_calls(model, np.zeros(5, dtype))
    # grad: twice at the start, two samples of 8 and both together, then all rows in parts of 4096.
    assert (bare.calls["grad"], bare.calls["rows"]) == (13, 48 + 30_000)
    assert (with_rows.calls["grad"], with_rows.calls["rows"]) == (6, 64)
    # value: twice at the start and nearby, four times for each of at most three step lengths.
    assert bare.calls["value"] <= 16
    assert with_rows.calls["value"] == 4
