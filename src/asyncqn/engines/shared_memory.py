"""Memory that processes of this machine share: it has no name, so nothing of it outlives them.

    fd = shared_memory(nbytes)          zeros; the descriptor travels by fork or through a socket
    room = mapped(fd, nbytes)           what one process writes, the others see

Processes that a launcher started have no socket between them.  On one machine they find each other's memory
through /proc:

    offer = offer_room(nbytes)          in one process: a room, and where to find it; or None
    room = enter_room(offer.address)    in the other, from the integers of the address; or None
    offer.close()                       once the other process has mapped it, or never will

Where the system has no such memory, or the processes are not on one machine, these return None.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

ADDRESS = 5
"""Integers of an address: process, file descriptor, bytes, machine, secret."""
_SECRET = 8
"""Bytes after an offered room that hold the secret, by which a stranger's memory is told from ours."""


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


class Offer(NamedTuple):
    """A room of zeros, and its address for the other process."""

    room: Bytes
    address: tuple[int, ...]

    def close(self) -> None:
        """Accept no further process; those that have mapped the memory keep it."""
        os.close(self.address[1])


def offer_room(nbytes: int) -> Offer | None:
    """Return shared memory with the address by which another process of this machine maps it, or None.

    It is None where the system has no such memory.
    """
    if not hasattr(os, "memfd_create") or (here := _machine()) is None:
        return None
    try:
        fd = shared_memory(nbytes + _SECRET)
    except OSError:
        return None
    try:
        whole = mapped(fd, nbytes + _SECRET)
    except OSError:
        os.close(fd)
        return None
    # A process number may be used again for another program; the secret proves that the memory is ours.
    secret = secrets.randbits(62)
    whole[nbytes:].view(np.int64)[0] = secret
    return Offer(whole[:nbytes], (os.getpid(), fd, nbytes, here, secret))


def enter_room(address: Sequence[int]) -> Bytes | None:
    """Return the room that another process offers; None where it is not within reach."""
    process, fd, nbytes, machine, secret = map(int, address)
    if process == 0 or machine != _machine():
        return None
    path = f"/proc/{process}/fd/{fd}"
    with suppress(OSError):
        found = os.stat(path)
        # Look before opening: opening a pipe or a device of a stranger could block or do harm.
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes + _SECRET:
            return None
        opened = os.open(path, os.O_RDWR)
        try:
            whole = mapped(opened, nbytes + _SECRET)
        finally:
            os.close(opened)
        if whole[nbytes:].view(np.int64)[0] == secret:
            return whole[:nbytes]
    return None


def _machine() -> int | None:
    """Return a number that processes share if they see each other: of one boot and one table of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        # Containers on one machine have process tables of their own, in which the same number means another
        # process.
        table = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None
    # Seven bytes, so that the number fits a signed 64-bit integer of a message header.
    return int.from_bytes(hashlib.sha256(boot + str(table).encode()).digest()[:7])
