"""Charts: the map and its gradient, the law of a trajectory in any chart, what is learned, and whole runs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.sampling.bends import fit_chart
from asyncqn.algorithms.sampling.chart import (
    Charted,
    folded,
    has_edges,
    no_chart,
    trajectory_in,
)
from asyncqn.algorithms.sampling.target import Target
from asyncqn.kernels import chart as kernels
from tests.posterior_models import Model, start_at

SCALE = 1.5


def funnel(t: Any) -> tuple[float, Any]:
    """v ~ N(0, 1.5^2), and the others ~ N(0, exp(v))."""
    v, x = t[0], t[1:]
    square = np.exp(-v) * float(x @ x)
    value = 0.5 * (v / SCALE) ** 2 + 0.5 * x.size * v + 0.5 * square
    slope = v / SCALE**2 + 0.5 * x.size - 0.5 * square
    return value, np.append(slope, np.exp(-v) * x)


def exact_funnel(n: int, dim: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    v = SCALE * rng.standard_normal(n)
    x = np.exp(0.5 * v)[:, None] * rng.standard_normal((n, dim - 1))
    return np.column_stack([v, x])


def gradients(model: Model, X: Any) -> Any:
    out = np.empty_like(X)
    for x, g in zip(X, out):
        model.grad(x, None, g)
    return out


def any_chart(kind: float, dim: int = 4) -> Any:
    """A chart with two pivots that suits nothing."""
    rng, chart = np.random.default_rng(3), no_chart(dim)
    chart[:dim, 3:5] = rng.uniform(0.5, 1.5, (dim, 2))
    row = dim
    for child in range(2, dim):
        chart[child, :3] = 0.3, -0.2, kind
        for pivot in (0, 1):
            chart[row] = child, pivot, *(0.3 * rng.standard_normal(4))
            row += 1
    return chart


@pytest.mark.parametrize("kind", [kernels.PLAIN, kernels.BEND, kernels.NECK])
def test_the_density_in_a_chart_agrees_with_differences(kind: float) -> None:
    model, chart = Model(funnel, 4), any_chart(kind)
    x = np.array([0.4, -0.7, 0.3, 1.1])
    target = Target(model, np.float64)
    start = start_at(target, x)
    place = Charted(target, chart, start)
    z, at_z, value_at_z = place.folded()
    work = np.empty(4)
    assert place.value_and_grad(z, work) == pytest.approx(value_at_z)
    np.testing.assert_allclose(place.last.x, x, rtol=1e-13)
    np.testing.assert_allclose(work, at_z, rtol=1e-12)
    steps = 1e-6 * np.eye(4)
    slopes = [
        place.value_and_grad(z + h, work) - place.value_and_grad(z - h, work)
        for h in steps
    ]
    np.testing.assert_allclose(at_z, np.array(slopes) / 2e-6, rtol=1e-6, atol=1e-8)
    # log |dx/dz| against the determinant of differences.
    columns = []
    for h in steps:
        place.value_and_grad(z + h, work)
        ahead = place.last.x
        place.value_and_grad(z - h, work)
        columns.append((ahead - place.last.x) / 2e-6)
    volume = np.linalg.slogdet(np.array(columns))[1]
    assert start.value - value_at_z == pytest.approx(volume, abs=1e-7)


@pytest.mark.parametrize("kind", [kernels.PLAIN, kernels.BEND, kernels.NECK])
def test_a_trajectory_in_any_chart_keeps_the_law(kind: float) -> None:
    """One transition from exact draws leaves their moments: z-scores of the differences, draw by draw."""
    model, n = Model(funnel, 4), 4000
    chart = any_chart(kind)
    rng, target = np.random.default_rng(0), Target(model, np.float64)
    before = exact_funnel(n, 4, seed=1)
    after = before.copy()
    metric = np.eye(4) * 0.7
    moved = 0
    with np.errstate(all="ignore"):
        for x in after:
            start = start_at(target, x)
            normals = rng.standard_normal(4)
            end = trajectory_in(chart, target, start, metric, 0.5, 4, normals)
            if rng.random() < end.acceptance:
                x[...] = end.state.x
                moved += 1
    assert 0.3 * n < moved < 0.99 * n

    def functions(X: Any) -> Any:
        v, inside = X[:, :1], np.exp(-0.5 * X[:, 1:] ** 2)
        return np.hstack([v, v**2, np.tanh(X), inside, v * inside])

    difference = functions(after) - functions(before)
    score = difference.mean(axis=0) / difference.std(axis=0) * np.sqrt(n)
    assert np.abs(score).max() < 3.5


def test_a_chart_of_a_funnel_reaches_further_than_its_draws() -> None:
    """Gradients say how the scale goes on: a fit without the lower half of the neck is right in the neck."""
    model, X = Model(funnel, 6), exact_funnel(1500, 6, seed=2)
    X = X[X[:, 0] > 0.0]
    chart = fit_chart(X, gradients(model, X))
    assert set(chart[6:, 1][chart[6:, 0] >= 0.0]) == {0.0}
    fresh = exact_funnel(4000, 6, seed=3)
    Z, _ = folded(chart, fresh, np.zeros_like(fresh))
    neck = Z[fresh[:, 0] < -3.0, 1:].std(axis=0)
    mouth = Z[fresh[:, 0] > 1.0, 1:].std(axis=0)
    np.testing.assert_allclose(neck / mouth, 1.0, atol=0.2)


@pytest.mark.parametrize("dim", [2, 40])
def test_a_gaussian_has_no_chart(dim: int) -> None:
    rng = np.random.default_rng(dim)
    A = rng.standard_normal((dim, dim))
    X = rng.standard_normal((600, dim)) @ A
    assert not has_edges(fit_chart(X, X @ np.linalg.inv(A.T @ A)))


def test_heavy_tails_have_no_chart() -> None:
    X = np.random.default_rng(1).standard_t(3, (600, 5))
    assert not has_edges(fit_chart(X, 4.0 * X / (3.0 + X**2)))


def drawn(problem: Any, draws: int, **options: Any) -> aq.Samples:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return aq.sample(problem, chains=8, draws=draws, **options)


def test_a_funnel_is_drawn_right() -> None:
    """Neal's funnel, of which one metric and one step see a part."""
    engine = aq.Simulator(aq.Cluster(workers=4, worker_std=0.3))
    samples = drawn(Model(funnel, 6), 4000, engine=engine)
    assert has_edges(samples.run.results["chart"])
    assert samples.ess.min() > 1500
    v = np.concatenate(samples.chains)[:, 0] / SCALE
    assert abs(v.mean()) < 0.1
    assert abs(v.std() - 1.0) < 0.06
    assert 0.015 < (v < -2.0).mean() < 0.035
    assert samples.divergent < 20


def test_a_parabola_is_drawn_right() -> None:
    def banana(t: Any) -> tuple[float, Any]:
        away = t[1] - t[0] ** 2
        g = np.array([t[0] - 20.0 * t[0] * away, 10.0 * away])
        return 0.5 * t[0] ** 2 + 5.0 * away**2, g

    samples = drawn(Model(banana, 2), 3000, engine=aq.Simulator(aq.Cluster(workers=4)))
    assert samples.ess.min() > 1000
    X = np.concatenate(samples.chains)
    assert abs(X[:, 1].mean() - 1.0) < 0.12
    assert abs(X[:, 0].std() - 1.0) < 0.06


@pytest.mark.parametrize(
    "engine", [aq.Simulator(aq.Cluster(2, worker_std=0.3)), aq.Threads(2)], ids=str
)
def test_a_run_with_a_chart_replays_and_resumes(engine: Any, tmp_path: Path) -> None:
    def stop(progress: Any) -> None:
        if progress.commit >= 900:
            raise StopIteration

    folder = {"checkpoint": tmp_path / "c", "checkpoint_every": 100}
    options = {"engine": engine, "callback": stop, "warm_up": 500}
    first = drawn(Model(funnel, 4), 900, **folder, **options)
    if isinstance(engine, aq.Simulator):  # threads may have learned another
        assert has_edges(first.run.results["chart"])
    samples = aq.Samples.from_run(aq.resume(tmp_path / "c", Model(funnel, 4)))
    assert sum(map(len, samples.chains)) == 900
    again = aq.Samples.from_run(aq.replay(samples.run))
    for a, b in zip(again.chains, samples.chains, strict=True):
        np.testing.assert_array_equal(a, b)
    charts = [one.run.results["chart"] for one in (again, samples)]
    np.testing.assert_array_equal(*charts)
