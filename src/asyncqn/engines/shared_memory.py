"""Memory that processes of this machine share: it has no name, so nothing of it outlives them.

fd = shared_memory(nbytes)          zeros; the descriptor travels by fork or through a socket
room = mapped(fd, nbytes)           what one process writes, the others see
"""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def shared_memory(nbytes: int) -> int:
    """Return the descriptor of a nameless file of zeros, in memory where the system has such files."""
    # A file descriptor without a name: nothing is left in /dev/shm, however the processes end.
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


def mapped(fd: int, nbytes: int, *, private: bool = False) -> Bytes:
    """Return the memory as an array, which keeps the mapping alive; private: what is written stays unseen."""
    kind = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    both = mmap.PROT_READ | mmap.PROT_WRITE
    return np.frombuffer(mmap.mmap(fd, max(1, nbytes), flags=kind, prot=both), np.uint8)
