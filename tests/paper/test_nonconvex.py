"""The problems of the title's experiment: formulas, gradients, and local minima above the planted one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples import IN_THIS_PROCESS

from asyncqn import Cluster, Simulator, minimize
from asyncqn.checks.testing import check_problem
from asyncqn_paper.nonconvex import Mixture, PhaseRetrieval


@pytest.mark.parametrize(
    "problem",
    [
        Mixture.random(3, 40, width=10.0, gap=4.0, seed=3),
        PhaseRetrieval.random(6, 17, seed=3),
    ],
    ids=["mixture", "phase-retrieval"],
)
def test_they_keep_the_rules_of_a_problem(problem: Any) -> None:
    check_problem(problem, engines=IN_THIS_PROCESS)


def test_the_mixture_is_the_formula_on_any_rows() -> None:
    p = Mixture.random(3, 30, width=10.0, gap=4.0, seed=1)
    theta, rows = np.linspace(-3.0, 4.0, 6), np.array([3, 3, 29, 0])
    squares = ((p.X[:, None, :] - theta.reshape(3, 2)[None]) ** 2).sum(axis=2)
    terms, prior = -np.log(np.exp(-squares / 2).mean(axis=1)), theta @ theta / 200.0
    # Sums of 30 logarithms: a few roundings of the largest.
    assert p.value(theta) == pytest.approx(terms.sum() + prior, rel=1e-12)
    sample = 30 / 4 * terms[rows].sum() + prior
    assert p.value_rows(theta, rows) == pytest.approx(sample, rel=1e-12)


def test_phase_retrieval_is_the_formula_with_minima_at_the_signal_and_its_negative() -> (
    None
):
    p = PhaseRetrieval.random(5, 12, seed=1)
    theta, rows = np.linspace(-1.0, 2.0, 5), np.array([3, 3, 11, 0])
    terms = ((p.A @ theta) ** 2 - p.y) ** 2 / 4
    # Sums of at most 12 terms: a few roundings of the largest.
    assert p.value(theta) == pytest.approx(terms.sum(), rel=1e-13)
    sample = 12 / 4 * terms[rows].sum()
    assert p.value_rows(theta, rows) == pytest.approx(sample, rel=1e-13)
    for minimum in (p.signal, -p.signal):
        # Residuals are roundings of y ~ 5: squares of 1e-14 and less.
        assert p.value(minimum) < 1e-20


def hessian(p: Any, theta: np.ndarray) -> np.ndarray:
    """From central differences of gradients."""
    rows, step = np.arange(p.n_data), 1e-5
    ahead, behind, H = np.empty(p.dim), np.empty(p.dim), np.empty((p.dim, p.dim))
    for i, e in enumerate(step * np.eye(p.dim)):
        p.grad(theta + e, rows, ahead)
        p.grad(theta - e, rows, behind)
        H[i] = (ahead - behind) / (2 * step)
    return (H + H.T) / 2


@pytest.mark.parametrize(
    ("problem", "planted", "slope", "excess"),
    [
        # A missed cluster of 50 points, two units or more away on average, costs at least 100.
        (Mixture.random(8, 400, width=20.0, seed=0), None, 1e-2, 100.0),
        (PhaseRetrieval.random(10, 20, seed=2), 0.0, 1e-3, 1.0),
    ],
    ids=["mixture", "phase-retrieval"],
)
def test_descent_from_some_starts_ends_in_a_local_minimum_above_the_planted_one(
    problem: Any, planted: float | None, slope: float, excess: float
) -> None:
    engine = Simulator(Cluster(1))
    if planted is None:
        start = problem.centres.ravel()
        planted = minimize(problem, engine=engine, theta0=start, commits=100).fun
    stuck, g = 0, np.empty(problem.dim)
    for seed in range(6):
        run = minimize(problem, engine=engine, commits=300, seed=seed)
        problem.grad(run.theta, np.arange(problem.n_data), g)
        if np.linalg.norm(g) < slope and run.fun > planted + excess:
            stuck += bool(np.linalg.eigvalsh(hessian(problem, run.theta))[0] > 0.0)
    assert stuck >= 1
