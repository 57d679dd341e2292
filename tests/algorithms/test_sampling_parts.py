"""The parts of the sampler by themselves: metrics, trajectories, the model of acceptance, diagnostics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from asyncqn.algorithms.sampling import metric as metrics
from asyncqn.algorithms.sampling.metric import (
    Shape,
    apply,
    draw,
    from_hessian,
    from_points,
    from_secants,
)
from asyncqn.algorithms.sampling.step_size import first_constant, fit_constant, step_for
from asyncqn.algorithms.sampling.target import Target
from asyncqn.algorithms.sampling.trajectory import trajectory
from asyncqn.checks import mixing
from asyncqn.kernels.metric import kick_and_drift
from tests.posterior_models import Model, gaussian, on_a_grid


def dense(metric: np.ndarray) -> np.ndarray:
    """H, column by column."""
    return np.stack([apply(metric, e) for e in np.eye(metric.shape[1])], axis=1)


def spread(metric: np.ndarray) -> np.ndarray:
    """The covariance of `draw`, from its columns: draws are linear in the normals."""
    columns = np.stack(
        [draw(metric, e) for e in np.eye(Shape(*metric.shape).normals)], axis=1
    )
    return columns @ columns.T


def random_precision(dim: int, rng: np.random.Generator) -> np.ndarray:
    A = rng.standard_normal((dim, dim))
    scale = 10.0 ** rng.uniform(-2.0, 2.0, dim)
    return (A @ A.T + 0.1 * np.eye(dim)) * np.multiply.outer(scale, scale)


@pytest.mark.parametrize("dim", [1, 2, 7, 30])
def test_the_metric_of_points_is_exact_on_a_quadratic_and_solves_its_equation(
    dim: int,
) -> None:
    rng = np.random.default_rng(dim)
    P = random_precision(dim, rng)
    S = rng.standard_normal((2 * dim + 3, dim)) / np.sqrt(np.diag(P))
    fitted = from_points(S, S @ P)
    assert fitted is not None
    H = dense(fitted.metric)
    off = P @ H - np.eye(dim)
    assert np.abs(off).max() < 1e-6 * np.linalg.cond(P)
    np.testing.assert_allclose(
        spread(fitted.metric), H, rtol=1e-9, atol=1e-12 * np.abs(H).max()
    )
    bent = np.tanh(S * np.sqrt(np.diag(P))) * np.sqrt(
        np.diag(P)
    )  # no quadratic: H (Y'Y) H = S'S still
    H = dense(from_points(S, bent).metric)  # type: ignore[union-attr]
    np.testing.assert_allclose(H @ (bent.T @ bent) @ H, S.T @ S, rtol=1e-6)


def test_points_that_do_not_span_the_space_give_no_metric() -> None:
    rng = np.random.default_rng(0)
    S = rng.standard_normal((20, 5))
    assert from_points(S[:6], S[:6]) is None
    flat = S * np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    assert from_points(flat, S) is None
    S[:, 4] = S[:, 3]
    assert from_points(S, S) is None


def test_the_low_rank_metric_takes_its_secants_and_is_positive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, dim, r = np.random.default_rng(1), 40, 5
    monkeypatch.setattr(metrics, "RANK", r)
    P, S = random_precision(dim, rng), rng.standard_normal((r, dim))
    for scalar in (False, True):
        metric = from_secants(S, S @ P, Shape(2 * r + 1, dim), scalar=scalar)
        assert metric is not None
        H = dense(metric)
        np.testing.assert_allclose(H, H.T, rtol=1e-9, atol=1e-9 * np.abs(H).max())
        assert np.linalg.eigvalsh(H).min() > 0.0
        np.testing.assert_allclose(S @ P @ H, S, rtol=1e-6, atol=1e-7)  # H y = s
        np.testing.assert_allclose(
            spread(metric), H, rtol=1e-8, atol=1e-9 * np.abs(H).max()
        )


@pytest.mark.parametrize("dim", [300, 3000])
def test_the_width_that_a_low_rank_metric_leaves_is_seen_from_few_draws(
    dim: int,
) -> None:
    """60 draws of eight chains; the exact value is (tr (CH^-1)^2 / tr CH^-1)^1/2 with D for H."""
    rng, chains = np.random.default_rng(dim), np.arange(60) % 8
    for condition in (1.0, 100.0):
        sd = np.geomspace(1.0, np.sqrt(condition), dim)
        S = sd * rng.standard_normal((60, dim))
        S -= S.mean(axis=0)
        flat = np.zeros((2 * metrics.RANK + 1, dim))
        flat[0] = 1.0
        exact = math.sqrt((sd**4).sum() / (sd**2).sum())
        # Of 1,500 products the standard deviation is known to about 2 %.
        assert metrics.unresolved_width(flat, S, chains) == pytest.approx(
            exact, rel=0.08
        )
    metric = from_secants(S, S / sd**2, Shape(*flat.shape))
    assert metric is not None
    np.testing.assert_allclose(
        metrics.unresolved_width(metric, S, chains), 1.0, rtol=0.08
    )  # D is exact
    X = rng.standard_normal((3, dim))
    back = np.stack([apply(metric, row) for row in metrics.solve(metric, X)])
    np.testing.assert_allclose(back, X, atol=1e-8)
    assert (
        metrics.unresolved_width(flat, S, np.zeros(60, int)) == 1.0
    )  # one chain says nothing


def test_the_metric_of_a_hessian_is_its_inverse_and_positive_where_that_is_not() -> (
    None
):
    rng = np.random.default_rng(2)
    P = random_precision(5, rng)
    factor, log_det = from_hessian(P)
    np.testing.assert_allclose(factor @ factor.T @ P, np.eye(5), atol=1e-6)
    assert log_det == pytest.approx(-np.linalg.slogdet(P)[1])
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    factor, log_det = from_hessian(Q @ np.diag([100.0, 4.0, -1.0, 0.01]) @ Q.T)
    assert np.linalg.eigvalsh(factor @ factor.T).min() > 0.0
    assert log_det == pytest.approx(math.log(0.25))
    factor, _ = from_hessian(np.diag([4.0, -1.0]))
    np.testing.assert_allclose(factor @ factor.T, np.diag([0.25, 1.0]))
    assert (from_hessian(np.zeros((2, 2)))[0] == np.eye(2)).all()


def test_leapfrog_is_reversible_and_its_energy_is_that_of_the_inverse_metric() -> None:
    rng, model = np.random.default_rng(3), gaussian(6)
    target = Target(model, np.float64)
    factor = rng.standard_normal((6, 6)) * 0.02  # a wrong metric
    x, g = model.mean + model.sd, np.empty(6)
    value = target.value_and_grad(x, g)
    z = rng.standard_normal(6)
    end = trajectory(target, x, g, value, factor, 0.05, 7, z)
    v = factor @ z
    H = factor @ factor.T
    y, g_y = x.copy(), g.copy()
    for _ in range(7):
        v = v - 0.025 * H @ g_y
        y = y + 0.05 * v
        model.grad(y, None, g_y)
        v = v - 0.025 * H @ g_y
    np.testing.assert_allclose(end.x, y, rtol=1e-9)
    kinetic = 0.5 * v @ np.linalg.solve(H, v) - 0.5 * z @ z
    assert end.acceptance == pytest.approx(
        min(1.0, math.exp(value - model.value(y) - kinetic)), rel=1e-6
    )
    back = trajectory(
        target, end.x, end.g, end.value, factor, 0.05, 7, np.linalg.solve(factor, -v)
    )
    np.testing.assert_allclose(back.x, x, rtol=1e-6)


@pytest.mark.parametrize("dim", [1, 3, 17, 1000])
def test_a_leapfrog_step_has_the_bits_of_its_formula_and_stops_where_the_gradient_does(
    dim: int,
) -> None:
    g, Hg, x, v, w = np.random.default_rng(dim).standard_normal((5, dim))
    w_1, v_1 = w + 0.5 * g, v - (0.5 * 0.3) * Hg
    x_1 = x + 0.3 * v_1
    assert kick_and_drift(0.3, 0.5, True, g, Hg, x, v, w)
    g[-1] = np.nan
    assert not kick_and_drift(0.3, 0.5, True, g, Hg, x, v, w)
    assert [part.tobytes() for part in (x, v, w)] == [
        part.tobytes() for part in (x_1, v_1, w_1)
    ]


def test_a_trajectory_makes_as_many_gradients_wherever_it_goes() -> None:
    cliff = Model(
        lambda t: (0.5 * t @ t, t) if abs(t[0]) < 2.0 else (np.inf, t * np.nan), 2
    )
    counts, divergent = set(), set()
    for seed in range(40):
        target = Target(cliff, np.float64)
        x, g = np.ones(2), np.empty(2)
        value = target.value_and_grad(x, g)
        z = np.random.default_rng(seed).standard_normal(2)
        end = trajectory(target, x, g, value, np.eye(2), 0.5, 6, z)
        assert np.isfinite(end.x).all()
        counts.add(target.gradients)
        divergent.add(end.divergent)
    assert counts == {7}
    assert divergent == {False, True}


@pytest.mark.parametrize(
    "factor", [np.eye(2), np.array([[0.3, 0.0], [1.0, 2.0]])], ids=["unit", "wrong"]
)
def test_a_kernel_keeps_the_posterior_whatever_its_metric(factor: np.ndarray) -> None:
    """One trajectory from each of many exact draws: their law stays, to within its Monte-Carlo error."""

    def banana(t: np.ndarray) -> tuple[float, np.ndarray]:
        off = t[1] - t[0] ** 2
        return 0.5 * t[0] ** 2 + 0.5 * off**2, np.array([t[0] - 2.0 * t[0] * off, off])

    bent = Model(banana, 2)
    rng, n = np.random.default_rng(4), 4000
    draws = rng.standard_normal((n, 2))
    draws[:, 1] += draws[:, 0] ** 2
    target, g, moved = Target(bent, np.float64), np.empty(2), 0
    for i in range(n):
        value = target.value_and_grad(draws[i], g)
        end = trajectory(
            target, draws[i], g, value, factor, 0.4, 3, rng.standard_normal(2)
        )
        if rng.uniform() < end.acceptance:
            draws[i], moved = end.x, moved + 1
    assert 0.2 * n < moved < 0.98 * n  # the Metropolis test decides something
    for statistic, exact, sd in (
        (draws[:, 0], 0.0, 1.0),
        (draws[:, 1], 1.0, math.sqrt(3.0)),
        (draws[:, 0] ** 2, 1.0, math.sqrt(2.0)),
        (draws[:, 0] ** 2 * draws[:, 1], 3.0, math.sqrt(105.0 + 3.0 - 9.0)),
    ):
        assert abs(statistic.mean() - exact) < 4.5 * sd / math.sqrt(n)


def test_the_model_of_acceptance_finds_the_step_that_made_its_data() -> None:
    rng, c = np.random.default_rng(5), 3.0
    h = rng.uniform(0.2, 1.0, 4000)
    seen = np.array([math.erfc(math.sqrt(c) * x * x / math.sqrt(8.0)) for x in h])
    assert fit_constant(h, seen, 30.0, 0.8) == pytest.approx(c, rel=0.05)
    step = step_for(c, 0.8)
    assert math.erfc(math.sqrt(c) * step * step / math.sqrt(8.0)) == pytest.approx(0.8)
    shorter = fit_constant(np.full(20, 0.5), np.zeros(20), first_constant(4), 0.8)
    assert step_for(shorter, 0.8) < 0.5 * step_for(first_constant(4), 0.8)


def autocorrelated(seed: int, n: int, chains: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rho, noise = rng.uniform(-0.7, 0.98), rng.standard_normal((chains, n, 2))
    x = np.zeros((chains, n, 2))
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + noise[:, t]
    x[:, ::4] = np.round(x[:, ::4], 1)  # ties
    x[0] += rng.uniform(0.0, 0.5)
    return x


@pytest.mark.parametrize("seed", range(8))
def test_rhat_and_ess_are_those_of_arviz_for_chains_of_one_length(seed: int) -> None:
    from arviz_stats.base import array_stats

    x = autocorrelated(seed, 40 + 37 * seed)
    np.testing.assert_allclose(
        mixing.rhat(list(x)), array_stats.rhat(x, chain_axis=0, draw_axis=1)
    )
    np.testing.assert_allclose(
        mixing.ess(list(x)), array_stats.ess(x, chain_axis=0, draw_axis=1)
    )
    mean = array_stats.ess(x, chain_axis=0, draw_axis=1, method="mean")
    np.testing.assert_allclose(mixing.ess_of_mean(list(x)), mean)


def test_chains_of_unequal_length_count_by_their_draws() -> None:
    x = autocorrelated(3, 4000, 4)
    whole, cut = mixing.ess(list(x)), mixing.ess([x[0], x[1], x[2][:2000], x[3][:30]])
    assert (cut < whole).all()
    assert (cut > 0.45 * whole).all()
    apart = [x[0], x[1][:500] + 50.0]
    assert (mixing.rhat(apart) > 1.1).all()


def test_the_grid_that_other_tests_compare_with_is_right_on_a_gaussian() -> None:
    axes = [np.linspace(-6.0, 6.0, 61)] * 2
    mean, sd = on_a_grid(lambda t: 0.5 * t @ t, axes)
    np.testing.assert_allclose([*mean, *sd], [0.0, 0.0, 1.0, 1.0], atol=1e-6)
