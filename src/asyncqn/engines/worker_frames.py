"""The messages of one worker in another process: where its iterates arrive, and its updates leave."""

from __future__ import annotations

from typing import Any

from asyncqn.engines.shared_memory import Room
from asyncqn.engines.wire import Frame, message_frames


class WorkerFrames:
    """Two places for iterates and one for updates, laid out as the master lays them out.

    There are two for iterates because `learn` still looks at the first when the next arrives.

    Parameters
    ----------
    iterate : NamedTuple
        An iterate, which shows what all of them look like.
    fields : tuple of str
        The fields of it that are sent; the others are None in a view.
    update : NamedTuple
        An update, likewise.
    narrow : bool
        Whether float64 travels as float32.
    room : array of bytes or None
        Memory shared with the master; None where messages carry the numbers.
    """

    def __init__(
        self,
        iterate: Any,
        fields: tuple[str, ...],
        update: Any,
        narrow: bool,
        room: Room | None,
    ) -> None:
        sent = tuple(getattr(iterate, name) for name in fields)
        self.outgoing, *self._incoming = message_frames(sent, update, narrow, room)
        self._iterate = iterate
        self._fields = fields
        self._turn = 0

    @property
    def incoming(self) -> Frame:
        """The frame in which the next order arrives."""
        return self._incoming[self._turn]

    def take(self) -> Any:
        """Return the iterate that has arrived; the next one arrives beside it."""
        values, self._turn = self.incoming.unpack(), 1 - self._turn
        if self._fields == self._iterate._fields:
            return self._iterate._make(values)
        arrived = dict(zip(self._fields, values))
        return self._iterate._make(
            [arrived.get(name) for name in self._iterate._fields]
        )
