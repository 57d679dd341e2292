"""Linear regressions of posteriordb, as log densities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.studies.posteriors.density import Density, half_cauchy, normal, numbered


def linear_fit(X: Any, y: Any) -> Callable[[Any, Any], Any]:
    """log N(y | X b, sigma) of b and sigma; a QR factorization leaves as many rows as columns."""
    X, y = np.asarray(X, float), np.asarray(y, float)
    Q, R = np.linalg.qr(X)
    seen = Q.T @ y
    rest, n = float(((y - Q @ seen) ** 2).sum()), len(y)
    R, seen = jnp.asarray(R), jnp.asarray(seen)

    def log_likelihood(b: Any, sigma: Any) -> Any:
        return -0.5 * (((seen - R @ b) ** 2).sum() + rest) / sigma**2 - n * jnp.log(
            sigma
        )

    return log_likelihood


def regression(
    y: Any, columns: list[Any], sigma_prior: Callable[[Any], Any] = lambda s: 0.0
) -> Density:
    """A linear regression with flat coefficients and noise sigma = exp(theta[-1])."""
    fit, k = (
        linear_fit(np.stack([np.ones(len(y)), *columns], axis=1), y),
        len(columns) + 1,
    )

    def log_density(theta: Any) -> Any:
        sigma = jnp.exp(theta[k])
        return fit(theta[:k], sigma) + sigma_prior(sigma) + theta[k]

    return Density(
        k + 1,
        log_density,
        lambda t: {**numbered("beta", t[:k]), "sigma": jnp.exp(t[k])},
    )


def arrays(data: dict[str, Any]) -> dict[str, Any]:
    return {name: np.array(value) for name, value in data.items()}


def earnings(model: str) -> Callable[[dict[str, Any]], Density]:
    def made(data: dict[str, Any]) -> Density:
        d = arrays(data)
        height, male = d["height"], d["male"]
        y = {
            "earn": d["earn"],
            "log10earn": np.log10(d["earn"]),
            "logearn": np.log(d["earn"]),
        }
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
        y, hs, iq, work = (
            d["kid_score"],
            d.get("mom_hs"),
            d.get("mom_iq"),
            d.get("mom_work"),
        )
        if model == "kidscore_mom_work":
            return regression(y, [(work == level).astype(float) for level in (2, 3, 4)])
        if model.startswith("kidscore_interaction_"):
            shifted = {
                "c": (hs - hs.mean(), iq - iq.mean()),
                "c2": (hs - 0.5, iq - 100.0),
                "z": (
                    (hs - hs.mean()) / (2 * hs.std(ddof=1)),
                    (iq - iq.mean()) / (2 * iq.std(ddof=1)),
                ),
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
        d1, d2, canopy, total = (
            d["diam1"],
            d["diam2"],
            d["canopy_height"],
            d["total_height"],
        )
        density, group, y = d["density"], d["group"], np.log(d["weight"])
        volume, area, shape = np.log(d1 * d2 * canopy), np.log(d1 * d2), np.log(d1 / d2)
        if model == "mesquite":
            return regression(d["weight"], [d1, d2, canopy, total, density, group])
        logs = [np.log(x) for x in (d1, d2, canopy, total, density)]
        columns = {
            "logmesquite": [*logs, group],
            "logmesquite_logva": [volume, area, group],
            "logmesquite_logvas": [
                volume,
                area,
                shape,
                np.log(total),
                np.log(density),
                group,
            ],
            "logmesquite_logvash": [volume, area, shape, np.log(total), group],
            "logmesquite_logvolume": [volume],
        }[model]
        return regression(y, columns)

    return made


def nes(data: dict[str, Any]) -> Density:
    d = arrays(data)
    ages = [(d["age_discrete"] == level).astype(float) for level in (2, 3, 4)]
    columns = [
        d["real_ideo"],
        d["race_adj"],
        *ages,
        d["educ1"],
        d["gender"],
        d["income"],
    ]
    return regression(d["partyid7"], columns)


def blr(data: dict[str, Any]) -> Density:
    fit, k = linear_fit(data["X"], data["y"]), int(data["D"])

    def log_density(t: Any) -> Any:
        sigma = jnp.exp(t[k])
        return (
            normal(t[:k], 0.0, 10.0)
            + normal(sigma, 0.0, 10.0)
            + fit(t[:k], sigma)
            + t[k]
        )

    return Density(
        k + 1,
        log_density,
        lambda t: {**numbered("beta", t[:k]), "sigma": jnp.exp(t[k])},
    )


def kilpisjarvi(data: dict[str, Any]) -> Density:
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])

    def log_density(t: Any) -> Any:
        prior = normal(t[0], data["pmualpha"], data["psalpha"]) + normal(
            t[1], data["pmubeta"], data["psbeta"]
        )
        return prior + normal(y, t[0] + t[1] * x, jnp.exp(t[2])) + t[2]

    return Density(
        3, log_density, lambda t: {"alpha": t[0], "beta": t[1], "sigma": jnp.exp(t[2])}
    )


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
