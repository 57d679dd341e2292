"""Parameters with bounds: maps that are inverse to each other, Jacobians, gradients, and named draws."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.checks.first_calls import compare_functions
from asyncqn.errors import BadInput
from tests.posterior_models import Model

KINDS = [aq.Bounded("real", 2), aq.Bounded("below", low=-1.0), aq.Bounded("above", high=2.0),
         aq.Bounded("between", 2, low=-3.0, high=5.0)]  # fmt: skip


def smooth(**options: Any) -> aq.FiniteSum:
    y = np.arange(1.0, 6.0)
    return aq.FiniteSum(
        value=lambda phi, rows: ((phi[None, :] - 0.1 * y[rows, None]) ** 2).sum(),
        grad=lambda phi, rows: 2.0 * (phi[None, :] - 0.1 * y[rows, None]).sum(axis=0),
        n_data=5,
        dim=6,
        **options,
    )


def test_the_maps_are_inverse_to_each_other_and_keep_the_bounds() -> None:
    model = aq.Constrained(smooth(), KINDS)
    theta = 3.0 * np.random.default_rng(0).standard_normal((50, 6))
    phi = model.constrain(theta)
    assert (phi[:, 2] > -1.0).all()
    assert (phi[:, 3] < 2.0).all()
    assert (np.abs(phi[:, 4:] - 1.0) < 4.0).all()
    np.testing.assert_array_equal(phi[:, :2], theta[:, :2])
    for row, back in zip(theta, phi):
        np.testing.assert_allclose(model.unconstrain(back), row, rtol=1e-8)
    names = ["real[0]", "real[1]", "below", "above", "between[0]", "between[1]"]
    assert model.names == names


def test_the_jacobian_is_that_of_the_map() -> None:
    model, theta = (
        aq.Constrained(smooth(), KINDS),
        np.array([0.3, -1.0, 0.5, -2.0, 1.5, -0.7]),
    )
    steps = 1e-6 * np.eye(6)
    slopes = [
        (model.constrain(theta + e) - model.constrain(theta - e)) @ e / 2e-12
        for e in steps
    ]
    exact = smooth().value(model.constrain(theta)) - np.log(np.abs(slopes)).sum()
    assert model.value(theta) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_its_gradient_belongs_to_its_value_on_all_rows_and_on_some(dtype: str) -> None:
    model = aq.Constrained(smooth(dtype=dtype), KINDS)
    compare_functions(model, np.array([0.3, -1.0, 0.5, -2.0, 1.5, -0.7], dtype))
    assert model.dtype == np.dtype(dtype)


def test_a_beta_and_a_gamma_are_drawn_under_their_names() -> None:
    """phi_0 ~ Beta(2, 5) and phi_1 ~ Gamma(3, 1)."""

    def function(p: Any) -> tuple[float, Any]:
        U = -np.log(p[0]) - 4.0 * np.log1p(-p[0]) + p[1] - 2.0 * np.log(p[1])
        return U, np.array([-1.0 / p[0] + 4.0 / (1.0 - p[0]), 1.0 - 2.0 / p[1]])

    both = Model(function, 2)
    model = aq.Constrained(
        both, [aq.Bounded("share", low=0.0, high=1.0), aq.Bounded("rate", low=0.0)]
    )
    samples = aq.sample(
        model, chains=4, draws=5000, engine=aq.Simulator(aq.Cluster(workers=4))
    )
    pooled = np.concatenate(samples.chains)
    sd = np.array([math.sqrt(10.0 / 49.0 / 8.0), math.sqrt(3.0)])
    assert (np.abs(pooled.mean(axis=0) - [2.0 / 7.0, 3.0]) < 0.1 * sd).all()
    assert (np.abs(pooled.std(axis=0) / sd - 1.0) < 0.07).all()
    assert set(samples.to_arviz()["posterior"].data_vars) == {"share", "rate"}
    again = aq.Samples.from_run(aq.replay(samples.run))
    assert all((a == b).all() for a, b in zip(again.chains, samples.chains))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: aq.Bounded("a", low=1.0, high=1.0), "must lie below"),
        (lambda: aq.Constrained(smooth(), KINDS[:2]), "dim = 6, but"),
        (lambda: aq.Constrained(smooth(), ["a"]), "items are each a Bounded"),
        (
            lambda: aq.Constrained(smooth(), [aq.Bounded("a", 3), aq.Bounded("a", 3)]),
            "have the same name",
        ),
        (
            lambda: aq.Constrained(smooth(), KINDS).unconstrain(np.full(6, -2.0)),
            "below must lie strictly inside",
        ),
    ],
)
def test_mistakes_get_one_sentence(wrong: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        wrong()


def test_a_saved_run_makes_its_constrained_problem_again(tmp_path: Path) -> None:
    inside = aq.LinearGaussian.random(dim=3, n_data=30, seed=0)
    bounds = [
        aq.Bounded("a", low=-9.0),
        aq.Bounded("b", high=9.0),
        aq.Bounded("c", 1, low=-9.0, high=9.0),
    ]
    model = aq.Constrained(inside, bounds)
    engine = aq.Simulator(aq.Cluster(workers=2))
    method = aq.SharedMetricHMC(draws=50, chains=2, warm_up=40)
    run = aq.minimize(model, method, engine=engine, commits=300, keep=1)
    again = aq.replay(run.save(tmp_path / "run"))
    assert isinstance(again.problem, aq.Constrained)
    assert again.problem.names == ["a", "b", "c[0]"]
    np.testing.assert_array_equal(again.theta, run.theta)
    theta = np.array([0.3, -1.0, 2.0])
    assert again.problem.value(theta) == model.value(theta)
