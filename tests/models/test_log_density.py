"""LogDensity: a whole log density as a problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.errors import BadInput


def test_value_and_gradient_are_minus_those_of_the_density() -> None:
    problem = aq.LogDensity(lambda t: (-3.0 * t[0] ** 2, [-6.0 * t[0], 0.0]), 2)
    g = np.empty(2)
    theta = np.array([2.0, 5.0])
    assert problem.value(theta) == 12.0
    assert problem.grad_with_value(theta, np.arange(1), g) == 12.0
    assert g.tolist() == [12.0, 0.0]


def test_functions_of_jax_and_torch_are_taken_as_they_are() -> None:
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")

    def by_torch(theta: Any) -> tuple[Any, Any]:
        x = torch.tensor(theta, requires_grad=True)
        value = -0.5 * (x**2).sum()
        value.backward()
        # With its graph, as users return it.
        return value, x.grad

    def by_jax(theta: Any) -> Any:
        return -0.5 * (theta**2).sum()

    theta = np.array([1.0, 2.0])
    for function in (by_torch, jax.jit(jax.value_and_grad(by_jax))):
        problem = aq.LogDensity(function, 2)
        assert problem.value(theta) == 2.5
        g = np.empty(2)
        problem.grad(theta, np.arange(1), g)
        assert g.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("function", "options", "sentence"),
    [
        (lambda t: 1.0, {}, "must return two things"),
        (lambda t: (t, t), {}, r"one number, not an array of shape \(2,\)"),
        (lambda t: (0.0, t[:1]), {}, r"a vector of dim = 2 numbers, not of shape \(1,"),
        (lambda t: (0.0, t), {"names": ["a"]}, "2 parameters, but 1 names"),
        (lambda t: (0.0, t), {"start": [1.0]}, "start must be a vector of dim = 2"),
        (3, {}, "must be a function"),
    ],
)
def test_mistakes_get_one_sentence(
    function: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence) as caught:
        aq.LogDensity(function, 2, **options)
    assert "\n" not in str(caught.value)


def test_in_bounds_a_density_without_a_start_begins_inside_them() -> None:
    # The density of an exponential scale, whose logarithm is not finite at zero.
    density = aq.LogDensity(lambda t: (np.log(t[0]) - t[0], 1.0 / t - 1.0), 1)
    problem = aq.Constrained(density, [aq.Bounded("tau", low=0.0)])
    samples = aq.sample(problem, draws=2000, engine=aq.Threads(1), seed=0)
    assert samples["tau"].min() > 0.0
