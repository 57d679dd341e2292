"""Request: what a run is asked for, whatever engine carries it out."""

from __future__ import annotations

from dataclasses import dataclass

from asyncqn.core.checkpoint import Checkpoints
from asyncqn.core.stopping import TO_THE_END, Stopping
from asyncqn.types import Algorithm, Array, Callback, Potential


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `minimize`, checked and complete."""

    potential: Potential
    algorithm: Algorithm
    theta0: Array
    commits: int
    seed: int = 0
    evaluate: int = 1
    callback: Callback | None = None
    stopping: Stopping = TO_THE_END
    checkpoints: Checkpoints | None = None
    keep: int | None = None
