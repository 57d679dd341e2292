"""Annealing: an inverse temperature that rises with a worker's own steps.

    beta_k = start (end / start)^min(k / steps, 1)

k counts the steps of the worker that draws the noise, so that a replay finds the same temperatures; with
W workers and N commits it ends near N / W.  The geometric form is our own choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from asyncqn.parameters import Checked, parameter


@dataclass(frozen=True)
class Annealing(Checked):
    """An inverse temperature that rises geometrically, for `beta` of `ASLBFGS` and `SGLD`.

    Parameters
    ----------
    start : float
        First inverse temperature, positive and finite, in units of 1 / U.
    end : float
        Last inverse temperature, positive and finite, in units of 1 / U.
    steps : int
        Steps of one worker from the first to the last.

    Examples
    --------
    >>> import asyncqn as aq
    >>> beta = aq.Annealing(start=1.0, end=100.0, steps=10)
    >>> [round(beta.at(k), 3) for k in (0, 5, 10, 20)]
    [1.0, 10.0, 100.0, 100.0]
    """

    start: Annotated[float, parameter(unit="1 / U", gt=0.0)]
    end: Annotated[float, parameter(unit="1 / U", gt=0.0)]
    steps: Annotated[int, parameter(ge=1)]

    def at(self, k: int) -> float:
        """Return beta at a worker's k-th step."""
        # After `steps` the exponent stays 1: the temperature is constant from there on.
        return float(self.start * (self.end / self.start) ** min(k / self.steps, 1.0))


ConstantBeta = Annotated[float, parameter(unit="1 / U", gt=0.0, infinite=True)]
Beta = ConstantBeta | Annealing


def beta_at(beta: float | Annealing, k: int) -> float:
    """Return the inverse temperature at a worker's k-th step."""
    return beta.at(k) if isinstance(beta, Annealing) else beta
