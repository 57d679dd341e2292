"""Small posteriors, written as functions that return U and its gradient, for the tests of the sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.sampling.target import Target
from asyncqn.algorithms.sampling.trajectory import State


class Model:
    """A problem of one data point from a function."""

    n_data = 1

    def __init__(
        self, function: Callable[[Any], tuple[float, Any]], dim: int, **facts: Any
    ) -> None:
        self.function, self.dim = function, dim
        self.__dict__.update(facts)

    def value(self, theta: Any) -> float:
        return float(self.function(theta)[0])

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        out[:] = self.function(theta)[1]


def start_at(target: Target, x: np.ndarray) -> State:
    """The state of a chain at x."""
    g = np.empty(x.size)
    return State(x.copy(), g, target.value_and_grad(x, g))


def gaussian(dim: int, seed: int = 0) -> Model:
    """Correlated, with scales from 0.01 to 100."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((dim, dim))
    scale = 10.0 ** rng.uniform(-2.0, 2.0, dim)
    P = (A @ A.T / dim + 0.05 * np.eye(dim)) * np.multiply.outer(scale, scale)
    mean = 3.0 * rng.standard_normal(dim) / scale

    def function(theta: Any) -> tuple[float, Any]:
        g = P @ (theta - mean)
        return 0.5 * (theta - mean) @ g, g

    return Model(function, dim, mean=mean, sd=np.sqrt(np.diag(np.linalg.inv(P))))


def beside_a_unit_gaussian(
    centre: Any, scale: float = 1.0, share: float = 0.5
) -> Model:
    """A unit Gaussian at 0 and one of standard deviation `scale` at `centre`, which holds `share`."""
    dim = len(centre)

    def function(theta: Any) -> tuple[float, Any]:
        away = theta - centre
        a = np.log(share) - dim * np.log(scale) - 0.5 * (away @ away) / scale**2
        b = np.log(1.0 - share) - 0.5 * theta @ theta
        total = np.logaddexp(a, b)
        weight = np.exp(a - total)
        return -total, weight * away / scale**2 + (1.0 - weight) * theta

    return Model(function, dim)


def two_modes(separation: float = 8.0, dim: int = 2, share: float = 0.3) -> Model:
    """Two unit Gaussians around 0, of which the right one holds `share`."""
    shifted = beside_a_unit_gaussian(np.full(dim, separation), share=share)
    return Model(lambda theta: shifted.function(theta + 0.5 * separation), dim)


def funnel(k: float) -> Model:
    """theta[0] ~ N(0, 1), and two more with standard deviation exp(-k theta[0])."""

    def function(theta: Any) -> tuple[float, Any]:
        steepness = np.exp(2.0 * k * theta[0])
        q, g = steepness * (theta[1:] @ theta[1:]), steepness * theta
        g[0] = theta[0] + k * q - 2.0 * k
        return 0.5 * (theta[0] ** 2 + q) - 2.0 * k * theta[0], g

    return Model(function, 3)


def hierarchical(groups: int = 6, seed: int = 0) -> Model:
    """A non-centred hierarchical model: eta_j, mu, log tau with y_j ~ N(mu + tau eta_j, s_j)."""
    rng = np.random.default_rng(seed)
    y, s = 5.0 + 6.0 * rng.standard_normal(groups), rng.uniform(4.0, 8.0, groups)

    def function(theta: Any) -> tuple[float, Any]:
        eta, mu, log_tau = theta[:groups], theta[groups], theta[groups + 1]
        tau = np.exp(log_tau)
        off = mu + tau * eta - y
        r, wide = off / s**2, (tau / 5.0) ** 2
        U = 0.5 * (off @ r + eta @ eta + (mu / 5.0) ** 2) + np.log1p(wide) - log_tau
        g = np.empty(groups + 2)
        g[:groups], g[groups] = tau * r + eta, r.sum() + mu / 25.0
        g[groups + 1] = tau * (r @ eta) + 2.0 * wide / (1.0 + wide) - 1.0
        return U, g

    return Model(function, groups + 2, y=y, s=s)


def centred_schools() -> aq.Constrained:
    """The textbook centred eight schools, whose density has no mode: it grows without end as tau falls."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def function(phi: Any) -> tuple[float, Any]:
        mu, tau, effects = phi[0], phi[1], phi[2:]
        away = (effects - mu) / tau**2
        residual = (effects - y) / sigma**2
        square = away @ (effects - mu)
        value = 0.5 * (mu / 5.0) ** 2 + np.log1p((tau / 5.0) ** 2)
        value += 8.0 * np.log(tau) + 0.5 * square + 0.5 * residual @ (effects - y)
        scale = 2.0 * tau / (25.0 + tau**2) + (8.0 - square) / tau
        return value, np.array([mu / 25.0 - away.sum(), scale, *(away + residual)])

    return aq.Constrained(
        Model(function, 10),
        [aq.Bounded("mu"), aq.Bounded("tau", low=0.0), aq.Bounded("theta", 8)],
    )


def on_a_grid(value: Callable[[Any], float], axes: list[Any]) -> tuple[Any, Any]:
    """The mean and the standard deviation of each parameter, by summation over a grid."""
    mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    U = np.array([value(theta) for theta in mesh])
    weight = np.exp(U.min() - U)
    weight /= weight.sum()
    mean = weight @ mesh
    return mean, np.sqrt(weight @ (mesh - mean) ** 2)
