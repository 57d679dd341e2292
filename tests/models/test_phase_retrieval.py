"""Phase retrieval: gradients, the known minimum, local minima above it, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from asyncqn import minimize
from asyncqn.checks.testing import IN_THIS_PROCESS, check_problem
from asyncqn.cluster.cluster import Cluster
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import BadInput
from asyncqn.models import rebuild
from asyncqn.models.phase_retrieval import PhaseRetrieval


def test_it_keeps_the_rules_of_a_problem():
    check_problem(PhaseRetrieval.random(6, 17, seed=3), engines=IN_THIS_PROCESS)


def test_value_is_the_formula_on_any_rows():
    p = PhaseRetrieval.random(5, 12, seed=1)
    theta, rows = np.linspace(-1.0, 2.0, 5), np.array([3, 3, 11, 0])
    terms = ((p.A @ theta) ** 2 - p.y) ** 2 / 4
    # Sums of at most 12 terms: a few roundings of the largest.
    assert p.value(theta) == pytest.approx(terms.sum(), rel=1e-13)
    assert p.value_rows(theta, rows) == pytest.approx(
        12 / 4 * terms[rows].sum(), rel=1e-13
    )


def test_the_signal_and_its_negative_are_minima_at_zero():
    p = PhaseRetrieval.random(8, 30, seed=2)
    g = np.empty(8)
    # Residuals are roundings of y ~ 8: squares of 1e-14 and less.
    for theta in (p.signal, -p.signal):
        assert p.value(theta) < 1e-20
        p.grad(theta, np.arange(30), g)
        assert np.abs(g).max() < 1e-9
        assert p.metrics(theta)["distance"] == 0.0


def test_descent_from_some_starts_ends_in_a_local_minimum_above_zero():
    p = PhaseRetrieval.random(10, 20, seed=2)
    runs = [
        minimize(p, engine=Simulator(Cluster(1)), commits=300, seed=seed)
        for seed in range(8)
    ]
    g = np.empty(10)
    stuck = 0
    for run in runs:
        p.grad(run.theta, np.arange(20), g)
        stuck += bool(
            np.linalg.norm(g) < 1e-3
            and run.fun > 1.0
            and _lowest_curvature(p, run.theta) > 0.0
        )
    assert stuck >= 1


def _lowest_curvature(p: PhaseRetrieval, theta: np.ndarray) -> float:
    z = p.A @ theta
    return float(np.linalg.eigvalsh(p.A.T @ ((3 * z**2 - p.y)[:, None] * p.A))[0])


def test_a_reference_makes_it_again():
    p = PhaseRetrieval.random(4, 9, seed=5)
    again = rebuild(p.reference())
    assert isinstance(again, PhaseRetrieval)
    assert again.A.tobytes() == p.A.tobytes()
    assert again.y.tobytes() == p.y.tobytes()


def test_bad_input_gets_a_sentence():
    for arguments in ((0, 5), (3, 0), (2.5, 5)):
        with pytest.raises(BadInput, match="integer of at least 1"):
            PhaseRetrieval.random(*arguments)
    with pytest.raises(BadInput, match="one entry per column"):
        PhaseRetrieval(np.ones((3, 2)), np.ones(3))
    with pytest.raises(BadInput, match="finite"):
        PhaseRetrieval(np.full((3, 2), np.nan), np.ones(2))
    p = PhaseRetrieval.random(3, 5)
    for theta, rows in ((np.ones(2), [0]), (np.ones(3), [5]), (np.ones(3), [-1])):
        with pytest.raises(BadInput, match="rows must lie between"):
            p.grad(theta, np.array(rows), np.empty(3))
