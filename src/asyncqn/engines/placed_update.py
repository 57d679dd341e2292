"""PlacedUpdate: a worker's update lives in its message, so that sending it needs no copy.

An algorithm writes its update into arrays of the worker's state.  After the first update those arrays are
places in the message itself, and packing the next one finds every number already there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.engines.copies import copied, leaves
from asyncqn.engines.wire import Frame
from asyncqn.types import Array


class PlacedUpdate:
    """The outgoing message of one worker, and whether the arrays of its updates live there."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._placed: bool | None = None

    def pack(self, update: Any, local: Any) -> Any:
        """Put an update into the message; return the worker's state, whose arrays may have moved.

        A worker that sends other arrays after all gets arrays of its own again, because a copy into the
        message would otherwise overwrite its state.
        """
        slots = self.frame.slots
        # The first update shows which arrays of the state it consists of; they move into the message.
        if self._placed is None:
            arrays = [
                (v, slot)
                for v, slot in zip(leaves(tuple(update)), slots)
                if isinstance(v, np.ndarray)
            ]
            local = moved(local, {id(v): slot for v, slot in arrays})
            self._placed = True
        # This algorithm allocates new arrays after all: give its state arrays of its own again, and copy
        # from now on.
        elif self._placed and not _lives_in(update, slots):
            update = copied(tuple(update))
            local = moved(local, {id(slot): np.empty_like(slot) for slot in slots})
            self._placed = False
        # Copies what does not lie in the message yet, such as single numbers.
        self.frame.pack(update)
        return local


def moved(state: Any, places: Mapping[int, Array]) -> Any:
    """Return a state whose arrays with the given ids are moved to other places, with their numbers."""
    if isinstance(state, tuple):
        children = [moved(child, places) for child in state]
        return state._make(children) if hasattr(state, "_make") else tuple(children)
    if (place := places.get(id(state))) is None:
        return state
    place[...] = state
    return place


def _lives_in(update: tuple[Any, ...], slots: list[npt.NDArray[Any]]) -> bool:
    """Return whether the arrays of an update are those of its message."""
    for value, slot in zip(leaves(tuple(update)), slots):
        if value is not slot and isinstance(value, np.ndarray):
            return False
    return True
