"""Two functions instead of a class: scaled, checked and replayed like any problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines.runs import assert_replays

import asyncqn as aq
from asyncqn.checks.testing import check_problem

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = RNG.standard_normal(60)


def value(theta: Any, rows: Any) -> float:
    return 0.5 * float(((X[rows] @ theta - Y[rows]) ** 2).sum())


def grad(theta: Any, rows: Any) -> Any:
    return X[rows].T @ (X[rows] @ theta - Y[rows])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_two_functions_are_a_problem(dtype: str) -> None:
    problem = aq.FiniteSum(value, grad, 60, 4, prior=0.5, dtype=dtype)
    check_problem(problem, travel=False, engines=("threads",))
    run = aq.minimize(problem, engine=aq.Threads(2))
    assert run.success
    assert run.theta.dtype == np.dtype(dtype)
    exact = np.linalg.solve(X.T @ X + 0.5 * np.eye(4), X.T @ Y)
    # The gradient is small against the first one; the condition of X'X is below 10.
    assert np.allclose(run.theta, exact, atol=1e-3 if dtype == "float32" else 1e-6)
    assert_replays(run, problem)


def test_functions_of_a_script_travel_to_processes() -> None:
    problem = aq.FiniteSum(
        lambda t, rows: value(t, rows),
        lambda t, rows: grad(t, rows),
        60,
        4,
        start=[1] * 4,
    )
    run = aq.minimize(problem, engine=aq.Processes(2, start_method="fork"))
    assert run.status == "converged"
    assert run.theta0.tolist() == [1.0] * 4
    assert_replays(run, problem)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"value": lambda theta: 0.0},
            r"value must take two arguments, theta and rows, .*signature is \(theta\)",
        ),
        (
            {"grad": lambda theta, rows, out: None},
            r"grad must take two arguments.* signature is \(theta, rows, out\)",
        ),
        ({"grad": 3}, "grad must be a function, not 3"),
        (
            {"value": lambda theta, rows: None},
            "value must return one number.*not a NoneType",
        ),
        (
            {"value": lambda t, rows: X[rows] @ t},
            r"one number.*not an array of shape \(1,\)",
        ),
        (
            {"grad": lambda t, rows: X[rows]},
            r"a vector of dim = 4 numbers, not an array of shape \(1, 4\)",
        ),
        ({"value": lambda t, rows: value(t, rows) / len(rows)}, "value returns a mean"),
        ({"grad": lambda t, rows: grad(t, rows) / len(rows)}, "grad returns a mean"),
        ({"start": [1.0]}, "start must be a vector of dim = 4"),
    ],
)
def test_mistakes_are_named_in_a_sentence(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(aq.BadInput, match=words):
        aq.FiniteSum(
            **{"value": value, "grad": grad, "n_data": 60, "dim": 4, **changed}
        )


def test_a_wrong_sign_is_found_before_the_run_and_theta_cannot_be_changed() -> None:
    with pytest.raises(aq.BadInput, match="is -1 times the gradient"):
        aq.minimize(aq.FiniteSum(value, lambda t, rows: -grad(t, rows), 60, 4))

    def spoiling(theta: Any, rows: Any) -> Any:
        theta[0] = 1.0
        return grad(theta, rows)

    with pytest.raises(ValueError, match="read-only"):
        aq.FiniteSum(value, spoiling, 60, 4)
