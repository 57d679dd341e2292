"""The repr of a problem is one readable line."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import asyncqn as aq

X, Y = np.ones((4, 2)), np.array([0.0, 1.0, 1.0, 0.0])


TEXT = ["a", "b", "c", "c"]


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (
            aq.LogisticRegression(X, Y, intercept=False),
            "LogisticRegression(4 rows, dim 2, 2 features, prior 1)",
        ),
        (
            aq.SoftmaxRegression(sparse.csr_matrix(X), TEXT, 0.5),
            "SoftmaxRegression(4 rows, dim 9, 2 sparse features, 3 classes, prior 0.5, intercept)",
        ),
        (
            aq.RobustRegression(X, Y, weights=Y, offset=Y, intercept=False),
            "RobustRegression(4 rows, dim 2, 2 features, prior 1, width 1, weights, offset)",
        ),
        (
            aq.LinearGaussian.random(dim=3, n_data=1200),
            "LinearGaussian(1,200 rows, dim 3, noise variance 10)",
        ),
        (
            aq.Constrained(aq.LinearGaussian.random(2, 9), [aq.Bounded("a", 2)]),
            "Constrained(9 rows, dim 2, a[0], a[1], of LinearGaussian(9 rows, dim 2, noise variance 10))",
        ),
    ],
)
def test_a_problem_says_its_size_and_what_was_chosen(problem, line):
    assert repr(problem) == line
