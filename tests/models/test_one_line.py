"""The repr of a problem is one readable line."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy import sparse

import asyncqn as aq
from asyncqn.models import PROBLEMS

X, Y = np.ones((4, 2)), np.array([0.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (
            aq.LogisticRegression(X, Y, intercept=False),
            "LogisticRegression(4 rows, dim 2, 2 features, prior 1)",
        ),
        (
            aq.SoftmaxRegression(
                sparse.csr_matrix(X), ["a", "b", "c", "c"], 0.5, intercept=True
            ),
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
            aq.FiniteSum(
                lambda t, r: 0.0 * t[0] * len(r), lambda t, r: 0.0 * t, 3, 1, prior=2.0
            ),
            "FiniteSum(3 rows, dim 1, prior 2)",
        ),
        (
            aq.from_torch(
                torch.nn.Linear(2, 1), torch.nn.MSELoss(), X, Y.reshape(-1, 1)
            ),
            "TorchSum(4 rows, dim 3, Linear, float32)",
        ),
        (
            aq.from_jax(
                lambda w, x: jnp.square(x @ w),
                np.zeros(2, np.float32),
                X.astype(np.float32),
            ),
            "JaxSum(4 rows, dim 2)",
        ),
        (
            aq.Constrained(
                aq.LeastSquares(X, Y, intercept=False),
                [aq.Bounded("a", low=0.0), aq.Bounded("b")],
            ),
            "Constrained(4 rows, dim 2, a, b, of LeastSquares(4 rows, dim 2, 2 features, prior 1))",
        ),
    ],
)
def test_a_problem_says_its_size_and_what_was_chosen(problem, line):
    assert repr(problem) == line


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_registered_problem_is_one_line(kind):
    line = repr(PROBLEMS[kind].example("float64"))
    assert line.startswith(PROBLEMS[kind].__name__ + "(")
    assert "\n" not in line
    assert len(line) < 110
