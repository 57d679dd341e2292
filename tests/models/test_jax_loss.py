"""A JAX loss as a problem: padded batches weigh nothing, few sizes are compiled, trees come back."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from engines.runs import assert_replays

import asyncqn as aq
from asyncqn.checks.testing import check_problem

jax = pytest.importorskip("jax")
jnp = jax.numpy
N = 200
RNG = np.random.default_rng(0)
DATA = {
    "x": RNG.standard_normal((N, 3)).astype(np.float32),
    "y": RNG.standard_normal(N).astype(np.float32),
}
START = {"w": np.zeros(3, np.float32), "b": np.zeros((), np.float32)}


def loss(params: Any, batch: Any) -> Any:
    return 0.5 * (batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2


@pytest.fixture(scope="module")
def make_problem() -> Any:
    return aq.from_jax(loss, START, DATA, prior=0.5)


def test_a_loss_is_a_problem_and_its_answer_a_tree(make_problem: Any) -> None:
    assert (make_problem.n_data, make_problem.dim) == (N, 4)
    assert make_problem.dtype == np.float32
    check_problem(make_problem, travel=False, engines=())
    run = aq.minimize(make_problem, engine=aq.Threads(2), tol=1e-4, max_passes=60)
    # A tree's leaves come by name: b, w.
    A = np.column_stack([np.ones(N), DATA["x"]]).astype(np.float64)
    exact = np.linalg.solve(A.T @ A + 0.5 * np.eye(4), A.T @ DATA["y"])
    answer = make_problem.params(run.theta)
    assert sorted(answer) == ["b", "w"]
    assert answer["w"].shape == (3,)
    assert answer["b"].shape == ()
    # Gradients of float32 sums over 200 rows are good to about 1e-4 of their size.
    assert np.allclose([answer["b"], *answer["w"]], exact, atol=1e-3)
    assert_replays(run, make_problem)


def test_padding_changes_nothing_and_few_sizes_are_compiled(make_problem: Any) -> None:
    theta, rows = np.full(4, 0.3, np.float32), np.arange(N)
    out, same = np.empty((2, 4), np.float32)
    for n in (1, 5, 63, 64, 65, 130, 200):
        make_problem.grad(theta, rows[:n], out)
        A = np.column_stack([np.ones(n), DATA["x"][:n]])
        same[:] = N / n * (A.T @ (A @ theta - DATA["y"][:n])) + 0.5 * theta
        assert np.allclose(out, same, rtol=1e-4, atol=1e-3 * N)
    assert make_problem._compiled.value_and_grad._cache_size() <= 3, (
        "64, 128 and 256 rows"
    )
    with pytest.raises(aq.BadInput, match=r"rows must lie in 0\.\.199"):
        make_problem.grad(theta, np.array([N]), out)


def test_a_problem_travels_without_what_was_compiled(make_problem: Any) -> None:
    theta = np.full(4, 0.3, np.float32)
    there = pickle.loads(pickle.dumps(make_problem))
    assert "_compiled" not in vars(there)
    assert there.value(theta) == make_problem.value(theta)


MISTAKES = {
    "one number per row": (lambda p, batch: loss(p, batch).mean(), START, DATA),
    "it returns NoneType": (lambda p, batch: None, START, DATA),
    r"of shape \(2, 3\)": (lambda p, batch: batch["x"], START, DATA),
    "JAX cannot compute loss": (lambda p, batch: "x", START, DATA),
    "floats, not complex64": (lambda p, batch: loss(p, batch) * 1j, START, DATA),
    "lengths differ": (loss, START, {**DATA, "y": DATA["y"][:-1]}),
    "data must hold real numbers": (loss, START, {**DATA, "y": DATA["y"] * 1j}),
    "all be float32, or all float64": (loss, {**START, "b": np.int32(0)}, DATA),
    "loss must be a function": (3, START, DATA),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_named_in_a_sentence(words: str) -> None:
    with pytest.raises(aq.BadInput, match=words) as caught:
        aq.from_jax(*MISTAKES[words])
    assert "\n" not in str(caught.value)


def test_parameters_that_jax_would_round_are_refused() -> None:
    start = {name: leaf.astype(np.float64) for name, leaf in START.items()}
    # Another library in this process may have switched it on.
    wide = bool(jax.config.jax_enable_x64)
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(aq.BadInput, match="jax_enable_x64"):
            aq.from_jax(loss, start, DATA)
    finally:
        jax.config.update("jax_enable_x64", wide)


def test_a_prior_may_be_a_function() -> None:
    def prior(params: Any) -> Any:
        return 0.25 * ((params["w"] ** 2).sum() + params["b"] ** 2)

    problem = aq.from_jax(loss, START, DATA, prior=prior)
    same = aq.from_jax(loss, START, DATA, prior=0.5)
    theta = np.array([0.3, -0.2, 0.5, 0.1], np.float32)
    rows = np.arange(7)
    ours, theirs = np.empty((2, 4), np.float32)
    value = problem.grad_with_value(theta, rows, ours)
    assert value == pytest.approx(same.grad_with_value(theta, rows, theirs), rel=1e-5)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    with pytest.raises(aq.BadInput, match="prior\\(params\\) must return one number"):
        aq.from_jax(loss, START, DATA, prior=lambda params: params["w"])
