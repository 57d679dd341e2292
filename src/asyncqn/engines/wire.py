"""Messages between processes: a header of integers, then numbers at fixed places, and no pickle.

The shape of a message never changes during a run, so its buffer is laid out once from a sample.  An array of a
message is a view into the buffer wherever precision allows.  Where both sides share memory, the numbers lie
there and the message is the header alone.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.engines.copies import leaves, rebuilt
from asyncqn.engines.shared_memory import Bytes
from asyncqn.engines.worker_loop import Step
from asyncqn.errors import BadInput
from asyncqn.runs.checkpoint import Arrays

INTEGERS = 8
"""Integers of a header; the first is the kind of the message."""
HEADER = struct.Struct(f"={INTEGERS}q")
_NO_PART = -1
"""In a header in place of a part."""
_ALIGNMENT = 64
"""Bytes to which the start of every array is aligned: a cache line, and the width of the widest vectors."""


class MessageKind(IntEnum):
    """The kinds of messages, and the integers that follow them."""

    NONE = 0
    # To a worker.
    START = 1  # number
    WORK = 2  # an order
    STOP = 3
    # From a worker; the content of the last three follows.
    READY = 4
    UPDATE = 5  # nanoseconds
    REJECTED = 6  # nanoseconds
    STATE = 7
    LAST_STATE = 8
    FAILED = 9


def header_bytes(kind: MessageKind, *integers: int) -> bytes:
    """Return a header; what is not given is zero."""
    return HEADER.pack(kind, *integers, *(0,) * (INTEGERS - 1 - len(integers)))


def order_integers(order: Step) -> tuple[int, ...]:
    """Return an order as integers."""
    part = _NO_PART if order.part is None else order.part
    return order.worker, order.read, order.k, part, order.hand_in


def order_from(integers: Sequence[int]) -> Step:
    """Return the order that `order_integers` made into integers."""
    worker, read, k, part, hand_in = integers[:5]
    return Step(worker, read, k, None if part == _NO_PART else part, bool(hand_in))


class LeafPlace(NamedTuple):
    """LeafPlace of a number or an array in a message, its own type, and the one in which it travels."""

    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    travels: np.dtype[Any]


class Layout:
    """The places of the numbers of all messages that look like `sample`.

    Parameters
    ----------
    sample : tuple
        A tuple of arrays, numbers and such tuples.
    narrow : bool, default False
        Whether float64 arrays travel as float32.
    """

    def __init__(self, sample: tuple[Any, ...], narrow: bool = False) -> None:
        self.sample = sample
        self.places: list[LeafPlace] = []
        self.nbytes = 0
        for value in leaves(sample):
            leaf = _numbers(value)
            travels = leaf.dtype
            if narrow and leaf.ndim and leaf.dtype == np.float64:
                travels = np.dtype(np.float32)
            stop = self.nbytes + leaf.size * travels.itemsize
            place = LeafPlace(self.nbytes, stop, leaf.shape, leaf.dtype, travels)
            self.places.append(place)
            self.nbytes = -(-stop // _ALIGNMENT) * _ALIGNMENT


class Frame:
    """The buffer of a message: a header, and numbers in it or in memory that both sides share.

    Parameters
    ----------
    layout : Layout
        The places of the numbers.
    room : array of bytes, optional
        Memory for the numbers that sender and receiver share.

    Attributes
    ----------
    buffer : array of bytes
        What a message carries.
    """

    def __init__(self, layout: Layout, room: Bytes | None = None) -> None:
        self._sample = layout.sample
        self._types = [type(value) for value in leaves(layout.sample)]
        self._dtypes = [place.dtype for place in layout.places]
        own = layout.nbytes if room is None else 0
        # Allocated as 64-bit words, so that views of float64 and int64 are aligned.
        words = np.zeros((HEADER.size + own) // 8, np.uint64)
        self.buffer: Bytes = words.view(np.uint8)
        self.head: Bytes = self.buffer[: HEADER.size]
        """The header alone, as a message without numbers."""
        body = self.buffer[HEADER.size :] if room is None else room
        self.slots = [
            body[place.start : place.stop].view(place.travels).reshape(place.shape)
            for place in layout.places
        ]

    def address(self, kind: MessageKind, *integers: int) -> None:
        """Fill the header."""
        self.head.data[:] = header_bytes(kind, *integers)

    def header(self) -> tuple[int, ...]:
        """Return the integers of the header."""
        return HEADER.unpack(self.head.data)

    def pack(self, message: tuple[Any, ...]) -> None:
        """Copy a message into the buffer."""
        # Overflow to infinity is part of the rounding to float32, which a replay repeats
        # (`core.worker.Float32Wire`); the receiver rejects such an update.
        with np.errstate(over="ignore"):
            for slot, value in zip(self.slots, leaves(message)):
                np.copyto(slot, value, casting="same_kind")

    def unpack(self) -> Any:
        """Return the message in the buffer; its arrays are valid until the next message."""
        # Numbers travel as arrays of one entry, and get their own type back.
        values = (
            slot.astype(dtype, copy=False) if kind is np.ndarray else kind(slot[()])
            for slot, kind, dtype in zip(self.slots, self._types, self._dtypes)
        )
        return rebuilt(self._sample, values)


class Frames:
    """The messages of one worker, laid out alike on both sides: its update, and two orders that take turns.

    The next order arrives beside the last one, which `learn` may still look at.

    Parameters
    ----------
    sent, update : tuple
        The fields of an iterate that are sent, and an update, which show what all of them look like.
    narrow : bool, default False
        Whether float64 travels as float32.
    room : array of bytes, optional
        Memory of `Frames.nbytes` that both sides share; without it the messages carry the numbers.
    """

    def __init__(
        self,
        sent: tuple[Any, ...],
        update: tuple[Any, ...],
        narrow: bool = False,
        room: Bytes | None = None,
    ) -> None:
        order, answer = Layout(sent, narrow), Layout(update, narrow)
        self.update = Frame(answer, room)
        rooms: list[Bytes | None] = [None, None]
        if room is not None:
            first = answer.nbytes
            rooms = [room[first:], room[first + order.nbytes :]]
        self._orders = [Frame(order, place) for place in rooms]

    @staticmethod
    def nbytes(sent: tuple[Any, ...], update: tuple[Any, ...]) -> int:
        """Return the bytes of the memory that both sides may share."""
        return Layout(update).nbytes + 2 * Layout(sent).nbytes

    @property
    def order(self) -> Frame:
        """The frame of the next order."""
        return self._orders[0]

    def take_order(self) -> Frame:
        """Return the frame of the next order; the one after that is another."""
        self._orders.reverse()
        return self._orders[1]


def _numbers(value: Any) -> npt.NDArray[Any]:
    """Return an array or a number as an array; raise `BadInput` for anything else."""
    leaf = np.asarray(value)
    plain = isinstance(value, (np.ndarray, np.generic, bool, int, float))
    if plain and leaf.dtype.kind in "biuf":
        return leaf
    raise BadInput(
        f"a message cannot be sent to another process: it holds a {type(value).__name__}; "
        "use arrays and numbers only."
    )


def arrays_to_bytes(arrays: Arrays) -> bytes:
    """Return named arrays as bytes, for what is sent rarely."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def arrays_from_bytes(content: bytes | bytearray) -> Arrays:
    """Return the arrays that `arrays_to_bytes` wrote."""
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
