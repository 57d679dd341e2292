"""Offsets, names of columns, and coefficients with standard errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

import asyncqn as aq

ONE = aq.Simulator(aq.Cluster(workers=1))


def frame(n=200):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.standard_normal(n), "dose": rng.standard_normal(n) + 1.0}
    )
    return X, 0.5 * X["age"].to_numpy() - 0.3 * X["dose"].to_numpy() + 0.2, rng


def solved(problem):
    run = aq.minimize(problem, engine=ONE, tol=1e-12)
    assert run.success
    return run


# -- offsets


def test_an_offset_is_added_to_the_predictor_of_each_row():
    X, z, rng = frame()
    offset, weights = rng.standard_normal(len(z)), rng.random(len(z)) + 0.1
    counts = rng.poisson(np.exp(z + offset)).astype(float)
    theta = np.array([0.3, -0.1, 0.4])
    total = X.to_numpy() @ theta[:2] + theta[2] + offset
    deviance = (
        np.exp(total)
        - counts * total
        - counts
        + counts * np.log(np.maximum(counts, 1e-300))
    )
    options = {"prior": 0.7, "weights": weights, "intercept": True, "offset": offset}
    U = (weights * deviance).sum() + 0.35 * theta[:2] @ theta[:2]
    for rows in (X, sparse.csr_matrix(X)):
        # Sums of 200 terms in float64.
        assert aq.PoissonRegression(rows, counts, **options).value(
            theta
        ) == pytest.approx(U, rel=1e-12)
    y = z + offset
    for kind in (aq.LeastSquares, aq.RobustRegression):
        with_offset, without = (
            kind(X, y, **options),
            kind(X, y - offset, **{**options, "offset": None}),
        )
        assert with_offset.value(theta) == without.value(theta)


@pytest.mark.parametrize(
    ("kind", "offset", "sentence"),
    [
        (
            aq.PoissonRegression,
            np.zeros(3),
            r"offset must have one entry per row of X, 200",
        ),
        (aq.PoissonRegression, np.full(200, np.nan), r"offset must be finite"),
        (aq.PoissonRegression, np.full(200, 1e4), r"exp\(offset\) overflows"),
        (aq.LogisticRegression, np.zeros(200), r"LogisticRegression takes no offset"),
        (aq.SoftmaxRegression, np.zeros(200), r"SoftmaxRegression takes no offset"),
    ],
)
def test_a_wrong_offset_is_one_sentence(kind, offset, sentence):
    X, z, _ = frame()
    with pytest.raises(aq.BadInput, match=sentence):
        kind(X, (z > 0).astype(int), offset=offset).value(np.zeros(2))


# -- names


def test_names_come_from_frames_or_are_given():
    X, z, _ = frame()
    y = z > 0
    for rows in (X, pl.DataFrame(X.to_dict("list"))):
        assert aq.LogisticRegression(rows, y, intercept=False).feature_names == (
            "age",
            "dose",
        )
    assert aq.LogisticRegression(
        X.to_numpy(), y, feature_names=["a", "b"], intercept=False
    ).feature_names == ("a", "b")
    assert (
        aq.LogisticRegression(sparse.csr_matrix(X), y, intercept=False).feature_names
        is None
    )
    with pytest.raises(aq.BadInput, match="one name per column of X, 2, but has 1"):
        aq.LogisticRegression(X, y, feature_names=["a"], intercept=False)


def test_a_table_has_a_row_for_every_number_of_theta():
    X, z, _ = frame()
    labels = np.array(["low", "mid", "top"])[np.digitize(z, [-0.3, 0.3])]
    problem = aq.SoftmaxRegression(X, labels, intercept=True)
    table = problem.coefficients(solved(problem))
    assert list(table["class"]) == ["low"] * 3 + ["mid"] * 3 + ["top"] * 3
    assert list(table["name"][:3]) == ["age", "dose", "(intercept)"]
    unnamed = aq.LeastSquares(X.to_numpy(), z, intercept=False)
    assert list(unnamed.coefficients(solved(unnamed))["name"]) == ["x0", "x1"]
    with pytest.raises(aq.BadInput, match="the run must be one of this problem"):
        unnamed.coefficients(np.zeros(3))


# -- standard errors


def test_standard_errors_of_least_squares_are_the_closed_form():
    X, z, rng = frame()
    y, weights = z + rng.standard_normal(len(z)), rng.random(len(z)) + 0.5
    problem = aq.LeastSquares(X, y, 0.0, intercept=True, weights=weights)
    table = problem.coefficients(solved(problem), standard_errors=True)
    A = np.column_stack([X, np.ones(len(z))])
    inverse = np.linalg.inv((A * weights[:, None]).T @ A)
    beta = inverse @ (A * weights[:, None]).T @ y
    variance = (weights * (y - A @ beta) ** 2).sum() / (len(y) - 3)
    np.testing.assert_allclose(table["coefficient"], beta, atol=1e-9)
    np.testing.assert_allclose(
        table["standard_error"], np.sqrt(variance * inverse.diagonal()), rtol=1e-9
    )


@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_matrix])
def test_standard_errors_of_generalised_linear_models_are_those_of_the_information(
    storage,
):
    X, z, rng = frame()
    A, offset = np.column_stack([X, np.ones(len(z))]), rng.standard_normal(len(z))
    yes, counts = (
        rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z)),
        rng.poisson(np.exp(z + offset)),
    )
    logistic = aq.LogisticRegression(storage(X.to_numpy()), yes, 0.0, intercept=True)
    poisson = aq.PoissonRegression(
        storage(X.to_numpy()), counts, 0.5, intercept=True, offset=offset
    )
    for problem, shift, bend in (
        (logistic, 0.0, lambda z: 1.0 / (2.0 + np.exp(z) + np.exp(-z))),
        (poisson, offset, np.exp),
    ):
        run = solved(problem)
        information = (A * bend(A @ run.theta + shift)[:, None]).T @ A
        information[[0, 1], [0, 1]] += problem.prior
        expected = np.sqrt(np.linalg.inv(information).diagonal())
        np.testing.assert_allclose(
            problem.coefficients(run, True)["standard_error"], expected, rtol=1e-9
        )


def test_where_there_are_no_standard_errors_a_sentence_says_so():
    X, z, _ = frame()
    with pytest.raises(aq.BadInput, match="RobustRegression has no standard errors"):
        aq.RobustRegression(X, z, intercept=False).coefficients(
            np.zeros(2), standard_errors=True
        )
    twice = np.column_stack([X, X])
    with pytest.raises(aq.BadInput, match="the Hessian is singular"):
        aq.LogisticRegression(twice, z > 0, 0.0, intercept=False).coefficients(
            np.zeros(4), standard_errors=True
        )
    with pytest.raises(aq.BadInput, match="more rows than the"):
        aq.LeastSquares(X[:2], z[:2], intercept=False).coefficients(
            np.zeros(2), standard_errors=True
        )
