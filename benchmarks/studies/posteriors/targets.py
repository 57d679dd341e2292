"""Posteriors with necks, bends and heavy tails, as JAX log densities with the moments that are known.

`CHOSEN_ON` are those on which constants of the sampler were chosen; `JUDGED_ON` those on which it is judged.
`reference` says where moments come from: a closed form, a grid, or a long run of NUTS on another parametrization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

jax.config.update("jax_enable_x64", True)
# Gradients here take microseconds: a handover to another thread would take longer than most of them.
jax.config.update("jax_cpu_enable_async_dispatch", False)

Array = npt.NDArray[np.float64]


class Hard(NamedTuple):
    """A posterior of `dim` real parameters.

    draws: exact or reference draws (rows), where moments have no closed form; `measured` maps draws to the
    quantities whose moments are compared.
    """

    dim: int
    log_density: Callable[[Any], Any]
    mean: Array | None = None
    sd: Array | None = None
    draws: Callable[[int], Array] | None = None
    easy: Callable[[Any], Any] | None = None
    """Where given, maps parameters in which NUTS is right, with `easy_density`, to those of the posterior."""
    easy_density: Callable[[Any], Any] | None = None
    measured: Callable[[Array], Array] = lambda draws: draws


def funnel(scale: float, count: int) -> Hard:
    """Neal's funnel: v ~ N(0, scale^2) and `count` numbers x ~ N(0, exp(v))."""

    def log_density(theta: Any) -> Any:
        v, x = theta[0], theta[1:]
        return (
            -0.5 * (v / scale) ** 2 - 0.5 * count * v - 0.5 * jnp.exp(-v) * (x**2).sum()
        )

    sd = np.full(count + 1, np.exp(0.25 * scale**2))
    sd[0] = scale
    return Hard(count + 1, log_density, np.zeros(count + 1), sd)


def banana(width: float, bend: float) -> Hard:
    """x ~ N(0, width^2) and y ~ N(bend (x^2 - width^2), 1)."""

    def log_density(theta: Any) -> Any:
        x, y = theta
        return -0.5 * (x / width) ** 2 - 0.5 * (y - bend * (x**2 - width**2)) ** 2

    sd = np.array([width, np.sqrt(1.0 + 2.0 * bend**2 * width**4)])
    return Hard(2, log_density, np.zeros(2), sd)


def student(freedom: float, dim: int) -> Hard:
    """Independent Student-t coordinates; asinh of them is measured, for two degrees of freedom have no variance."""

    def log_density(theta: Any) -> Any:
        return -0.5 * (freedom + 1.0) * jnp.log1p(theta**2 / freedom).sum()

    x = np.sinh(np.linspace(-20.0, 20.0, 40001))
    weight = np.cosh(np.arcsinh(x)) * (1.0 + x**2 / freedom) ** (-0.5 * (freedom + 1))
    sd = np.sqrt(weight @ np.arcsinh(x) ** 2 / weight.sum())
    return Hard(dim, log_density, np.zeros(dim), np.full(dim, sd), measured=np.arcsinh)


def groups(means: Array, errors: Array) -> Hard:
    """Group means y_j ~ N(theta_j, error_j^2), theta_j ~ N(mu, tau^2), centred; theta = (mu, log tau, theta_j).

    mu ~ N(0, 5^2) and tau ~ half-Cauchy(5), as in the eight schools of posteriordb.
    """

    def log_density(theta: Any) -> Any:
        mu, log_tau = theta[:2]
        effects = theta[2:]
        prior = -0.5 * (mu / 5.0) ** 2 - jnp.log1p(jnp.exp(2 * log_tau) / 25) + log_tau
        away = (effects - mu) * jnp.exp(-log_tau)
        return (
            prior
            - means.size * log_tau
            - 0.5 * (away**2).sum()
            - 0.5 * (((effects - means) / errors) ** 2).sum()
        )

    mean, sd = _moments_of_groups(means, errors)
    return Hard(means.size + 2, log_density, mean, sd)


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


def horseshoe(seed: int, n: int = 40, p: int = 8) -> Hard:
    """Regression with noise of sd 1 under a horseshoe, centred; theta = (log tau, log lambda_j, beta_j).

    tau, lambda_j ~ half-Cauchy(1) and beta_j ~ N(0, tau^2 lambda_j^2).  asinh of beta is measured.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    signal = np.zeros(p)
    signal[:2] = 2.0, -1.0
    y = X @ signal + rng.standard_normal(n)

    def prior(logs: Any) -> Any:
        return (logs - jnp.log1p(jnp.exp(2.0 * logs))).sum()

    def fit(beta: Any) -> Any:
        return -0.5 * ((y - X @ beta) ** 2).sum()

    def log_density(theta: Any) -> Any:
        scale, beta = theta[0] + theta[1 : p + 1], theta[p + 1 :]
        away = -0.5 * (beta**2 * jnp.exp(-2.0 * scale)).sum() - scale.sum()
        return prior(theta[: p + 1]) + away + fit(beta)

    def easy(z: Any) -> Any:
        return jnp.append(z[: p + 1], z[p + 1 :] * jnp.exp(z[0] + z[1 : p + 1]))

    def easy_density(z: Any) -> Any:
        return prior(z[: p + 1]) - 0.5 * (z[p + 1 :] ** 2).sum() + fit(easy(z)[p + 1 :])

    return Hard(2 * p + 1, log_density, easy=easy, easy_density=easy_density)


def chances(seed: int, groups: int = 12) -> Hard:
    """Successes of groups of 5 to 30 trials with logits theta_j ~ N(mu, tau^2), centred; (mu, log tau, theta_j).

    mu ~ N(0, 2^2) and tau ~ half-normal(1).
    """
    rng = np.random.default_rng(seed)
    trials = rng.integers(5, 31, groups)
    successes = rng.binomial(
        trials, 1.0 / (1.0 + np.exp(1.0 + 0.3 * rng.standard_normal(groups)))
    )

    def shared(theta: Any) -> Any:
        mu, log_tau = theta[:2]
        effects = theta[2:]
        prior = -0.5 * (mu / 2.0) ** 2 + log_tau - 0.5 * jnp.exp(2.0 * log_tau)
        return (
            prior + (successes * effects - trials * jnp.logaddexp(0.0, effects)).sum()
        )

    def log_density(theta: Any) -> Any:
        away = (theta[2:] - theta[0]) * jnp.exp(-theta[1])
        return shared(theta) - groups * theta[1] - 0.5 * (away**2).sum()

    def easy(z: Any) -> Any:
        return jnp.append(z[:2], z[0] + jnp.exp(z[1]) * z[2:])

    def easy_density(z: Any) -> Any:
        return shared(easy(z)) - 0.5 * (z[2:] ** 2).sum()

    return Hard(groups + 2, log_density, easy=easy, easy_density=easy_density)


def volatility(seed: int, n: int = 30) -> Hard:
    """Stochastic volatility of n days, centred; theta = (mu, logit phi, log sigma, h_1, ..., h_n).

    h is an autoregressive process around mu, and returns have the variances exp(h).  mu ~ N(0, 1), phi ~ U(0, 1),
    sigma ~ half-normal(0.5).
    """
    rng = np.random.default_rng(seed)
    h = np.zeros(n)
    for t in range(1, n):
        h[t] = 0.9 * h[t - 1] + 0.3 * rng.standard_normal()
    returns = np.exp(0.5 * h) * rng.standard_normal(n)

    def shared(theta: Any) -> Any:
        mu, logit, log_sigma = theta[:3]
        h = theta[3:]
        prior = -0.5 * mu**2 - jnp.logaddexp(0.0, logit) - jnp.logaddexp(0.0, -logit)
        prior += log_sigma - 0.5 * jnp.exp(2.0 * log_sigma) / 0.25
        return prior - 0.5 * (h + returns**2 * jnp.exp(-h)).sum()

    def innovations(theta: Any) -> Any:
        mu, h = theta[0], theta[3:]
        phi = jax.nn.sigmoid(theta[1])
        first = (h[:1] - mu) * jnp.sqrt(1.0 - phi**2)
        later = h[1:] - mu - phi * (h[:-1] - mu)
        return jnp.append(first, later) * jnp.exp(-theta[2])

    def log_density(theta: Any) -> Any:
        volume = 0.5 * jnp.log1p(-(jax.nn.sigmoid(theta[1]) ** 2)) - n * theta[2]
        return shared(theta) + volume - 0.5 * (innovations(theta) ** 2).sum()

    def easy(z: Any) -> Any:
        mu = z[0]
        phi = jax.nn.sigmoid(z[1])
        e = jnp.exp(z[2]) * z[3:]
        first = e[0] / jnp.sqrt(1.0 - phi**2)

        def day(before: Any, e_t: Any) -> Any:
            now = phi * before + e_t
            return now, now

        _, later = jax.lax.scan(day, first, e[1:])
        return jnp.concatenate([z[:3], mu + jnp.append(first, later)])

    def easy_density(z: Any) -> Any:
        return shared(easy(z)) - 0.5 * (z[3:] ** 2).sum()

    return Hard(n + 3, log_density, easy=easy, easy_density=easy_density)


def rosenbrock(dim: int) -> Hard:
    """x_1 ~ N(0, 1) and x_j ~ N(x_{j-1}^2, 0.3^2): a bend of a bend."""

    def log_density(theta: Any) -> Any:
        away = (theta[1:] - theta[:-1] ** 2) / 0.3
        return -0.5 * theta[0] ** 2 - 0.5 * (away**2).sum()

    def draws(seed: int) -> Array:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((2_000_000, dim))
        for j in range(1, dim):
            x[:, j] = x[:, j - 1] ** 2 + 0.3 * x[:, j]
        return x

    return Hard(dim, log_density, draws=draws)


def counties(count: int, seed: int) -> tuple[Array, Array]:
    """Means of groups of 1 to 20 rows, as those of radon measurements in counties."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 21, count)
    effects = 1.3 + 0.3 * rng.standard_normal(count)
    errors = 0.75 / np.sqrt(rows)
    return effects + errors * rng.standard_normal(count), errors


EIGHT_SCHOOLS = (
    np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
)
FIVE = (np.array([1.0, 3.0, 2.5, -1.0, 0.5]), np.array([1.0, 0.5, 2.0, 1.5, 1.0]))


def alike(count: int) -> tuple[Array, Array]:
    """Groups whose means differ by no more than their errors."""
    rng = np.random.default_rng(7)
    return 2.0 + rng.standard_normal(count), np.ones(count)


CHOSEN_ON: dict[str, Callable[[], Hard]] = {
    "funnel of 4": lambda: funnel(1.5, 3),
    "steep funnel of 7": lambda: funnel(2.0, 6),
    "five groups": lambda: groups(*FIVE),
    "15 groups that are alike": lambda: groups(*alike(15)),
    "flat banana": lambda: banana(3.0, 0.2),
    "Student-t(5)": lambda: student(5.0, 4),
}
JUDGED_ON: dict[str, Callable[[], Hard]] = {
    "eight schools, centred": lambda: groups(*EIGHT_SCHOOLS),
    "funnel of 10": lambda: funnel(3.0, 9),
    "banana": lambda: banana(10.0, 0.03),
    "horseshoe regression": lambda: horseshoe(0),
    "Student-t(2)": lambda: student(2.0, 5),
    "27 counties, centred": lambda: groups(*counties(27, 0)),
    "12 chances, centred": lambda: chances(1),
    "volatility, centred": lambda: volatility(2),
    "Rosenbrock of 3": lambda: rosenbrock(3),
}
