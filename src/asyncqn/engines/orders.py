"""Orders of the coordinator to the engines, and its record of each worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from asyncqn.core.master import new_tuple
from asyncqn.core.streams import Stream
from asyncqn.runs.checkpoint import Arrays, flatten
from asyncqn.types import Algorithm, Task, extra


def sent_fields(algorithm: Algorithm, iterate: Any) -> tuple[str, ...]:
    """Return the fields of the iterate that a worker reads: the algorithm's `sent`, or all."""
    return tuple(extra(algorithm, "sent") or iterate._fields)


def state_arrays(worker: int, state: Any) -> Arrays:
    """Return copies of a worker's state, by the names under which checkpoints store it."""
    return flatten(f"worker.{worker}", state)


class Assign(NamedTuple):
    """Send `worker` the current iterate, which is version `read`, for its k-th step."""

    worker: int
    read: int
    k: int
    part: int | None = None
    hand_in: bool = False

    def task(self, seed: int) -> Task:
        # `new_tuple`, because this runs at every step.
        worker, read, k, part, _ = self
        return new_tuple(
            Task, (worker, read, new_tuple(Stream, (seed, worker, k)), part)
        )


@dataclass(slots=True)
class Member:
    """The master's record of a worker; `read` is the version it computes on, None while it does not."""

    k: int
    since: float = 0.0
    waiting: bool = False
    read: int | None = None
    last_read: int | None = None
    part: int | None = None
