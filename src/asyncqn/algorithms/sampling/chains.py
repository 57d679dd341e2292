"""ChainMethod: the base of samplers whose workers run separate chains and send every draw.

Commit n sets theta to the draw that made it.  A run with `keep=1` therefore holds every draw, and its
schedule says to which chain each draw belongs.
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
    """Base of samplers with chains on workers.

    Subclasses define `init`, `init_worker`, `step` and `apply`; totals[0] of their iterate counts draws.
    """

    draws: int
    per_worker: int

    preparations: ClassVar[int] = 2
    """Steps of a chain before its first draw: one for its start, one for its search."""
    burn_in: ClassVar[int] = 50
    """Draws of a chain that do not count; a chain that joins late burns in by the same rule."""
    approximate: ClassVar[bool] = False
    """True for a method without a Metropolis test, whose law is near exp(-U)."""

    stages = ASYNCHRONOUS

    def check(self, problem: Problem) -> None:
        pass

    def warm_up_commits(self, dim: int) -> int:
        """Return the number of commits of the warm-up; a draw that read an earlier version does not count."""
        return 0

    def counts(self, k: int, read: int, dim: int) -> bool:
        """Return whether the draw of a worker's k-th step counts, which read version `read`."""
        # Both conditions follow from the schedule, never from the draws: choosing draws by their values would
        # bias what is left.
        settled = k // self.per_worker >= self.preparations + self.burn_in
        return settled and read >= self.warm_up_commits(dim)

    def finished(self, iterate: Any) -> str | None:
        """Return the reason to end the run before its last commit, or None to continue."""
        found = int(iterate.totals[0])
        return f"{found} draws were made" if found >= self.draws else None

    def temperature(self, k: int) -> float:
        """Return infinity: a chain visits any U, so that a rise of U is no sign of divergence."""
        return math.inf

    def learn(self, view: Any, local: Any, problem: Problem, task: Any) -> Any:
        return local

    def forget(self, local: Any) -> Any:
        return local
