"""Messages between processes as buffers: a header of integers, then the numbers, no pickle, no copies.

The shape of a message never changes during a run, so a buffer is laid out once from a sample.  An
array of the message is a view into the buffer wherever precision allows.  Where both sides share
memory, the numbers lie there and the message is the header alone.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.engines.copies import leaves, rebuilt
from asyncqn.engines.shared_memory import Bytes
from asyncqn.engines.worker_loop import Step
from asyncqn.errors import BadInput
from asyncqn.runs.checkpoint import Arrays

HEADER = 8
"""Integers before the numbers; the first says what kind of message it is, 0 means none yet."""
_HEAD = struct.Struct(f"={HEADER}q")
_ZEROS = (0,) * HEADER
_NO_PART = -1
"""In a header in place of a part."""
_ALIGNED = 64
"""Bytes to which the start of every array is aligned: a cache line, and the width of the widest vectors."""


class Frame:
    """The buffer of a message that is a tuple like `sample`, of arrays, numbers and such tuples.

    Parameters
    ----------
    sample : tuple
        A message, which shows the shapes and types of all of them.
    narrow : bool, default False
        Whether float64 travels as float32.
    room : array of bytes, optional
        Memory for the numbers that sender and receiver share.

    Attributes
    ----------
    buffer : array of bytes
        What a message carries.
    slots : list of arrays
        Views of the places of its arrays.
    """

    def __init__(
        self,
        sample: tuple[Any, ...],
        narrow: bool = False,
        room: Bytes | None = None,
    ) -> None:
        # Numbers travel as arrays of one entry; their types are restored on arrival.
        kinds = [
            None if isinstance(value, np.ndarray) else type(value)
            for value in leaves(sample)
        ]
        self._kinds = kinds if any(kinds) else None
        self._nested = (
            tuple(sample) if any(isinstance(value, tuple) for value in sample) else None
        )
        self._narrow = narrow
        flat, dtypes, starts, end = _layout(sample, narrow)
        head = HEADER * 8
        # With shared memory only the header is sent.
        carried = head + end if room is None else head
        # Allocated as 64-bit words, so that views of float64 and int64 are aligned.
        self.buffer: Bytes = np.zeros(carried // 8, np.uint64).view(np.uint8)
        self.header: npt.NDArray[np.int64] = self.buffer[:head].view(np.int64)
        body = self.buffer[head:] if room is None else room[:end]
        self.slots = [
            body[start : start + leaf.size * dtype.itemsize]
            .view(dtype)
            .reshape(leaf.shape)
            for start, leaf, dtype in zip(starts, flat, dtypes)
        ]
        self._values: list[Any] = [
            slot if slot.dtype == leaf.dtype else np.zeros_like(leaf)
            for slot, leaf in zip(self.slots, flat)
        ]

    @property
    def head(self) -> Bytes:
        """The header alone, as a message without numbers."""
        return self.buffer[: HEADER * 8]

    def address(self, *integers: int) -> None:
        """Fill the header; what is not given is zero."""
        _HEAD.pack_into(self.buffer.data, 0, *integers, *_ZEROS[len(integers) :])

    def pack(self, values: tuple[Any, ...]) -> None:
        """Copy a message into the buffer, but for arrays that are its slots already."""
        values = values if self._nested is None else tuple(leaves(tuple(values)))
        if self._narrow:
            # Overflow to infinity is part of the rounding; the receiver rejects such an update.
            with np.errstate(over="ignore"):
                for slot, value in zip(self.slots, values):
                    # float64 to float32: the rounding that a replay repeats (`core.worker.Float32Wire`).
                    np.copyto(slot, value, casting="same_kind")
        else:
            for slot, value in zip(self.slots, values):
                if value is not slot:
                    slot[...] = value

    def unpack(self) -> list[Any]:
        """Return the message in the buffer: numbers, and arrays that are valid until the next message."""
        if self._narrow:
            for value, slot in zip(self._values, self.slots):
                if value is not slot:
                    np.copyto(value, slot)
        if self._kinds is None and self._nested is None:
            # The common case, at every message: arrays only, not nested.
            return self._values
        kinds = self._kinds or [None] * len(self._values)
        flat = [
            value if kind is None else kind(value[()])
            for value, kind in zip(self._values, kinds)
        ]
        return flat if self._nested is None else list(rebuilt(self._nested, iter(flat)))


class Frames:
    """The messages of one worker, laid out alike on both sides: its update, and two orders that take turns.

    The next order arrives beside the last one, which `learn` may still look at.

    Parameters
    ----------
    sent, update : tuple
        The fields of an iterate that are sent, and an update, which show what all of them look like.
    narrow : bool
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
        rooms: list[Bytes | None] = [None] * 3
        if room is not None:
            first = _body_bytes(update, narrow)
            rooms = [room, room[first:], room[first + _body_bytes(sent, narrow) :]]
        self.update = Frame(update, narrow, rooms[0])
        self._orders = [Frame(sent, narrow, place) for place in rooms[1:]]
        self._turn = 0

    @staticmethod
    def nbytes(
        sent: tuple[Any, ...], update: tuple[Any, ...], narrow: bool = False
    ) -> int:
        """Return the bytes of the memory that both sides may share."""
        return _body_bytes(update, narrow) + 2 * _body_bytes(sent, narrow)

    @property
    def order(self) -> Frame:
        """The frame of the next order."""
        return self._orders[self._turn]

    def take_order(self) -> Frame:
        """Return the frame of the next order; the one after that is another."""
        frame = self.order
        self._turn = 1 - self._turn
        return frame


def order_header(order: Step) -> tuple[int, ...]:
    """Return an order as integers."""
    part = _NO_PART if order.part is None else order.part
    return order.worker, order.read, order.k, part, order.hand_in


def order_from(header: Sequence[int]) -> Step:
    """Return the order that `order_header` made into integers."""
    worker, read, k, part, hand_in = header
    return Step(worker, read, k, None if part == _NO_PART else part, bool(hand_in))


def _body_bytes(sample: tuple[Any, ...], narrow: bool) -> int:
    """Return the bytes of the numbers of such a message, without the header."""
    return _layout(sample, narrow)[3]


def _layout(
    sample: tuple[Any, ...], narrow: bool
) -> tuple[list[npt.NDArray[Any]], list[np.dtype[Any]], list[int], int]:
    """Return the message's leaves, the types in which they travel, the start of each, and the end of all."""
    flat = [_leaf(value) for value in leaves(tuple(sample))]
    dtypes = [
        np.dtype(np.float32)
        if narrow and leaf.ndim and leaf.dtype == np.float64
        else leaf.dtype
        for leaf in flat
    ]
    starts, end = [], 0
    for leaf, dtype in zip(flat, dtypes):
        starts.append(end)
        end = _round_up(end + leaf.size * dtype.itemsize)
    return flat, dtypes, starts, end


def _leaf(value: Any) -> npt.NDArray[Any]:
    leaf = np.asarray(value)
    if (
        isinstance(value, (np.ndarray, np.generic, bool, int, float))
        and leaf.dtype.kind in "biuf"
    ):
        return leaf
    raise BadInput(
        f"a message cannot be sent to another process: it holds a {type(value).__name__}; "
        "use arrays and numbers only."
    )


def _round_up(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


def arrays_to_bytes(arrays: Arrays) -> Bytes:
    """Return named arrays as bytes, for what is sent rarely."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return np.frombuffer(file.getbuffer(), np.uint8)


def arrays_from_bytes(content: Bytes) -> Arrays:
    """Return the arrays that `arrays_to_bytes` wrote."""
    with np.load(io.BytesIO(content.data), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
