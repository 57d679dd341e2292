"""Request: what a run is asked for, whatever engine carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncqn.core.stopping import TO_THE_END, Stopping
from asyncqn.types import Algorithm, Array, Callback, Potential

if TYPE_CHECKING:
    from asyncqn.runs.checkpoint import Checkpoints


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `minimize`, checked and complete."""

    potential: Potential
    algorithm: Algorithm
    theta0: Array
    commits: int
    seed: int = 0
    evaluate: int | None = 1
    """Commits between two rows of the metric table, which has the start and the end as well; None: it has the
    start alone.  The end of a stochastic method is evaluated all the same: it may have risen."""
    callback: Callback | None = None
    stopping: Stopping = TO_THE_END
    checkpoints: Checkpoints | None = None
    keep: int | None = None
    open_ended: bool = False
    """Whether `commits` is a default bound and not a wish: making them all is then a stop, not an end."""
