"""The linear Gaussian model against NumPy: gradients, closed form, spectrum, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import gradient, one_sentence

from asyncqn.errors import BadInput
from asyncqn.models import rebuild
from asyncqn.models.linear_gaussian import LinearGaussian

DTYPES = [np.float64, np.float32]


def model(dtype=np.float64, dim=7, n_data=30, **more):
    return LinearGaussian.random(
        dim,
        n_data,
        noise_var=2.5,
        seed=3,
        top=50.0,
        bulk=(2.0, 9.0),
        dominant=2,
        dtype=dtype,
        **more,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_value_and_gradient_are_the_formulas(dtype):
    p = model(dtype)
    theta = np.random.default_rng(0).standard_normal(p.dim).astype(dtype)
    A, y, t = p.A.astype(float), p.y.astype(float), theta.astype(float)
    tolerance = 100 * float(np.finfo(dtype).eps)
    U = 0.5 * t @ t + np.sum((y - A @ t) ** 2) / (2 * 2.5)
    assert p.value(theta) == pytest.approx(U, rel=tolerance)
    full = t + A.T @ (A @ t - y) / 2.5
    assert np.linalg.norm(
        gradient(p, theta, np.arange(30)) - full
    ) < tolerance * 30 * np.linalg.norm(full)
    assert gradient(p, theta, np.arange(30)).dtype == dtype


@given(st.lists(st.integers(0, 29), min_size=1, max_size=60))
def test_a_subsample_counts_the_prior_once_and_its_rows_with_their_weight(rows):
    p = model()
    theta = np.linspace(-1, 1, p.dim)
    A, y = p.A[rows], p.y[rows]
    expected = theta + 30 / len(rows) * A.T @ (A @ theta - y) / 2.5
    np.testing.assert_allclose(
        gradient(p, theta, rows), expected, rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_optimum_is_that_of_numpys_solver(dtype):
    p = model(dtype)
    A, y = p.A.astype(float), p.y.astype(float)
    P = np.eye(p.dim) + A.T @ A / 2.5
    # The data are exact in float64 in both; only the order of sums differs.
    np.testing.assert_allclose(p.precision, P, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        p.optimum_theta, np.linalg.solve(P, A.T @ y / 2.5), rtol=1e-9, atol=1e-10
    )
    assert p.optimum == pytest.approx(p.value(p.optimum_theta.astype(dtype)), rel=1e-12)
    around = p.optimum_theta + 0.1 * np.eye(p.dim)
    assert all(p.value(x.astype(dtype)) > p.optimum for x in around)


def test_the_spectrum_of_the_precision_is_as_asked():
    p = model()
    expected = np.sort(np.concatenate([[50.0, 50.0], np.geomspace(2.0, 9.0, 5)]))
    np.testing.assert_allclose(np.linalg.eigvalsh(p.precision), expected, rtol=1e-10)
    given = np.array([1.0, 3.0, 1e4])
    q = LinearGaussian.random(3, 10, spectrum=given)
    np.testing.assert_allclose(np.linalg.eigvalsh(q.precision), given, rtol=1e-8)


def test_equal_recipes_make_equal_models_and_a_saved_one_is_rebuilt():
    a, b = model(np.float32), rebuild(model(np.float32).reference())
    assert a.A.tobytes() == b.A.tobytes()
    assert a.y.tobytes() == b.y.tobytes()
    assert b.dtype == np.float32
    assert LinearGaussian(a.A, a.y, 2.5).reference() is None
    assert rebuild(None) is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda A, y: LinearGaussian(A[0], y, 1.0), "A must be a non-empty matrix"),
        (lambda A, y: LinearGaussian(A, y[:-1], 1.0), "one entry per row of A, 5"),
        (
            lambda A, y: LinearGaussian(np.where(A[0, 0] == A, np.nan, A), y, 1.0),
            "A contains NaN",
        ),
        (
            lambda A, y: LinearGaussian(A, np.where(y == y[0], np.inf, y), 1.0),
            "y contains NaN",
        ),
        (lambda A, y: LinearGaussian(A, y, 0.0), "noise_var must be a positive finite"),
        (lambda A, y: LinearGaussian.random(6, 5), "n_data must be"),
        (lambda A, y: LinearGaussian.random(3, 5, dominant=4), "dominant must lie"),
        (
            lambda A, y: LinearGaussian.random(3, 5, spectrum=[1.0, 2.0]),
            "spectrum must list dim = 3",
        ),
        (
            lambda A, y: LinearGaussian.random(3, 5, dominant=1, bulk=(0.5, 2.0)),
            "at least 1",
        ),
        (lambda A, y: rebuild({"kind": "torus"}), "cannot rebuild a problem of kind"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, words):
    A = np.arange(10.0).reshape(5, 2)
    with pytest.raises(BadInput, match=words) as caught:
        make(A, np.arange(5.0))
    assert one_sentence(caught.value)


def test_vectors_of_another_dimension_never_reach_the_arithmetic():
    p, theta = model(), np.zeros(8)
    for call in (
        lambda: p.value(theta),
        lambda: p.grad(theta, np.arange(3), np.zeros(7)),
        lambda: p.grad(np.zeros(7), np.arange(3), theta),
        lambda: p.grad(np.zeros(7), np.array([3, 30]), np.zeros(7)),
    ):
        with pytest.raises(BadInput, match="dim = 7") as caught:
            call()
        assert one_sentence(caught.value)
