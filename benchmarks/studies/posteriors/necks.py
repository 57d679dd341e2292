"""Posteriors with necks, bends and heavy tails: U and its gradient, with the moments that are known exactly.

`CHOSEN_ON` are those on which constants of the sampler may be chosen; `JUDGED_ON` those on which it is judged.
Moments of a hierarchical normal model come from integration over its two scale parameters on a grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Neck:
    """A posterior as a problem of one data point.

    mean, sd: exact moments of the coordinates; NaN where a moment does not exist.
    """

    dim: int
    u_and_grad: Callable[[Array], tuple[float, Array]]
    mean: Array
    sd: Array
    n_data: int = 1

    def value(self, theta: Array) -> float:
        return float(self.u_and_grad(theta)[0])

    def grad(self, theta: Array, rows: object, out: Array) -> None:
        out[:] = self.u_and_grad(theta)[1]


def funnel(scale: float, count: int) -> Neck:
    """Neal's funnel: v ~ N(0, scale^2) and `count` numbers x ~ N(0, exp(v))."""

    def u_and_grad(theta: Array) -> tuple[float, Array]:
        v, x = theta[0], theta[1:]
        precision = np.exp(-v)
        square = float(x @ x)
        value = 0.5 * v * v / scale**2 + 0.5 * count * v + 0.5 * precision * square
        g = np.empty(theta.size)
        g[0] = v / scale**2 + 0.5 * count - 0.5 * precision * square
        g[1:] = precision * x
        return value, g

    sd = np.full(count + 1, np.exp(0.25 * scale**2))
    sd[0] = scale
    return Neck(count + 1, u_and_grad, np.zeros(count + 1), sd)


def banana(width: float, bend: float) -> Neck:
    """x ~ N(0, width^2) and y ~ N(bend (x^2 - width^2), 1)."""

    def u_and_grad(theta: Array) -> tuple[float, Array]:
        x, y = theta
        away = y - bend * (x * x - width**2)
        g = np.array([x / width**2 - 2.0 * bend * x * away, away])
        return 0.5 * (x / width) ** 2 + 0.5 * away**2, g

    sd = np.array([width, np.sqrt(1.0 + 2.0 * bend**2 * width**4)])
    return Neck(2, u_and_grad, np.zeros(2), sd)


def student(freedom: float, dim: int) -> Neck:
    """Independent Student-t coordinates."""

    def u_and_grad(theta: Array) -> tuple[float, Array]:
        square = theta**2 / freedom
        value = 0.5 * (freedom + 1.0) * np.log1p(square).sum()
        return value, (freedom + 1.0) * theta / freedom / (1.0 + square)

    sd = np.sqrt(freedom / (freedom - 2.0)) if freedom > 2.0 else np.nan
    return Neck(dim, u_and_grad, np.zeros(dim), np.full(dim, sd))


def groups(means: Array, errors: Array) -> Neck:
    """Group means y_j ~ N(theta_j, error_j^2), theta_j ~ N(mu, tau^2), centred; theta = (mu, log tau, theta_j).

    mu ~ N(0, 5^2) and tau ~ half-Cauchy(5), as in the eight schools of posteriordb.
    """
    weights = errors**-2.0

    def u_and_grad(theta: Array) -> tuple[float, Array]:
        mu, log_tau, effects = theta[0], theta[1], theta[2:]
        tau = np.exp(log_tau)
        ratio = (tau / 5.0) ** 2
        residual = (effects - means) * weights
        away = (effects - mu) / tau**2
        square = float(away @ (effects - mu))
        value = 0.5 * (mu / 5.0) ** 2 + np.log1p(ratio) - log_tau
        value += means.size * log_tau + 0.5 * square
        value += 0.5 * float(residual @ (effects - means))
        g = np.empty(theta.size)
        g[0] = mu / 25.0 - away.sum()
        g[1] = 2.0 * ratio / (1.0 + ratio) - 1.0 + means.size - square
        g[2:] = away + residual
        return value, g

    mean, sd = _moments_of_groups(means, errors)
    return Neck(means.size + 2, u_and_grad, mean, sd)


def _moments_of_groups(means: Array, errors: Array) -> tuple[Array, Array]:
    """Integrate over a grid of log tau; given tau everything is normal."""
    log_tau = np.linspace(-14.0, 7.0, 4001)
    tau2 = np.exp(2.0 * log_tau)
    total = errors**2 + tau2[:, None]
    precision = 1.0 / 25.0 + (1.0 / total).sum(axis=1)
    centre = (means / total).sum(axis=1) / precision
    log_weight = log_tau - np.log1p(tau2 / 25.0) - 0.5 * np.log(precision)
    log_weight -= 0.5 * np.log(total).sum(axis=1)
    log_weight -= 0.5 * (means**2 / total).sum(axis=1) - 0.5 * precision * centre**2
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    shrink = tau2[:, None] / total
    first = shrink * means + (1.0 - shrink) * centre[:, None]
    variance = shrink * errors**2 + (1.0 - shrink) ** 2 / precision[:, None]
    columns = np.column_stack([centre, log_tau, first])
    within = np.column_stack([1.0 / precision, np.zeros(log_tau.size), variance])
    mean = weight @ columns
    sd = np.sqrt(weight @ (within + (columns - mean) ** 2))
    return mean, sd


def ring(radius: float, width: float) -> Neck:
    """A ring in the plane: the distance from 0 is about N(radius, width^2)."""

    def u_and_grad(theta: Array) -> tuple[float, Array]:
        distance = np.sqrt(theta @ theta + 1e-12)
        away = (distance - radius) / width
        return 0.5 * away * away, away / width * theta / distance

    r = np.linspace(1e-6, radius + 12.0 * width, 20001)
    weight = r * np.exp(-0.5 * ((r - radius) / width) ** 2)
    sd = np.sqrt(0.5 * (weight @ r**2) / weight.sum())
    return Neck(2, u_and_grad, np.zeros(2), np.full(2, sd))


EIGHT_SCHOOLS = (
    np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
)


def counties(count: int, seed: int) -> tuple[Array, Array]:
    """Means of groups of 1 to 20 rows, as those of radon measurements in counties."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 21, count)
    effects = 1.3 + 0.3 * rng.standard_normal(count)
    errors = 0.75 / np.sqrt(rows)
    return effects + errors * rng.standard_normal(count), errors


CHOSEN_ON: dict[str, Callable[[], Neck]] = {
    "funnel of 3": lambda: funnel(1.5, 3),
    "steep funnel of 6": lambda: funnel(2.0, 6),
    "five groups": lambda: groups(
        np.array([1.0, 3.0, 2.5, -1.0, 0.5]), np.array([1.0, 0.5, 2.0, 1.5, 1.0])
    ),
    "15 groups that are alike": lambda: groups(*_alike(15)),
    "flat banana": lambda: banana(3.0, 0.2),
    "Student-t(5)": lambda: student(5.0, 4),
}
JUDGED_ON: dict[str, Callable[[], Neck]] = {
    "eight schools, centred": lambda: groups(*EIGHT_SCHOOLS),
    "funnel of 9": lambda: funnel(3.0, 9),
    "banana": lambda: banana(10.0, 0.03),
    "Student-t(2)": lambda: student(2.0, 5),
    "27 counties, centred": lambda: groups(*counties(27, 0)),
    "ring": lambda: ring(4.0, 0.3),
    "funnel of 2, wide": lambda: funnel(3.0, 2),
    "60 counties, centred": lambda: groups(*counties(60, 1)),
}


def _alike(count: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    return 2.0 + rng.standard_normal(count), np.ones(count)
