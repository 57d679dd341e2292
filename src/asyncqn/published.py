"""The numbers of Tables 1 to 3 in the paper's supplement, by experiment; no other file contains them.

Where the paper is silent (H0, the cautious constant, the quorum, the data themselves), the defaults of the
classes apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from asyncqn.errors import BadInput
from asyncqn.parameters import parameter

PaperName = Literal["linear-gaussian", "ml-1m", "ml-10m", "ml-20m"]
PaperRows = Annotated[int | None, parameter(ge=300, le=2**62)]


@dataclass(frozen=True)
class PaperSetting:
    """One experiment: its number of observations, its workers, and a row of the table for each algorithm."""

    n_data: int
    """N_Y."""
    workers: int
    algorithms: Mapping[str, Mapping[str, float]]
    rho: float = 0.0
    """rho of H + rho I in both L-BFGS methods."""

    def parameters(self, kind: str, n_data: int | None = None) -> dict[str, Any]:
        """Return the parameters of an algorithm: its row, M = 3, N_Omega = N_Y / 100 and N_O = N_Omega /
        3."""
        batch = (self.n_data if n_data is None else n_data) // 100
        # The paper states its batches as shares of the data.
        own: dict[str, Any] = {**self.algorithms[kind], "batch": batch}
        if kind != "async-sgd":
            own |= {"memory": 3, "overlap": batch // 3}
            if self.rho:
                own["rho"] = self.rho
        return own


def _ratings(
    n_data: int, sgd: float, mb: float, timeout: float, own: tuple[float, float, float]
) -> PaperSetting:
    """Return a row of the MovieLens table; its timeout is in milliseconds, and ours in seconds."""
    h, gamma, beta = own
    # One row of the table per algorithm.
    rows = {
        "async-sgd": {"h": sgd},
        "mb-lbfgs": {"h": mb, "timeout": timeout / 1000.0},
        "as-lbfgs": {"h": h, "gamma": gamma, "beta": beta},
    }
    # W = 10 as in Fig. 4; rho = 3 as the supplement says above Table 3.
    return PaperSetting(n_data, 10, rows, rho=3.0)


SETTINGS: dict[str, PaperSetting] = {
    "linear-gaussian": PaperSetting(
        600,
        40,
        {
            "async-sgd": {"h": 1e-3},
            "mb-lbfgs": {"h": 5e-2, "timeout": 10.0},
            "as-lbfgs": {"h": 4e-4, "gamma": 3e-2, "beta": 5e2},
        },
    ),
    "ml-1m": _ratings(1_000_209, 1e-6, 5e-7, 400.0, (2e-8, 1e-1, 1e3)),
    "ml-10m": _ratings(10_000_054, 2e-7, 1e-8, 3400.0, (1e-9, 3e-2, 1e3)),
    "ml-20m": _ratings(20_000_263, 1e-7, 1e-8, 4500.0, (1e-9, 1e-3, 1e3)),
}
"""Tables 1 (linear Gaussian) and 3 (MovieLens).  N_Y of the MovieLens sets is their number of ratings."""

PROBLEM: dict[str, Any] = {
    "kind": "linear-gaussian",
    "dim": 100,
    "n_data": 600,
    "noise_var": 10.0,
}
"""The linear Gaussian problem: d, N_Y and sigma_x^2."""
VARIANCE = 200.0
"""sigma_w^2, the variance of a worker's time, in Fig. 3; Fig. 2 varies it."""
MESSAGE = 10.0
"""tau, the time of communication per iteration, in the paper's base units."""
MASTER = {"mb-lbfgs": 30.0}
"""mu_m, the master's time per iteration, from Table 2; it is 0 for the two asynchronous algorithms."""
PRODUCTS = {"as-lbfgs": 60.0}
"""The term of mu_w in Table 2 that only as-L-BFGS has: besides the gradient, its workers compute two products
with H, equations (6) and (7)."""


def timing(name: str, kind: str) -> dict[str, Any]:
    """Return the fields of `Cluster` for an algorithm; the MovieLens experiments ran on real machines."""
    if name != "linear-gaussian":
        raise BadInput(
            f"the paper ran {name} on real machines and prints no times: fit a cluster to your own run with "
            f"Cluster.from_run."
        )
    setting = SETTINGS[name]
    # The paper charges 1,000 units for a pass over all rows.
    # Table 2: mu_w = 1000 N_Omega / N_Y, plus 60 for as-L-BFGS.
    mean = 1000.0 * (setting.n_data // 100) / setting.n_data + PRODUCTS.get(kind, 0.0)
    return {"worker_mean": mean, "message": MESSAGE, "master": MASTER.get(kind, 0.0)}
