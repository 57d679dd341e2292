"""Posteriors of posteriordb other than linear regressions, as log densities."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from benchmarks.studies.posteriors.density import (
    Density,
    cauchy,
    half_cauchy,
    normal,
    numbered,
)


def eight_schools(data: dict[str, Any]) -> Density:
    y, s = jnp.asarray(data["y"], float), jnp.asarray(data["sigma"], float)

    def log_density(t: Any) -> Any:
        effect, mu, tau = t[:8], t[8], jnp.exp(t[9])
        misfit = (y - mu - tau * effect) / s
        prior = normal(effect, 0.0, 1.0) + normal(mu, 0.0, 5.0) + cauchy(tau, 5.0)
        return prior - 0.5 * (misfit**2).sum() + t[9]

    def named(t: Any) -> dict[str, Any]:
        tau = jnp.exp(t[9])
        return {**numbered("theta", t[8] + tau * t[:8]), "mu": t[8], "tau": tau}

    return Density(10, log_density, named)


def mixture(data: dict[str, Any]) -> Density:
    y = jnp.asarray(data["y"])

    def parameters(t: Any) -> tuple[Any, Any, Any]:
        return (
            jnp.array([t[0], t[0] + jnp.exp(t[1])]),
            jnp.exp(t[2:4]),
            jax.nn.sigmoid(t[4]),
        )

    def log_density(t: Any) -> Any:
        mu, sigma, _ = parameters(t)
        parts = -0.5 * ((y[:, None] - mu) / sigma) ** 2 - jnp.log(sigma)
        weights = jnp.array([jax.nn.log_sigmoid(t[4]), jax.nn.log_sigmoid(-t[4])])
        prior = normal(mu, 0.0, 2.0) + normal(sigma, 0.0, 2.0) + 5.0 * weights.sum()
        return prior + logsumexp(parts + weights, axis=1).sum() + t[1] + t[2] + t[3]

    def named(t: Any) -> dict[str, Any]:
        mu, sigma, theta = parameters(t)
        return {**numbered("mu", mu), **numbered("sigma", sigma), "theta": theta}

    return Density(5, log_density, named)


def squared_exponential(x: Any, alpha: Any, rho: Any) -> Any:
    return alpha**2 * jnp.exp(-0.5 * ((x[:, None] - x[None, :]) / rho) ** 2)


def gamma_25_4(x: Any) -> Any:
    return 24.0 * jnp.log(x) - 4.0 * x


def gp_pois(data: dict[str, Any]) -> Density:
    x, k = jnp.asarray(data["x"], float), jnp.asarray(data["k"], float)
    n = len(x)

    def function(t: Any) -> Any:
        cov = squared_exponential(x, jnp.exp(t[1]), jnp.exp(t[0])) + 1e-10 * jnp.eye(n)
        return jnp.linalg.cholesky(cov) @ t[2:]

    def log_density(t: Any) -> Any:
        rho, alpha, f = jnp.exp(t[0]), jnp.exp(t[1]), function(t)
        prior = gamma_25_4(rho) + normal(alpha, 0.0, 2.0) + normal(t[2:], 0.0, 1.0)
        return prior + (k * f - jnp.exp(f)).sum() + t[0] + t[1]

    def named(t: Any) -> dict[str, Any]:
        return {
            "rho": jnp.exp(t[0]),
            "alpha": jnp.exp(t[1]),
            **numbered("f", function(t)),
        }

    return Density(n + 2, log_density, named)


def gp_regr(data: dict[str, Any]) -> Density:
    x, y = jnp.asarray(data["x"], float), jnp.asarray(data["y"], float)
    n = len(x)

    def log_density(t: Any) -> Any:
        rho, alpha, sigma = jnp.exp(t[0]), jnp.exp(t[1]), jnp.exp(t[2])
        L = jnp.linalg.cholesky(squared_exponential(x, alpha, rho) + sigma * jnp.eye(n))
        z = jax.scipy.linalg.solve_triangular(L, y, lower=True)
        prior = gamma_25_4(rho) + normal(alpha, 0.0, 2.0) + normal(sigma, 0.0, 1.0)
        return prior - 0.5 * z @ z - jnp.log(jnp.diag(L)).sum() + t.sum()

    return Density(
        3, log_density, lambda t: dict(zip(("rho", "alpha", "sigma"), jnp.exp(t)))
    )


def ark(data: dict[str, Any]) -> Density:
    K, y = data["K"], np.array(data["y"])
    lags = jnp.stack(
        [jnp.asarray(y[K - k : len(y) - k]) for k in range(1, K + 1)], axis=1
    )
    later = jnp.asarray(y[K:])

    def log_density(t: Any) -> Any:
        sigma = jnp.exp(t[K + 1])
        prior = normal(t[: K + 1], 0.0, 10.0) + half_cauchy(sigma)
        return prior + normal(later, t[0] + lags @ t[1 : K + 1], sigma) + t[K + 1]

    def named(t: Any) -> dict[str, Any]:
        return {
            "alpha": t[0],
            **numbered("beta", t[1 : K + 1]),
            "sigma": jnp.exp(t[K + 1]),
        }

    return Density(K + 2, log_density, named)


def arma(data: dict[str, Any]) -> Density:
    y = jnp.asarray(data["y"])

    def log_density(t: Any) -> Any:
        mu, phi, theta, sigma = t[0], t[1], t[2], jnp.exp(t[3])
        first = y[0] - (mu + phi * mu)

        def step(error: Any, pair: Any) -> Any:
            before, now = pair
            new = now - (mu + phi * before + theta * error)
            return new, new

        _, later = jax.lax.scan(step, first, (y[:-1], y[1:]))
        prior = (
            normal(mu, 0.0, 10.0)
            + normal(phi, 0.0, 2.0)
            + normal(theta, 0.0, 2.0)
            + half_cauchy(sigma)
        )
        return prior + normal(first, 0.0, sigma) + normal(later, 0.0, sigma) + t[3]

    return Density(
        4,
        log_density,
        lambda t: {"mu": t[0], "phi": t[1], "theta": t[2], "sigma": jnp.exp(t[3])},
    )


def garch(data: dict[str, Any]) -> Density:
    y, sigma1 = jnp.asarray(data["y"]), data["sigma1"]

    def parameters(t: Any) -> tuple[Any, Any, Any, Any]:
        alpha1 = jax.nn.sigmoid(t[2])
        return t[0], jnp.exp(t[1]), alpha1, (1.0 - alpha1) * jax.nn.sigmoid(t[3])

    def log_density(t: Any) -> Any:
        mu, alpha0, alpha1, beta1 = parameters(t)

        def step(variance: Any, before: Any) -> Any:
            new = alpha0 + alpha1 * (before - mu) ** 2 + beta1 * variance
            return new, new

        first = jnp.asarray(sigma1**2, float)
        _, later = jax.lax.scan(step, first, y[:-1])
        variance = jnp.concatenate([first[None], later])
        fit = -0.5 * ((y - mu) ** 2 / variance + jnp.log(variance)).sum()
        logit = sum(
            jax.nn.log_sigmoid(t[i]) + jax.nn.log_sigmoid(-t[i]) for i in (2, 3)
        )
        return fit + t[1] + logit + jnp.log1p(-alpha1)

    def named(t: Any) -> dict[str, Any]:
        return dict(zip(("mu", "alpha0", "alpha1", "beta1"), parameters(t)))

    return Density(4, log_density, named)


def log_forward(log_moves: Any, emission: Any) -> Any:
    """The log probability of all emissions (rows: times) of a hidden Markov chain with a flat start."""

    def step(gamma: Any, seen: Any) -> Any:
        return logsumexp(gamma[:, None] + log_moves, axis=0) + seen, None

    return logsumexp(jax.lax.scan(step, emission[0], emission[1:])[0])


def hmm(data: dict[str, Any]) -> Density:
    y = jnp.asarray(data["y"])

    def parameters(t: Any) -> tuple[Any, Any]:
        p = jax.nn.sigmoid(t[:2])
        first = jnp.exp(t[2])
        return jnp.stack([p, 1.0 - p], axis=1), jnp.array(
            [first, first + jnp.exp(t[3])]
        )

    def log_density(t: Any) -> Any:
        moves, mu = parameters(t)
        emission = -0.5 * (y[:, None] - mu) ** 2
        jacobian = (
            (jax.nn.log_sigmoid(t[:2]) + jax.nn.log_sigmoid(-t[:2])).sum() + t[2] + t[3]
        )
        prior = normal(mu[0], 3.0, 1.0) + normal(mu[1], 10.0, 1.0)
        return prior + log_forward(jnp.log(moves), emission) + jacobian

    def named(t: Any) -> dict[str, Any]:
        moves, mu = parameters(t)
        return {
            **numbered("theta1", moves[0]),
            **numbered("theta2", moves[1]),
            **numbered("mu", mu),
        }

    return Density(4, log_density, named)


def hmm_drive(data: dict[str, Any], *, exponential: bool) -> Density:
    """A chain of two states that emits two series; theta1, theta2 are rows of its transition matrix."""
    seen = jnp.stack([jnp.asarray(data["u"]), jnp.asarray(data["v"])], axis=1)[
        :, None, :
    ]
    alpha = jnp.asarray(data["alpha"], float)

    def parameters(t: Any) -> tuple[Any, Any]:
        log_stay, log_leave = jax.nn.log_sigmoid(t[:2]), jax.nn.log_sigmoid(-t[:2])
        log_moves = jnp.array(
            [[log_stay[0], log_leave[0]], [log_stay[1], log_leave[1]]]
        )
        first = jnp.exp(t[2:4]) if exponential else t[2:4]
        return log_moves, jnp.stack([first, first + jnp.exp(t[4:6])])  # rows: states

    def log_density(t: Any) -> Any:
        log_moves, level = parameters(t)
        if exponential:
            emission = (jnp.log(level) - level * seen).sum(axis=2)
        else:
            sd = jnp.array([data["tau"], data["rho"]])
            emission = -0.5 * (((seen - level) / sd) ** 2).sum(axis=2)
        prior = (
            ((alpha - 1.0) * log_moves).sum()
            + normal(level[0], 0.0, 1.0)
            + normal(level[1], 3.0, 1.0)
        )
        jacobian = (
            log_moves.sum() + t[4:6].sum() + (t[2:4].sum() if exponential else 0.0)
        )
        return prior + log_forward(log_moves, emission) + jacobian

    def named(t: Any) -> dict[str, Any]:
        log_moves, level = parameters(t)
        moves = jnp.exp(log_moves)
        rows = {**numbered("theta1", moves[0]), **numbered("theta2", moves[1])}
        return {
            **rows,
            **numbered("phi", level[:, 0]),
            **numbered("lambda", level[:, 1]),
        }

    return Density(6, log_density, named)


def runge_kutta(slope: Any, start: Any, times: Any, substeps: int) -> Any:
    """The solution at `times`, from time 0, by the classical method with equal steps between two times."""
    times = np.asarray(times, float)
    edges = np.concatenate([[0.0], times])
    steps = np.repeat(np.diff(edges) / substeps, substeps)
    begins = (
        edges[:-1, None] + np.diff(edges)[:, None] * np.arange(substeps) / substeps
    ).ravel()

    def step(z: Any, now: Any) -> Any:
        t, h = now
        a = slope(t, z)
        b = slope(t + 0.5 * h, z + 0.5 * h * a)
        c = slope(t + 0.5 * h, z + 0.5 * h * b)
        z = z + h / 6.0 * (a + 2.0 * (b + c) + slope(t + h, z + h * c))
        return z, z

    return jax.lax.scan(step, start, (jnp.asarray(begins), jnp.asarray(steps)))[1][
        substeps - 1 :: substeps
    ]


def lotka_volterra(data: dict[str, Any]) -> Density:
    """Eight positive parameters, each the exponential of a coordinate: rates, first populations, noise."""
    y = jnp.log(
        jnp.concatenate(
            [jnp.asarray(data["y_init"], float)[None], jnp.asarray(data["y"], float)]
        )
    )

    def log_density(t: Any) -> Any:
        rates, first, sigma = jnp.exp(t[:4]), jnp.exp(t[4:6]), jnp.exp(t[6:8])

        def slope(
            _: Any, log_z: Any
        ) -> Any:  # of the logarithms, which stay positive populations
            u, v = jnp.exp(log_z)
            return jnp.array([rates[0] - rates[1] * v, -rates[2] + rates[3] * u])

        later = runge_kutta(slope, t[4:6], data["ts"], 20)
        fit = jnp.concatenate([t[4:6][None], later])
        noise = -0.5 * (((y - fit) / sigma) ** 2).sum() - len(y) * jnp.log(sigma).sum()
        prior = normal(rates[jnp.array([0, 2])], 1.0, 0.5) + normal(
            rates[jnp.array([1, 3])], 0.05, 0.05
        )
        prior += normal(t[6:8], -1.0, 1.0) + normal(jnp.log(first), np.log(10.0), 1.0)
        return (
            prior + noise + t[:4].sum()
        )  # log-normal priors are densities of the coordinates already

    def named(t: Any) -> dict[str, Any]:
        x = jnp.exp(t)
        return {
            **numbered("theta", x[:4]),
            **numbered("z_init", x[4:6]),
            **numbered("sigma", x[6:8]),
        }

    return Density(8, log_density, named)


def one_compartment(data: dict[str, Any]) -> Density:
    """First-order absorption with Michaelis-Menten elimination."""
    seen, dose, volume = (
        jnp.log(jnp.asarray(data["C_hat"], float)),
        data["D"],
        data["V"],
    )

    def log_density(t: Any) -> Any:
        k_a, K_m, V_m, sigma = jnp.exp(t)

        def slope(time: Any, C: Any) -> Any:
            return jnp.exp(-k_a * time) * dose * k_a / volume - V_m / volume * C / (
                K_m + C
            )

        C = runge_kutta(slope, jnp.zeros(()), data["times"], 40)
        noise = -0.5 * (((seen - jnp.log(C)) / sigma) ** 2).sum() - len(seen) * t[3]
        return noise - jnp.log1p(jnp.exp(2.0 * t)).sum() + t.sum()

    def named(t: Any) -> dict[str, Any]:
        return dict(zip(("k_a", "K_m", "V_m", "sigma"), jnp.exp(t)))

    return Density(4, log_density, named)
