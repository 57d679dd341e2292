"""Density: a posterior as a log density of unconstrained parameters, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
# Gradients here take microseconds: a handover to another thread would take longer than most of them.
jax.config.update("jax_cpu_enable_async_dispatch", False)


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


def half_cauchy(sigma: Any) -> Any:
    return cauchy(sigma, 2.5)
