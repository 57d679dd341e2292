"""Softmax regression: the formula in both storages, labels of every kind, its metric, its minimum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import asyncqn as aq

ONE = aq.Simulator(aq.Cluster(workers=1))


def some_rows(classes, n=60):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, 4)) < 0.5, rng.standard_normal((n, 4)), 0.0)
    return X, np.arange(n) % classes, rng.random(n) + 0.1


def test_value_and_gradient_are_those_of_the_formula_in_both_storages():
    X, labels, weights = some_rows(3)
    rng = np.random.default_rng(1)
    rows, theta, step = rng.integers(0, 60, 25), rng.standard_normal(15), 1e-6
    T = theta.reshape(3, 5)
    z = X[rows] @ T[:, :4].T + T[:, 4]
    loss = np.log(np.exp(z).sum(axis=1)) - z[np.arange(25), labels[rows]]
    U = 0.35 * (T[:, :4] ** 2).sum() + 60 / 25 * (weights[rows] * loss).sum()
    for rows_of_X in (X, sparse.csr_matrix(X)):
        p = aq.SoftmaxRegression(
            rows_of_X, labels, 0.7, weights=weights, intercept=True
        )
        g = np.empty(15)
        # Sums of 25 terms in float64.
        assert p.grad_with_value(theta, rows, g) == pytest.approx(U, rel=1e-12)
        assert p.value_rows(theta, rows) == pytest.approx(U, rel=1e-12)
        for j, e in enumerate(step * np.eye(15)):
            slope = (p.value_rows(theta + e, rows) - p.value_rows(theta - e, rows)) / (
                2 * step
            )
            assert g[j] == pytest.approx(
                slope, abs=1e-6 * U
            )  # rounding of U over the step


def test_two_classes_are_logistic_regression_and_their_metric_is_its_hessian():
    X, labels, _ = some_rows(2)
    two, one = (
        aq.SoftmaxRegression(X, labels, prior=2.0, intercept=False),
        aq.LogisticRegression(X, labels, prior=1.0, intercept=False),
    )
    v = np.array([0.3, -0.2, 0.1, 0.5])
    theta, every, g = np.concatenate([-v / 2, v / 2]), np.arange(60), np.empty(8)
    # Scores of -x'v / 2 and x'v / 2, and a prior of 2 on two vectors of half the length.
    assert two.value(theta) == pytest.approx(one.value(v), rel=1e-12)
    for p in (
        two,
        aq.SoftmaxRegression(sparse.csr_matrix(X), labels, prior=2.0, intercept=False),
    ):
        summary, step = np.zeros(p.curvature_size), np.empty(8)
        p.grad_with_curvature(theta, every, g, summary)
        p.inverse_metric_from(summary).apply(g, step)
        hessian, own, newton = np.zeros(one.curvature_size), np.empty(4), np.empty(4)
        one.grad_with_curvature(v, every, own, hessian)
        one.inverse_metric_from(hessian).apply(own, newton)
        # Here every row is in C, so that H0 is the inverse of the Hessian itself, but for a ridge of 1e-13.
        np.testing.assert_allclose(step[4:] - step[:4], newton, rtol=1e-8)


@pytest.mark.parametrize(
    "labels",
    [["b", "c", "a"], [5, 7, -1], [1.0, 2.0, 0.0], np.array(["b", "c", "a"], object)],
)
def test_labels_of_every_kind_name_the_same_classes(labels):
    p = aq.SoftmaxRegression(np.eye(3), np.asarray(labels), intercept=False)
    assert p.y.tolist() == [1.0, 2.0, 0.0]
    assert p.classes.tolist() == sorted(labels)
    assert p.by_class(np.arange(9.0)).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_a_theta_of_another_length_is_refused():
    p = aq.SoftmaxRegression.example()
    for call in (p.by_class, p.value):
        with pytest.raises(aq.BadInput, match="dim = 15"):
            call(np.zeros(14))
