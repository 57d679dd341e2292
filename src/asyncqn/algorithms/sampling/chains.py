"""ChainMethod: what methods have in common whose workers run chains of their own and send every draw.

Commit n sets theta to the draw that made it, so that a run with `keep=1` has every draw, and its schedule
says of which chain each is.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.parameters import Checked, parameter
from asyncqn.types import Problem

DrawCount = Annotated[int, parameter("Draws after the warm-up, of all chains together", ge=1, le=2**30)]
ChainCount = Annotated[int, parameter("Chains of all workers together", ge=1, le=10_000)]
PerWorker = Annotated[int, parameter("Chains of each worker, moved in turn", ge=1, le=10_000)]


class ChainMethod(Checked):
    """Base of samplers with chains on workers; see the top of this file."""

    draws: int
    per_worker: int

    preparations: ClassVar[int] = 2
    """Steps of a chain before its first draw: its start, its search."""
    burn_in: ClassVar[int] = 50
    """Draws that a chain makes before they count, also one that joins late."""
    approximate: ClassVar[bool] = False
    """Whether the draws are of a density near exp(-U) only."""

    stages = ASYNCHRONOUS

    def check(self, problem: Problem) -> None:
        pass

    def warm_up_commits(self, dim: int) -> int:
        """Versions that a draw must not have read to count."""
        return 0

    def counts(self, k: int, read: int, dim: int) -> bool:
        """Return whether the draw of a worker's k-th step counts, which read version `read`."""
        settled = k // self.per_worker >= self.preparations + self.burn_in
        return settled and read >= self.warm_up_commits(dim)

    def finished(self, iterate: Any) -> str | None:
        """Why the run ends before its last commit; None: it continues.  totals[0] counts draws."""
        found = int(iterate.totals[0])
        return f"{found} draws were made" if found >= self.draws else None

    def temperature(self, k: int) -> float:
        """A chain may be at any U: no rise says that it has diverged."""
        return math.inf

    def learn(self, view: Any, local: Any, problem: Problem, task: Any) -> Any:
        return local

    def forget(self, local: Any) -> Any:
        return local
