"""Annealing: an inverse temperature that rises with a worker's own steps.

    beta_k = start (end / start)^min(k / steps, 1)

k counts the steps of the worker that draws the noise, so that a replay finds the same temperatures; with
W workers and N commits it ends near N / W.  The geometric form is our own choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asyncqn.algorithms.checks import check_counts, check_positive
from asyncqn.errors import require
from asyncqn.storage.serialise import from_json


@dataclass(frozen=True)
class Annealing:
    """start, end: the first and the last beta, both finite; steps: of one worker, from one to the other."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        check_positive(start=self.start, end=self.end)
        require(max(self.start, self.end) < math.inf, "start and end of an annealing must be finite.")
        check_counts(self, steps=1)

    def at(self, k: int) -> float:
        """beta at a worker's k-th step."""
        return float(self.start * (self.end / self.start) ** min(k / self.steps, 1.0))


def checked_beta(beta: Any) -> float | Annealing:
    """A parameter `beta`: a positive number, or an `Annealing`, which a file holds as a mapping."""
    if isinstance(beta, Mapping):
        made: Annealing = from_json(Annealing, beta, "an annealing")
        return made
    if not isinstance(beta, Annealing):
        check_positive(beta=beta)
    return beta  # type: ignore[no-any-return]


def beta_at(beta: float | Annealing, k: int) -> float:
    """The inverse temperature at a worker's k-th step."""
    return beta.at(k) if isinstance(beta, Annealing) else beta
