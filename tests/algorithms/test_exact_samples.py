"""Exact L-BFGS on growing samples: exact sums, growth, the end on all rows, no bit from the cluster."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from exact_versions import versions
from hypothesis import given
from hypothesis import strategies as st
from oracles import Quadratic

import asyncqn as aq
from asyncqn import ExactLBFGS
from asyncqn.core.streams import Stream
from asyncqn.kernels import shuffling
from asyncqn.kernels.shuffling import fill_strata
from asyncqn.types import Task


def parts_of(algorithm, n_data, read, seed=0):
    """The rows of all parts of a version, with their shares."""
    parts = range(algorithm.blocks * algorithm.pieces)
    found = [
        algorithm._rows(n_data, Task(0, read, Stream(seed, 0, 0), part))
        for part in parts
    ]
    return [(rows, rows.size / sample) for rows, sample in found]


@given(st.integers(0, 2**63 - 1), st.sampled_from([4, 16, 64]), st.integers(1, 500))
def test_a_sample_has_one_row_of_every_stratum(seed, stride, n_data):
    rows = np.empty(-(-n_data // stride), np.int64)
    fill_strata(seed, stride, 0, n_data, rows)
    assert (rows // stride == np.arange(rows.size)).all()
    assert rows.max() < n_data
    half = np.empty(rows.size - rows.size // 2, np.int64)
    fill_strata(seed, stride, rows.size // 2, n_data, half)
    assert (half == rows[rows.size // 2 :]).all(), "no row depends on who asks for it"
    with mock.patch.object(shuffling, "ROWS_IN_NUMPY", 0):
        fill_strata(seed, stride, rows.size // 2, n_data, half)
    assert (half == rows[rows.size // 2 :]).all(), (
        "many rows are drawn by a kernel, to the same bits"
    )


@given(st.integers(1, 5), st.integers(1, 3), st.integers(400, 700), st.integers(0, 60))
def test_the_parts_of_a_version_make_its_sample(blocks, pieces, n_data, read):
    algorithm = ExactLBFGS(blocks, pieces, samples=2)
    parts = parts_of(algorithm, n_data, read)
    stride = 16 if read < 20 else 4 if read < 30 else 1
    rows = np.concatenate([rows for rows, _ in parts])
    assert rows.size == -(-n_data // stride)
    assert (np.diff(rows) > 0).all()
    assert sum(share for _, share in parts) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_it_ends_at_the_minimum_over_all_rows(dtype):
    problem = aq.LogisticRegression.random(
        4_000, 10, condition=5.0, seed=1, dtype=dtype
    )
    algorithm = ExactLBFGS(3, samples=2, memory=50)
    theta0, g = np.zeros(10, dtype), np.empty(10, dtype)
    problem.grad(theta0, np.arange(4_000), g)
    start = np.linalg.norm(g)
    *_, last = versions(problem, algorithm, theta0, 30 + 25)
    problem.grad(last.base, np.arange(4_000), g)
    # A gradient of float32 rows is known to some 1e-6 of what it was at the start.
    assert np.linalg.norm(g) < (1e-9 if dtype == np.float64 else 1e-5) * start


def test_a_growth_judges_the_last_point_kept_on_the_larger_sample():
    problem = aq.LogisticRegression.random(640, 5, seed=0)
    algorithm = ExactLBFGS(2, samples=1)
    iterates = versions(problem, algorithm, np.zeros(5), 11)
    for _ in range(10):
        before = next(iterates)
    assert before.theta.tobytes() == before.base.tobytes()
    base = before.base.copy()
    after = next(iterates)
    g = np.empty(5)
    problem.grad(base, np.arange(640), g)
    assert after.base.tobytes() == base.tobytes()
    # Two blocks of 320 rows each: a few roundings.
    np.testing.assert_allclose(after.at_base[0], g, rtol=1e-10)


class OneCliff(Quadratic):
    """A quadratic whose row 3 overflows beyond |theta| = 1; a sample without it runs there."""

    def grad(self, theta, rows, out):
        super().grad(theta, rows, out)
        if 3 in rows and np.linalg.norm(theta) > 1.0:
            out[...] = np.inf


def test_a_point_that_more_rows_cannot_bear_is_moved_back_to_the_start():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((256, 3))
    problem = OneCliff(A, A @ np.array([3.0, 0.0, 0.0]))
    algorithm = ExactLBFGS(1, samples=1)
    seed = next(s for s in range(99) if 3 not in parts_of(algorithm, 256, 0, s)[0][0])
    *_, sampled = versions(problem, algorithm, np.zeros(3), 10, seed)
    assert np.linalg.norm(sampled.base) > 2.0
    *_, last = versions(problem, algorithm, np.zeros(3), 40, seed)
    assert 0.7 < np.linalg.norm(last.base) <= 1.0


def test_a_resumed_run_goes_on_where_its_sample_was(tmp_path):
    problem = aq.LogisticRegression.random(640, 5, seed=0)
    algorithm = ExactLBFGS(3, samples=1)

    def stop(progress):
        if progress.commit >= 3:
            raise StopIteration

    aq.minimize(problem, algorithm, engine=aq.Threads(2), commits=16, evaluate=1, callback=stop,
                checkpoint=tmp_path / "c")  # fmt: skip
    whole = aq.minimize(problem, algorithm, engine=aq.Threads(1), commits=16)
    assert aq.resume(tmp_path / "c").theta.tobytes() == whole.theta.tobytes()


@pytest.mark.parametrize("samples", [0, 1])
def test_an_H0_from_the_scatter_saves_passes_where_features_are_turned(
    samples: int,
) -> None:
    rng = np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.standard_normal((12, 12)))
    X = rng.standard_normal((4000, 12)) * np.geomspace(1.0, 0.02, 12) @ turn
    problem = aq.LogisticRegression(
        X, X @ (5.0 * turn.sum(axis=0)) + rng.logistic(size=4000) > 0, intercept=False
    )
    engine = aq.Simulator(aq.Cluster(workers=10))
    passes = {}
    for inverse in ("pairs", "scatter"):
        algorithm = ExactLBFGS(10, 2, samples, inverse)
        run = aq.minimize(problem, algorithm, engine=engine, commits=150)
        assert run.status == "converged"
        passes[inverse] = run.passes
    assert passes["scatter"] < 0.75 * passes["pairs"]
