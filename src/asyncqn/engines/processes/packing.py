"""A Python object in shared memory, from which the workers of a run load it; its arrays are not copied.

It is a pickle, which only processes of one run read: no file of asyncqn is one.
"""

from __future__ import annotations

import os
import pickle
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.engines.shared_memory import mapped, shared_memory
from asyncqn.errors import BadInput

PICKLERS = ("pickle", "cloudpickle", "ray.cloudpickle", "joblib.externals.cloudpickle")
"""All but the first send classes by value; the last two come with other packages."""
_ALIGNMENT = 64
"""Bytes to which every piece is aligned: a cache line, and the width of the widest vectors."""


def pickled(value: Any, name: str) -> list[npt.NDArray[np.uint8]]:
    """Return the pickle of an object and its arrays, as bytes; an error blames `name`.

    A class that the user's script defines travels by value, if a package can do that: by name the other
    process would look for it in its own script.
    """
    reason = "it is defined in the script itself"
    for pickler in PICKLERS:
        buffers: list[pickle.PickleBuffer] = []
        try:
            dumps = import_module(pickler).dumps
            # The first protocol that keeps large arrays outside of the pickle.
            content = bytes(dumps(value, protocol=5, buffer_callback=buffers.append))
        except ModuleNotFoundError:
            continue
        except Exception as error:  # whatever the class's own __reduce__ may raise
            reason = " ".join(str(error).split()).rstrip(".:")
            continue
        if pickler == "pickle" and b"__main__" in content:
            continue
        arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        return [np.frombuffer(content, np.uint8), *arrays]
    raise BadInput(
        f"{name} cannot be sent to other processes ({reason}): put it into a module and make it "
        "picklable, or use the engine threads."
    )


def pack(value: Any, name: str) -> int:
    """Put a Python object into shared memory and return its descriptor; an error blames `name`."""
    pieces = pickled(value, name)
    head = np.array([len(pieces), *(piece.size for piece in pieces)], np.int64)
    starts = _starts(head[1:])
    fd = shared_memory(starts[-1])
    room = mapped(fd, starts[-1])
    room[: head.nbytes] = head.view(np.uint8)
    for start, piece in zip(starts, pieces):
        room[start : start + piece.size] = piece
    return fd


def unpack(fd: int) -> Any:
    """Return the object that `pack` stored; its arrays are shared until they are written to."""
    # Copy on write: a worker that writes to its data does not disturb the others.
    room = mapped(fd, os.fstat(fd).st_size, private=True)
    count = int(room[:8].view(np.int64)[0])
    sizes = room[8 : 8 * (1 + count)].view(np.int64)
    content, *buffers = (
        room[start : start + size] for start, size in zip(_starts(sizes), sizes)
    )
    return pickle.loads(content.data, buffers=[b.data for b in buffers])  # noqa: S301 - made by our master


def _starts(sizes: npt.NDArray[np.int64]) -> list[int]:
    """Return the start of each piece after the head, and the end of all."""
    ends = [8 * (1 + len(sizes))]
    for size in sizes.tolist():
        ends[-1] = -(-ends[-1] // _ALIGNMENT) * _ALIGNMENT
        ends.append(ends[-1] + size)
    return ends
