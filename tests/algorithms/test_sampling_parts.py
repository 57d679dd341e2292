"""The parts of the sampler by themselves: metrics, trajectories, the model of acceptance, diagnostics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.algorithms.sampling.evidence import place_at
from asyncqn.algorithms.sampling.metric import (
    draw,
    from_hessian,
    from_points,
    metric_shape,
    squared_norm,
)
from asyncqn.algorithms.sampling.step_size import first_constant, fit_constant, step_for
from asyncqn.algorithms.sampling.target import Target
from asyncqn.algorithms.sampling.trajectory import trajectory
from asyncqn.checks import mixing
from tests.posterior_models import Model, gaussian, start_at


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
    S = rng.standard_normal((2 * dim + 12, dim)) / np.sqrt(np.diag(P))
    chains = np.arange(len(S)) % 4
    fitted = from_points(S, S @ P, chains)
    assert fitted is not None
    F = fitted.metric
    assert np.abs(P @ F @ F.T - np.eye(dim)).max() < 1e-6 * np.linalg.cond(P)
    g = rng.standard_normal(dim)
    assert squared_norm(F, g) == pytest.approx(g @ F @ F.T @ g)
    np.testing.assert_allclose(draw(F, g), F @ g)
    # No quadratic: H (Y'Y) H = S'S still.
    bent = np.tanh(S * np.sqrt(np.diag(P))) * np.sqrt(np.diag(P))
    F = from_points(S, bent, chains).metric  # type: ignore[union-attr]
    np.testing.assert_allclose(F @ F.T @ (bent.T @ bent) @ F @ F.T, S.T @ S, rtol=1e-6)


@pytest.mark.parametrize("dim", [300, 3000])
def test_a_long_theta_has_a_diagonal_metric_and_the_width_that_it_leaves(
    dim: int,
) -> None:
    """60 draws of eight chains; the exact width is (tr C^2 / tr C)^1/2 for the covariance C in units of H."""
    rng, chains = np.random.default_rng(dim), np.arange(60) % 8
    sd = np.geomspace(0.1, 10.0, dim)
    Z = rng.standard_normal((60, dim))
    Z -= Z.mean(axis=0)
    exact = from_points(sd * Z, Z / sd, chains)
    assert exact is not None
    assert exact.metric.shape == metric_shape(dim) == (1, dim)
    np.testing.assert_allclose(exact.metric[0], sd, rtol=1e-9)
    assert exact.width == pytest.approx(1.0, rel=0.08)
    # Of 1,500 products the standard deviation is known to about 2 %.
    flat = from_points(sd * Z, sd * Z, chains)
    assert flat is not None
    wide = np.sqrt((sd**4).sum() / (sd**2).sum())
    assert flat.width == pytest.approx(min(wide, 10.0), rel=0.08)
    lonely = from_points(sd * Z, sd * Z, np.zeros(60, int))
    assert lonely is not None
    assert lonely.width == 1.0
    model = Model(lambda t: (0.5 * ((t / sd) ** 2).sum(), t / sd**2), dim)
    place = place_at(Target(model, np.float64), np.zeros(dim))
    np.testing.assert_allclose(place.metric[0], sd, rtol=1e-6)
    assert place.evidence == pytest.approx(np.log(sd).sum(), abs=1e-6)


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
    start = start_at(target, model.mean + model.sd)
    z = rng.standard_normal(6)
    end = trajectory(target, start, factor, 0.05, 7, z)
    v = factor @ z
    H = factor @ factor.T
    y, g = start.x.copy(), start.g.copy()
    for _ in range(7):
        v = v - 0.025 * H @ g
        y = y + 0.05 * v
        model.grad(y, None, g)
        v = v - 0.025 * H @ g
    np.testing.assert_allclose(end.state.x, y, rtol=1e-9)
    kinetic = 0.5 * v @ np.linalg.solve(H, v) - 0.5 * z @ z
    exact = math.exp(start.value - model.value(y) - kinetic)
    assert end.acceptance == pytest.approx(min(1.0, exact), rel=1e-6)
    back = np.linalg.solve(factor, -v)
    again = trajectory(target, end.state, factor, 0.05, 7, back)
    np.testing.assert_allclose(again.state.x, start.x, rtol=1e-6)


def test_a_trajectory_makes_as_many_gradients_wherever_it_goes() -> None:
    def cliff(t: np.ndarray) -> tuple[float, np.ndarray]:
        return (0.5 * t @ t, t) if abs(t[0]) < 2.0 else (np.inf, t * np.nan)

    counts, divergent = set(), set()
    for seed in range(40):
        target = Target(Model(cliff, 2), np.float64)
        z = np.random.default_rng(seed).standard_normal(2)
        start = start_at(target, np.ones(2))
        end = trajectory(target, start, np.eye(2), 0.5, 6, z)
        assert np.isfinite(end.state.x).all()
        counts.add(target.gradients)
        divergent.add(end.divergent)
    assert counts == {7}
    assert divergent == {False, True}


def test_a_step_that_overflows_is_no_fault_of_the_problem() -> None:
    """Too long a step on a quartic ends at infinity; U itself is finite everywhere."""

    def function(t: np.ndarray) -> tuple[float, np.ndarray]:
        bend = t[1] - t[0] ** 2
        g = np.array([0.1 * (t[0] - 1.0) - 20.0 * t[0] * bend, 10.0 * bend])
        return 0.05 * (t[0] - 1.0) ** 2 + 5.0 * bend**2, g

    target = Target(Model(function, 2), np.float64)
    start = start_at(target, np.array([3.0, 9.0]))
    with np.errstate(all="ignore"):
        end = trajectory(target, start, np.eye(2), 1.0, 20, np.ones(2))
    assert end.divergent
    assert end.finite


@pytest.mark.parametrize(
    "factor", [np.eye(2), np.array([[0.3, 0.0], [1.0, 2.0]])], ids=["unit", "wrong"]
)
def test_a_kernel_keeps_the_posterior_whatever_its_metric(factor: np.ndarray) -> None:
    """One trajectory from each of many exact draws: their law stays, to within its Monte-Carlo error."""

    def banana(t: np.ndarray) -> tuple[float, np.ndarray]:
        off = t[1] - t[0] ** 2
        return 0.5 * t[0] ** 2 + 0.5 * off**2, np.array([t[0] - 2.0 * t[0] * off, off])

    rng, n = np.random.default_rng(4), 4000
    draws = rng.standard_normal((n, 2))
    draws[:, 1] += draws[:, 0] ** 2
    target = Target(Model(banana, 2), np.float64)
    moved = 0
    for x in draws:
        z = rng.standard_normal(2)
        end = trajectory(target, start_at(target, x), factor, 0.4, 3, z)
        if rng.uniform() < end.acceptance:
            x[...] = end.state.x
            moved += 1
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


def test_a_pair_whose_square_underflows_leaves_the_scale_of_a_search() -> None:
    """On tails that are nearly flat y'y is zero although s'y is not."""
    memory = PairMemory.empty(1, np.zeros(2), scale=2.0)
    memory.products[:, 0] = 1e-150, 1.0, 0.0
    memory.rescale()
    assert memory.scale[0] == 2.0


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
    np.testing.assert_allclose(mixing.ess(list(x), ranked=False), mean)


def test_chains_of_unequal_length_count_by_their_draws() -> None:
    x = autocorrelated(3, 4000, 4)
    whole, cut = mixing.ess(list(x)), mixing.ess([x[0], x[1], x[2][:2000], x[3][:30]])
    assert (cut < whole).all()
    assert (cut > 0.45 * whole).all()
    apart = [x[0], x[1][:500] + 50.0]
    assert (mixing.rhat(apart) > 1.1).all()
