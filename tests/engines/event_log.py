"""A log of what happened to a master, which drives a fresh one to the same end."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.copies import copied
from asyncqn.engines.worker_loop import Step


class Event(NamedTuple):
    """Something that happened to the master."""

    kind: Literal["join", "ask", "deliver", "lost", "tick"]
    now: float
    worker: int | None = None
    update: Any | None = None
    """Of an update; None: it was rejected."""
    flag: bool = False
    """Of an update: the worker wants work at once."""


class LoggedMaster:
    """A `Coordinator` whose events are noted in `events`; all else is the state's own."""

    def __init__(self, state: Coordinator) -> None:
        self.state = state
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)

    def join(self, now: float, worker: int | None = None) -> int:
        self.events.append(Event("join", now, worker))
        return self.state.join(now, worker)

    def ask(self, worker: int, now: float) -> list[Step]:
        self.events.append(Event("ask", now, worker))
        return self.state.ask(worker, now)

    def deliver(
        self, worker: int, update: Any | None, now: float, *, ask: bool = True
    ) -> list[Step]:
        self.events.append(Event("deliver", now, worker, copied(update), ask))
        return self.state.deliver(worker, update, now, ask=ask)

    def lost(self, worker: int, now: float) -> list[Step]:
        self.events.append(Event("lost", now, worker))
        return self.state.lost(worker, now)

    def tick(self, now: float) -> list[Step]:
        self.events.append(Event("tick", now))
        return self.state.tick(now)


def happen(state: Coordinator, event: Event) -> list[Step]:
    """What an event of a log makes the master do."""
    kind, now, worker, update, flag = event
    if kind == "join":
        state.join(now, worker)
        return []
    if kind == "tick":
        return state.tick(now)
    assert worker is not None
    if kind == "ask":
        return state.ask(worker, now)
    if kind == "lost":
        return state.lost(worker, now)
    return state.deliver(worker, update, now, ask=flag)
