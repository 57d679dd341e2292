"""The spaces that the tuner searches: numbers of order one, made into parameters by the problem's curvature.

In these units a point means the same on another problem: a step at the edge of stability stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from asyncqn.paper.settings import BATCH, MEMORY, PAPER


class Kept:
    """A stored point in the place of a trial: every suggestion is the number that was kept."""

    def __init__(self, point: dict[str, Any]) -> None:
        self.point = point

    def suggest_float(self, name: str, *_: Any, **__: Any) -> float:
        return float(self.point[name])

    def suggest_categorical(self, name: str, *_: Any) -> Any:
        return self.point[name]


Suggest = Callable[[Any, float, int], dict[str, Any]]


def _async_sgd(trial: Any, curvature: float, workers: int) -> dict[str, Any]:
    """h = r / (curvature W): r near 1.6 is the limit of stability under equal delays."""
    return {"h": trial.suggest_float("r", 0.002, 8.0, log=True) / (curvature * workers), **BATCH}


def _mb_lbfgs(trial: Any, curvature: float, workers: int) -> dict[str, Any]:
    return {
        "h": trial.suggest_float("h", 5e-3, 2.0, log=True),
        "timeout": trial.suggest_float("timeout", 1.0, 100.0, log=True),
        "quorum": trial.suggest_float("quorum", 0.1, 1.0),
        "cosine_floor": trial.suggest_categorical("cosine_floor", [0.0, 0.3]),
        **MEMORY,
    }


def _as_lbfgs(trial: Any, curvature: float, workers: int) -> dict[str, Any]:
    """H0 = c I, c between the largest curvature's inverse and the prior's, or by pairs; h through
    r = 2 W h c / gamma, which is of order one at the limit where c matches the bulk of the curvature."""
    gamma = trial.suggest_float("gamma_share", 0.05, 2.0, log=True) / workers
    fixed = trial.suggest_categorical("H0", ["fixed", "pair"]) == "fixed"
    power = trial.suggest_float("power", 0.0, 1.1) if fixed else 1.0
    c = curvature**-power
    r = trial.suggest_float("r", 0.003, 5.0, log=True)
    return {
        "h": r * gamma / (2 * workers * c),
        "gamma": gamma,
        "beta": PAPER["as-lbfgs"]["beta"],
        "initial_scale": c if fixed else "pair",
        "cosine_floor": trial.suggest_categorical("cosine_floor", [0.0, 0.3, 0.5]),
        **MEMORY,
    }


GAUSSIAN: dict[str, Suggest] = {"async-sgd": _async_sgd, "mb-lbfgs": _mb_lbfgs, "as-lbfgs": _as_lbfgs}


class Setting(NamedTuple):
    """What a point of factorization refers to; `step` is a worker's mean time, `rho` a value to keep."""

    curvature: float
    workers: int
    step: float
    shared: dict[str, Any]
    """What is not searched: batch, and for the L-BFGS methods memory, overlap and rho."""
    beta: float
    keep_rho: bool


def _ridge(trial: Any, setting: Setting) -> tuple[float, float]:
    """(rho, rho L): rho I in H, in units of the inverse of the largest curvature L."""
    if setting.keep_rho:
        rho = float(setting.shared["rho"])
        return rho, rho * setting.curvature
    share = trial.suggest_float("rho_share", 1e-2, 1e6, log=True)
    return share / setting.curvature, share


def _factorization_sgd(trial: Any, setting: Setting) -> dict[str, Any]:
    return {
        "h": trial.suggest_float("r", 0.02, 20.0, log=True) / (setting.curvature * setting.workers),
        **setting.shared,
    }


def _factorization_mb(trial: Any, setting: Setting) -> dict[str, Any]:
    """h = r / (1 + rho L): the step is about r where pairs rule H, and r / L times g where rho does."""
    rho, share = _ridge(trial, setting)
    return {
        **setting.shared,
        "rho": rho,
        "h": trial.suggest_float("r", 0.003, 10.0, log=True) / (1.0 + share),
        "timeout": trial.suggest_float("timeout_share", 0.5, 3.0, log=True) * setting.step,
        "quorum": trial.suggest_float("quorum", 0.1, 1.0),
        "cosine_floor": trial.suggest_categorical("cosine_floor", [0.0, 0.3]),
    }


def _factorization_as(trial: Any, setting: Setting) -> dict[str, Any]:
    """h by r = 2 W h (rho + 1/L)^2 L / gamma, which is of order one at the limit where rho rules H."""
    rho, share = _ridge(trial, setting)
    gamma = trial.suggest_float("gamma_share", 0.05, 2.0, log=True) / setting.workers
    r = trial.suggest_float("r", 0.003, 10.0, log=True)
    return {
        **setting.shared,
        "rho": rho,
        "h": r * gamma * setting.curvature / (2 * setting.workers * (1.0 + share) ** 2),
        "gamma": gamma,
        "beta": setting.beta,
        "cosine_floor": trial.suggest_categorical("cosine_floor", [0.0, 0.3]),
    }


FACTORIZATION: dict[str, Callable[[Any, Setting], dict[str, Any]]] = {
    "async-sgd": _factorization_sgd,
    "mb-lbfgs": _factorization_mb,
    "as-lbfgs": _factorization_as,
}
