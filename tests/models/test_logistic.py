"""Logistic regression: the formula, extreme margins, references, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from examples import IN_THIS_PROCESS

from asyncqn.checks.testing import check_problem
from asyncqn.cli.jobfile import make_problem
from asyncqn.errors import BadInput
from asyncqn.models import rebuild
from asyncqn.models.logistic import LogisticRegression


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_data", "dim"), [(41, 1), (258, 7)])
def test_it_keeps_the_rules_of_a_problem(n_data, dim, dtype):
    check_problem(
        LogisticRegression.random(n_data, dim, seed=3, dtype=dtype),
        engines=IN_THIS_PROCESS,
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 600])
def test_value_and_gradient_are_the_formula_on_any_rows(size):
    p = LogisticRegression.random(300, 6, prior=0.7, seed=1)
    rng = np.random.default_rng(size)
    theta, rows, out = rng.standard_normal(6), rng.integers(0, 300, size), np.empty(6)
    margins = p.y[rows] * (p.X[rows] @ theta)
    U = 0.35 * theta @ theta + 300 / size * np.logaddexp(0.0, -margins).sum()
    g = 0.7 * theta - 300 / size * (p.X[rows].T @ (p.y[rows] / (1.0 + np.exp(margins))))
    # Sums of at most 600 terms in float64: far below 1e-12 of their size.
    assert p.grad_with_value(theta, rows, out) == pytest.approx(U, rel=1e-12)
    assert p.value_rows(theta, rows) == pytest.approx(U, rel=1e-12)
    np.testing.assert_allclose(out, g, rtol=0, atol=1e-12 * 300)


def test_huge_margins_give_finite_values_and_gradients():
    X = np.array([[1.0], [1.0]])
    p = LogisticRegression(X, np.array([1, -1]), prior=0.0, intercept=False)
    out = np.empty(1)
    # One row is certain and costs nothing, the other costs its margin and pulls with slope 1.
    assert p.grad_with_value(np.array([1e5]), np.arange(2), out) == 1e5
    assert out[0] == 1.0


def test_many_rows_in_float32_are_summed_in_float64():
    n = 200_000
    p = LogisticRegression(
        np.ones((n, 1), np.float32), np.ones(n), prior=0.0, intercept=False
    )
    out = np.empty(1, np.float32)
    p.grad(np.zeros(1, np.float32), np.arange(n), out)
    assert out[0] == -n / 2


def test_features_have_the_scale_and_the_correlation_asked_for():
    p = LogisticRegression.random(
        20_000, 5, condition=16.0, correlation=0.6, scale=3.0, seed=0
    )
    # 20,000 draws: standard deviations and correlations are known to about 1 %.
    np.testing.assert_allclose(p.X.std(axis=0), 3.0 / 2.0 ** np.arange(5), rtol=0.03)
    np.testing.assert_allclose(np.diag(np.corrcoef(p.X.T), 1), 0.6, atol=0.03)


def test_a_reference_and_a_job_file_make_it_again():
    p = LogisticRegression.random(30, 4, seed=5, dtype=np.float32)
    again = rebuild(p.reference())
    assert isinstance(again, LogisticRegression)
    assert again.X.tobytes() == p.X.tobytes()
    assert again.y.tobytes() == p.y.tobytes()
    job = make_problem(
        {
            "kind": "logistic-regression",
            "n_data": 30,
            "dim": 4,
            "seed": 5,
            "dtype": "float32",
        }
    )
    assert job.X.tobytes() == p.X.tobytes()  # type: ignore[attr-defined]


def test_bad_input_gets_a_sentence():
    X, y = np.ones((3, 2)), np.array([1, -1, 1])
    for arguments, words in (
        ((X, np.array([0, -1, 1])), "needs labels with two different values, not 3"),
        ((X, y[:2]), "one label per row"),
        ((X * np.nan, y), "NaN"),
        ((X, y, -1.0), "prior must be a finite number of at least 0"),
    ):
        with pytest.raises(BadInput, match=words):
            LogisticRegression(*arguments, intercept=False)
    for name, value in (
        ("n_data", 0),
        ("dim", 2.5),
        ("condition", 0.5),
        ("correlation", 1.0),
        ("scale", 0.0),
    ):
        with pytest.raises(BadInput):
            LogisticRegression.random(**{name: value})  # type: ignore[arg-type]
    p = LogisticRegression(X, y, intercept=False)
    for theta, rows in (
        (np.ones(3), [0]),
        (np.ones(2), [3]),
        (np.ones(2), [-1]),
        (np.ones(2), []),
    ):
        with pytest.raises(BadInput, match="rows must lie between"):
            p.grad(theta, np.array(rows, np.int64), np.empty(2))
