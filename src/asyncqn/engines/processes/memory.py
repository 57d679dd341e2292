"""Memory that processes of this machine share: it has no name, so nothing of it outlives them.

fd = shared_memory(nbytes)          zeros; the descriptor travels by fork, or through a socket
room = mapped(fd, nbytes)           what one process writes, the others see
pack(value), unpack(fd)             a Python object, its arrays in memory that readers share
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput

_ALIGNED = 64
Room = npt.NDArray[np.uint8]


def shared_memory(nbytes: int) -> int:
    """The descriptor of a nameless file of zeros, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("asyncqn")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, max(1, nbytes))
    except OSError:
        os.close(fd)
        raise
    return fd


def mapped(fd: int, nbytes: int, *, private: bool = False) -> Room:
    """The memory as an array, which keeps the mapping alive; private: what is written stays unseen."""
    kind = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    both = mmap.PROT_READ | mmap.PROT_WRITE
    return np.frombuffer(mmap.mmap(fd, max(1, nbytes), flags=kind, prot=both), np.uint8)


def pack(value: Any, name: str) -> int:
    """`value` in shared memory, for processes that this one starts; name: whose fault it is if it cannot be.

    Only processes of one run read it: no file of asyncqn is a pickle.
    """
    content, buffers = _pickled(value, name)
    pieces = [np.frombuffer(content, np.uint8), *(np.frombuffer(b.raw(), np.uint8) for b in buffers)]
    head = np.array([len(pieces), *(piece.size for piece in pieces)], np.int64)
    starts = _starts(head[1:])
    fd = shared_memory(starts[-1])
    room = mapped(fd, starts[-1])
    room[: head.nbytes] = head.view(np.uint8)
    for start, piece in zip(starts, pieces):
        room[start : start + piece.size] = piece
    return fd


def unpack(fd: int) -> Any:
    """What `pack` put there; its arrays may be written to, and are shared until they are."""
    room = mapped(fd, os.fstat(fd).st_size, private=True)
    count = int(room[:8].view(np.int64)[0])
    sizes = room[8 : 8 * (1 + count)].view(np.int64)
    content, *buffers = (room[start : start + size] for start, size in zip(_starts(sizes), sizes))
    return pickle.loads(content.data, buffers=[b.data for b in buffers])  # noqa: S301 - made by our master


def _starts(sizes: npt.NDArray[np.int64]) -> list[int]:
    """Where each piece begins after the head, and where all end."""
    ends = [8 * (1 + len(sizes))]
    for size in sizes.tolist():
        ends[-1] = -(-ends[-1] // _ALIGNED) * _ALIGNED
        ends.append(ends[-1] + size)
    return ends


def _pickled(value: Any, name: str) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """A pickle and its arrays; what a script defines itself travels by value where a package can do that.

    By name it would be looked for in the other process's own script.
    """
    buffers: list[pickle.PickleBuffer] = []
    reason: object = "it is defined in the script itself"
    try:
        content = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        if b"__main__" not in content:
            return content, buffers
    except Exception as error:  # whatever the class's own __reduce__ may raise
        reason = error
    for module in ("cloudpickle", "ray.cloudpickle", "joblib.externals.cloudpickle"):
        try:
            by_value = import_module(module)
        except ModuleNotFoundError:
            continue
        buffers.clear()
        try:
            return by_value.dumps(value, protocol=5, buffer_callback=buffers.append), buffers
        except Exception as error:
            reason = error
            break
    said = " ".join(str(reason).split()).rstrip(".:")
    raise BadInput(
        f"{name} cannot be sent to other processes ({said}): put it into a module and make it picklable, or "
        "use the engine threads."
    )
