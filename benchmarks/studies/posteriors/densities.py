"""The posteriors as log densities of unconstrained parameters, written down for JAX from their definitions.

`DENSITIES` maps the name in posteriordb to a function of its data that returns a `Density`.  Left out, of
those with reference draws: lotka_volterra and one_comp_mm_elim_abs, which solve differential equations,
hmm_drive_0 and hmm_drive_1, and accel_gp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

jax.config.update("jax_enable_x64", True)


class Density(NamedTuple):
    """log_density(theta) up to a constant; named(theta): the parameters of the reference draws."""

    dim: int
    log_density: Callable[[Any], Any]
    named: Callable[[Any], dict[str, Any]]


def numbered(name: str, values: Any) -> dict[str, Any]:
    """`name[1]`, `name[2]`, ... as Stan counts."""
    return {f"{name}[{i + 1}]": values[i] for i in range(len(values))}


def normal(x: Any, mean: Any, sd: Any) -> Any:
    return -0.5 * (((x - mean) / sd) ** 2).sum() - jnp.size(x) * jnp.log(sd)


def cauchy(x: Any, scale: float) -> Any:
    return -jnp.log1p((x / scale) ** 2)


def linear_fit(X: Any, y: Any) -> Callable[[Any, Any], Any]:
    """log N(y | X b, sigma) of b and sigma; a QR factorization leaves as many rows as columns."""
    X, y = np.asarray(X, float), np.asarray(y, float)
    Q, R = np.linalg.qr(X)
    seen = Q.T @ y
    rest, n = float(((y - Q @ seen) ** 2).sum()), len(y)
    R, seen = jnp.asarray(R), jnp.asarray(seen)

    def log_likelihood(b: Any, sigma: Any) -> Any:
        return -0.5 * (((seen - R @ b) ** 2).sum() + rest) / sigma**2 - n * jnp.log(sigma)

    return log_likelihood


def regression(y: Any, columns: list[Any], sigma_prior: Callable[[Any], Any] = lambda s: 0.0) -> Density:
    """A linear regression with flat coefficients and noise sigma = exp(theta[-1])."""
    fit, k = linear_fit(np.stack([np.ones(len(y)), *columns], axis=1), y), len(columns) + 1

    def log_density(theta: Any) -> Any:
        sigma = jnp.exp(theta[k])
        return fit(theta[:k], sigma) + sigma_prior(sigma) + theta[k]

    return Density(k + 1, log_density, lambda t: {**numbered("beta", t[:k]), "sigma": jnp.exp(t[k])})


def arrays(data: dict[str, Any]) -> dict[str, Any]:
    return {name: np.array(value) for name, value in data.items()}


def half_cauchy(sigma: Any) -> Any:
    return cauchy(sigma, 2.5)


def earnings(model: str) -> Callable[[dict[str, Any]], Density]:
    def made(data: dict[str, Any]) -> Density:
        d = arrays(data)
        height, male = d["height"], d["male"]
        y = {"earn": d["earn"], "log10earn": np.log10(d["earn"]), "logearn": np.log(d["earn"])}
        z = (height - height.mean()) / height.std(ddof=1)
        target, columns = {
            "earn_height": ("earn", [height]),
            "log10earn_height": ("log10earn", [height]),
            "logearn_height": ("logearn", [height]),
            "logearn_height_male": ("logearn", [height, male]),
            "logearn_interaction": ("logearn", [height, male, height * male]),
            "logearn_interaction_z": ("logearn", [z, male, z * male]),
            "logearn_logheight_male": ("logearn", [np.log(height), male]),
        }[model]
        return regression(y[target], columns)

    return made


def kidscore(model: str) -> Callable[[dict[str, Any]], Density]:
    def made(data: dict[str, Any]) -> Density:
        d = arrays(data)
        y, hs, iq, work = d["kid_score"], d.get("mom_hs"), d.get("mom_iq"), d.get("mom_work")
        if model == "kidscore_mom_work":
            return regression(y, [(work == level).astype(float) for level in (2, 3, 4)])
        if model.startswith("kidscore_interaction_"):
            shifted = {
                "c": (hs - hs.mean(), iq - iq.mean()),
                "c2": (hs - 0.5, iq - 100.0),
                "z": ((hs - hs.mean()) / (2 * hs.std(ddof=1)), (iq - iq.mean()) / (2 * iq.std(ddof=1))),
            }[model.rpartition("_")[2]]
            return regression(y, [*shifted, shifted[0] * shifted[1]])
        columns = {
            "kidscore_interaction": lambda: [hs, iq, hs * iq],
            "kidscore_momhs": lambda: [hs],
            "kidscore_momhsiq": lambda: [hs, iq],
            "kidscore_momiq": lambda: [iq],
        }[model]()
        return regression(y, columns, half_cauchy)

    return made


def mesquite(model: str) -> Callable[[dict[str, Any]], Density]:
    def made(data: dict[str, Any]) -> Density:
        d = arrays(data)
        d1, d2, canopy, total = d["diam1"], d["diam2"], d["canopy_height"], d["total_height"]
        density, group, y = d["density"], d["group"], np.log(d["weight"])
        volume, area, shape = np.log(d1 * d2 * canopy), np.log(d1 * d2), np.log(d1 / d2)
        if model == "mesquite":
            return regression(d["weight"], [d1, d2, canopy, total, density, group])
        logs = [np.log(x) for x in (d1, d2, canopy, total, density)]
        columns = {
            "logmesquite": [*logs, group],
            "logmesquite_logva": [volume, area, group],
            "logmesquite_logvas": [volume, area, shape, np.log(total), np.log(density), group],
            "logmesquite_logvash": [volume, area, shape, np.log(total), group],
            "logmesquite_logvolume": [volume],
        }[model]
        return regression(y, columns)

    return made


def nes(data: dict[str, Any]) -> Density:
    d = arrays(data)
    ages = [(d["age_discrete"] == level).astype(float) for level in (2, 3, 4)]
    columns = [d["real_ideo"], d["race_adj"], *ages, d["educ1"], d["gender"], d["income"]]
    return regression(d["partyid7"], columns)


def blr(data: dict[str, Any]) -> Density:
    fit, k = linear_fit(data["X"], data["y"]), int(data["D"])

    def log_density(t: Any) -> Any:
        sigma = jnp.exp(t[k])
        return normal(t[:k], 0.0, 10.0) + normal(sigma, 0.0, 10.0) + fit(t[:k], sigma) + t[k]

    return Density(k + 1, log_density, lambda t: {**numbered("beta", t[:k]), "sigma": jnp.exp(t[k])})


def kilpisjarvi(data: dict[str, Any]) -> Density:
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])

    def log_density(t: Any) -> Any:
        prior = normal(t[0], data["pmualpha"], data["psalpha"]) + normal(
            t[1], data["pmubeta"], data["psbeta"]
        )
        return prior + normal(y, t[0] + t[1] * x, jnp.exp(t[2])) + t[2]

    return Density(3, log_density, lambda t: {"alpha": t[0], "beta": t[1], "sigma": jnp.exp(t[2])})


def diamonds(data: dict[str, Any]) -> Density:
    X = np.array(data["X"], float)[:, 1:]
    k = X.shape[1]
    fit = linear_fit(np.column_stack([X - X.mean(axis=0), np.ones(len(X))]), data["Y"])

    def student(x: Any, mean: float) -> Any:
        return -2.0 * jnp.log1p(((x - mean) / 10.0) ** 2 / 3.0)

    def log_density(t: Any) -> Any:
        sigma = jnp.exp(t[k + 1])
        prior = normal(t[:k], 0.0, 1.0) + student(t[k], 8.0) + student(sigma, 0.0)
        return prior + fit(t[: k + 1], sigma) + t[k + 1]

    def named(t: Any) -> dict[str, Any]:
        return {**numbered("b", t[:k]), "Intercept": t[k], "sigma": jnp.exp(t[k + 1])}

    return Density(k + 2, log_density, named)


def ark(data: dict[str, Any]) -> Density:
    K, y = data["K"], np.array(data["y"])
    lags = jnp.stack([jnp.asarray(y[K - k : len(y) - k]) for k in range(1, K + 1)], axis=1)
    later = jnp.asarray(y[K:])

    def log_density(t: Any) -> Any:
        sigma = jnp.exp(t[K + 1])
        prior = normal(t[: K + 1], 0.0, 10.0) + half_cauchy(sigma)
        return prior + normal(later, t[0] + lags @ t[1 : K + 1], sigma) + t[K + 1]

    def named(t: Any) -> dict[str, Any]:
        return {"alpha": t[0], **numbered("beta", t[1 : K + 1]), "sigma": jnp.exp(t[K + 1])}

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
        prior = normal(mu, 0.0, 10.0) + normal(phi, 0.0, 2.0) + normal(theta, 0.0, 2.0) + half_cauchy(sigma)
        return prior + normal(first, 0.0, sigma) + normal(later, 0.0, sigma) + t[3]

    return Density(4, log_density, lambda t: {"mu": t[0], "phi": t[1], "theta": t[2], "sigma": jnp.exp(t[3])})


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
        logit = sum(jax.nn.log_sigmoid(t[i]) + jax.nn.log_sigmoid(-t[i]) for i in (2, 3))
        return fit + t[1] + logit + jnp.log1p(-alpha1)

    def named(t: Any) -> dict[str, Any]:
        return dict(zip(("mu", "alpha0", "alpha1", "beta1"), parameters(t)))

    return Density(4, log_density, named)


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
        return {"rho": jnp.exp(t[0]), "alpha": jnp.exp(t[1]), **numbered("f", function(t))}

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

    return Density(3, log_density, lambda t: dict(zip(("rho", "alpha", "sigma"), jnp.exp(t))))


def mixture(data: dict[str, Any]) -> Density:
    y = jnp.asarray(data["y"])

    def parameters(t: Any) -> tuple[Any, Any, Any]:
        return jnp.array([t[0], t[0] + jnp.exp(t[1])]), jnp.exp(t[2:4]), jax.nn.sigmoid(t[4])

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


def hmm(data: dict[str, Any]) -> Density:
    y = jnp.asarray(data["y"])

    def parameters(t: Any) -> tuple[Any, Any]:
        p = jax.nn.sigmoid(t[:2])
        first = jnp.exp(t[2])
        return jnp.stack([p, 1.0 - p], axis=1), jnp.array([first, first + jnp.exp(t[3])])

    def log_density(t: Any) -> Any:
        moves, mu = parameters(t)
        emission = -0.5 * (y[:, None] - mu) ** 2

        def step(gamma: Any, seen: Any) -> Any:
            return logsumexp(gamma[:, None] + jnp.log(moves), axis=0) + seen, None

        last, _ = jax.lax.scan(step, emission[0], emission[1:])
        jacobian = (jax.nn.log_sigmoid(t[:2]) + jax.nn.log_sigmoid(-t[:2])).sum() + t[2] + t[3]
        return normal(mu[0], 3.0, 1.0) + normal(mu[1], 10.0, 1.0) + logsumexp(last) + jacobian

    def named(t: Any) -> dict[str, Any]:
        moves, mu = parameters(t)
        return {**numbered("theta1", moves[0]), **numbered("theta2", moves[1]), **numbered("mu", mu)}

    return Density(4, log_density, named)


DENSITIES: dict[str, Callable[[dict[str, Any]], Density]] = {
    **{f"earnings-{m}": earnings(m) for m in (
        "earn_height", "log10earn_height", "logearn_height", "logearn_height_male", "logearn_interaction",
        "logearn_interaction_z", "logearn_logheight_male")},
    **{f"kidiq-{m}": kidscore(m) for m in (
        "kidscore_interaction", "kidscore_momhs", "kidscore_momhsiq", "kidscore_momiq")},
    **{f"kidiq_with_mom_work-{m}": kidscore(m) for m in (
        "kidscore_interaction_c", "kidscore_interaction_c2", "kidscore_interaction_z", "kidscore_mom_work")},
    **{f"mesquite-{m}": mesquite(m) for m in (
        "mesquite", "logmesquite", "logmesquite_logva", "logmesquite_logvas", "logmesquite_logvash",
        "logmesquite_logvolume")},
    **{f"nes{year}-nes": nes for year in (1972, 1976, 1980, 1984, 1988, 1992, 1996, 2000)},
    "sblrc-blr": blr,
    "sblri-blr": blr,
    "kilpisjarvi_mod-kilpisjarvi": kilpisjarvi,
    "diamonds-diamonds": diamonds,
    "arK-arK": ark,
    "arma-arma11": arma,
    "eight_schools-eight_schools_noncentered": eight_schools,
    "garch-garch11": garch,
    "gp_pois_regr-gp_pois_regr": gp_pois,
    "gp_pois_regr-gp_regr": gp_regr,
    "low_dim_gauss_mix-low_dim_gauss_mix": mixture,
    "hmm_example-hmm_example": hmm,
}  # fmt: skip
"""By their names in posteriordb."""
