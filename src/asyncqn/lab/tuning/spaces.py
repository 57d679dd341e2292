"""The search spaces of the tuner: numbers of order one, scaled to parameters by the problem's curvature.

In these units a point has the same meaning on another problem: a step at the limit of stability stays there.
L is the largest curvature at a starting point, W the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

BATCH_SHARES = (1 / 600, 1 / 200, 1 / 100, 1 / 40, 1 / 20, 1 / 10, 1 / 5)
"""Rows of a batch as shares of all rows; a hundredth is the paper's, and 1 / 600 is one row of its 600."""
OVERLAP_SHARES = (1 / 3, 1 / 2, 5 / 6)
"""Rows that are kept for the next pair as shares of a batch; a third is the paper's 2 of 6."""
PART_ROWS = (3, 10, 30, 100)
"""Rows of a part of asynchronous SAGA."""


class FixedTrial:
    """A stored point that acts as a trial: every suggestion is the stored number."""

    def __init__(self, point: Mapping[str, Any]) -> None:
        self.point = point

    def suggest_float(self, name: str, *_: Any, **__: Any) -> float:
        return float(self.point[name])

    def suggest_categorical(self, name: str, *_: Any) -> Any:
        return self.point[name]


class CountingTrial:
    """A trial that only collects the names of the numbers that a space asks for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def suggest_float(self, name: str, low: float, *_: Any, **__: Any) -> float:
        self.names.add(name)
        return low

    def suggest_categorical(self, name: str, options: tuple[Any, ...]) -> Any:
        self.names.add(name)
        return options[0]


class Setting(NamedTuple):
    """The problem and cluster that a point refers to."""

    curvature: float
    workers: int
    n_data: int
    step: float
    """The mean time of a worker's step, which is the unit of timeouts."""
    kept: Mapping[str, Any]
    """Parameters that are not searched, by name."""


class Search(NamedTuple):
    """A trial in a setting."""

    trial: Any
    setting: Setting

    def number(
        self, parameter: str, name: str, low: float, high: float, unit: float = 1.0, log: bool = True
    ) -> float:
        """Return the fixed value of a parameter, or `unit` times a number from [low, high]."""
        if parameter in self.setting.kept:
            return float(self.setting.kept[parameter])
        # The sampler sees the number without its unit, so that its model carries over between problems.
        return unit * float(self.trial.suggest_float(name, low, high, log=log))

    def choice(self, parameter: str, options: tuple[Any, ...], name: str | None = None) -> Any:
        """Return the fixed value of a parameter, or one of the options."""
        if parameter in self.setting.kept:
            return self.setting.kept[parameter]
        return self.trial.suggest_categorical(name or parameter, options)

    def rows(self, least: int) -> int:
        """Return N_Omega: the fixed value, or a share of all rows."""
        if "batch" in self.setting.kept:
            return int(self.setting.kept["batch"])
        share: float = self.trial.suggest_categorical("batch_share", BATCH_SHARES)
        return max(least, round(share * self.setting.n_data))

    def ridge(self) -> float:
        """Return rho of H + rho I, in units of 1 / L."""
        return self.number("rho", "rho_share", 1e-2, 1e6, 1.0 / self.setting.curvature)

    def memory(self) -> dict[str, Any]:
        """Return M, N_Omega, N_O, and the rule for pairs, with epsilon in units of L."""
        # Two rows at least: the overlap must be smaller than the batch.
        batch = self.rows(2)
        overlap = self.setting.kept.get("overlap")
        if overlap is None:
            share = self.trial.suggest_categorical("overlap_share", OVERLAP_SHARES)
            overlap = max(1, min(batch - 1, round(share * batch)))
        return {
            "memory": self.choice("memory", (1, 3, 5, 10)),
            "batch": batch,
            "overlap": overlap,
            "epsilon": self.number("epsilon", "epsilon_share", 1e-4, 1e2, self.setting.curvature),
            "cosine_floor": self.choice("cosine_floor", (0.0, 0.3, 0.5)),
        }

    def initial_scale(self) -> tuple[float | str, float]:
        """Return H0 as a parameter, and the c from which h is computed.

        H0 is c I with c = L^-power, or follows the pairs, when c = 1 / L.
        """
        scale = self.setting.kept.get("initial_scale")
        if scale is None and self.trial.suggest_categorical("H0", ("fixed", "pair")) == "fixed":
            scale = self.setting.curvature ** -self.trial.suggest_float("power", 0.0, 1.1)
        return ("pair", 1.0 / self.setting.curvature) if scale in (None, "pair") else (scale, float(scale))


def _async_sgd(search: Search) -> dict[str, Any]:
    """Return h = r / (L W); r near 1.6 is the limit of stability under equal delays."""
    L, W = search.setting.curvature, search.setting.workers
    # 2 sin(pi / (2 (2 W - 1))) is about 1.6 / W, so h L = 1.6 / W is the limit (`algorithms.stability`).
    return {"h": search.number("h", "r", 0.002, 20.0, 1.0 / (L * W)), "batch": search.rows(1)}


def _delay_adaptive_sgd(search: Search) -> dict[str, Any]:
    """Return the parameters of a-SGD, and tau, the staleness with an unreduced step, in units of W."""
    W = search.setting.workers
    return {
        **_async_sgd(search),
        "tau": max(1, round(search.number("tau", "tau_share", 0.1, 10.0, W))),
        "scatter": search.choice("scatter", (False, True)),
    }


def _ringmaster(search: Search) -> dict[str, Any]:
    """Return h = r / (L min(W, R)): the step must be stable under the greatest staleness."""
    L, W = search.setting.curvature, search.setting.workers
    # The typical staleness of W equal workers is W - 1.
    oldest = round(search.number("max_delay", "delay_share", 0.1, 10.0, W))
    return {
        "h": search.number("h", "r", 0.002, 20.0, 1.0 / (L * min(W, oldest + 1))),
        "batch": search.rows(1),
        "max_delay": oldest,
        "scatter": search.choice("scatter", (False, True)),
    }


def _rennala(search: Search) -> dict[str, Any]:
    """Return h = r / L, because no gradient is stale."""
    W = search.setting.workers
    return {
        "h": search.number("h", "r", 0.002, 20.0, 1.0 / search.setting.curvature),
        "batch": search.rows(1),
        # B in units of W: every worker contributes about one update to a step at 1.
        "collect": max(1, round(search.number("collect", "collect_share", 0.1, 10.0, W))),
        "scatter": search.choice("scatter", (False, True)),
    }


def _async_saga(search: Search) -> dict[str, Any]:
    """Return h = r / (L W), as for a-SGD, and parts of a few rows."""
    L, W, n = search.setting.curvature, search.setting.workers, search.setting.n_data
    parts = search.setting.kept.get("parts")
    if parts is None:
        # Rows per part, not parts: the meaning is then the same for data of any size.
        parts = max(1, n // int(search.choice("rows", PART_ROWS)))
    return {
        "h": search.number("h", "r", 0.002, 20.0, 1.0 / (L * W)),
        "parts": parts,
        "order": search.choice("order", ("random", "age")),
        "scatter": search.choice("scatter", (False, True)),
    }


def _mb_lbfgs(search: Search) -> dict[str, Any]:
    """Return h = r / (1 + rho L): the step is about r if pairs dominate H, and r g / L if rho does."""
    rho = search.ridge()
    return {
        "h": search.number("h", "r", 0.003, 10.0, 1.0 / (1.0 + rho * search.setting.curvature)),
        "rho": rho,
        "timeout": search.number("timeout", "timeout_share", 0.1, 10.0, search.setting.step),
        "quorum": search.number("quorum", "quorum", 0.1, 1.0, log=False),
        **search.memory(),
    }


def _as_lbfgs(search: Search) -> dict[str, Any]:
    """Return h from r = 2 W h (rho + c)^2 / (c gamma).

    r is of order one at the limit of stability where H0 = c I matches the bulk of the curvature, or rho
    dominates H.
    """
    W = search.setting.workers
    rho = search.ridge()
    # Stale friction is stable up to about 1.6 / W; beyond 1 the momentum changes its sign.
    gamma = min(1.0, search.number("gamma", "gamma_share", 0.05, 2.0, 1.0 / W))
    scale, c = search.initial_scale()
    # 0 stands for beta = inf, which the sampler could not suggest.
    temperature = 0.0 if "beta" in search.setting.kept else search.choice("temperature", (0.0, 0.002))
    return {
        "h": search.number("h", "r", 0.003, 10.0, gamma * c / (2 * W * (rho + c) ** 2)),
        "gamma": gamma,
        "beta": search.setting.kept.get("beta", 1.0 / temperature if temperature else math.inf),
        "rho": rho,
        "initial_scale": scale,
        **search.memory(),
    }


def _momentum_lbfgs(search: Search) -> dict[str, Any]:
    """Return h from r = W h / gamma, of order one at the limit where H0 matches the bulk of the curvature."""
    W = search.setting.workers
    gamma = min(1.0, search.number("gamma", "gamma_share", 0.05, 40.0, 1.0 / W))
    return {
        "h": search.number("h", "r", 0.003, 10.0, gamma / W),
        "gamma": gamma,
        "initial_scale": search.initial_scale()[0],
        **search.memory(),
    }


SPACES: dict[str, Callable[[Search], dict[str, Any]]] = {
    "async-sgd": _async_sgd,
    "delay-adaptive-sgd": _delay_adaptive_sgd,
    "ringmaster": _ringmaster,
    "rennala": _rennala,
    "async-saga": _async_saga,
    "mb-lbfgs": _mb_lbfgs,
    "as-lbfgs": _as_lbfgs,
    "momentum-lbfgs": _momentum_lbfgs,
}
