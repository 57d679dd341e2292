"""What all real engines share: their options, and the master's state that these and a request make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from asyncqn.core.cluster import Cluster
from asyncqn.core.request import Request
from asyncqn.core.serialise import to_json
from asyncqn.engines.clock import Clock
from asyncqn.engines.master_state import MasterState
from asyncqn.errors import require


@dataclass(frozen=True, kw_only=True)
class RealEngine:
    """Options of every real engine.

    timing_model: a cluster whose drawn delays, messages and service times every computation is stretched
    to; time_unit: seconds of one unit of time, in which the timing model, an algorithm's timeout and the
    schedule are told; max_staleness: an asynchronous update older than this many commits is dropped and its
    worker reads anew; give_up_after: units of time after which a worker that does not answer is given up.
    """

    timing_model: Cluster | None = None
    time_unit: float = 1.0
    max_staleness: int | None = None
    give_up_after: float = math.inf

    def check_options(self, workers: int | None, *, mortal: bool = False) -> None:
        """Raise `BadInput` for impossible options; workers: how many, where that is known beforehand;
        mortal: whether the engine can follow the deaths and joins of a timing model."""
        model = self.timing_model
        require(model is None or isinstance(model, Cluster), "timing_model must be a Cluster, or None.")
        require(
            model is None or mortal or not (model.deaths or model.joins),
            f"under {type(self).__name__} timing_model cannot have deaths or joins: use Threads for those.",
        )
        require(
            model is None or not (model.link or model.recoveries),
            "timing_model cannot have a link or recoveries, which only the simulator follows.",
        )
        require(
            model is None or workers is None or model.workers == workers,
            f"timing_model describes {model.workers if model else 0} workers, but there are {workers}.",
        )
        require(0.0 < self.time_unit < math.inf, f"time_unit must be positive, not {self.time_unit!r}.")
        require(
            self.max_staleness is None or self.max_staleness >= 0,
            f"max_staleness must not be negative, not {self.max_staleness!r}.",
        )
        require(self.give_up_after > 0.0, f"give_up_after must be positive, not {self.give_up_after!r}.")

    def master_state(
        self, request: Request, kind: str, workers: int, clock: Clock, *, gives_up: bool = True
    ) -> MasterState:
        """The state machine of the master; its checkpoint folder is made ready.

        clock: of the run, which stands still while metrics are evaluated.
        gives_up: whether it is the state that gives up silent workers, and not the engine itself.
        """
        model, checkpoints = self.timing_model, request.checkpoints
        state = MasterState(
            request,
            workers=workers,
            engine={"kind": kind, **self.options()},
            pause=clock.paused,
            max_staleness=self.max_staleness,
            give_up_after=self.give_up_after if gives_up else math.inf,
            reach=0.0 if model is None else model.message / 2,
            service=0.0 if model is None else model.master,
            due=None if checkpoints is None else checkpoints.due,
            start=None if checkpoints is None else checkpoints.start,
        )
        if checkpoints is not None:
            checkpoints.prepare()
        return state

    def options(self) -> dict[str, Any]:
        """The engine's parameters as plain data, for the manifest."""
        plain: dict[str, Any] = to_json(self)
        return plain


def is_count(value: object, least: int) -> bool:
    """Whether it is an integer of at least so much, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
