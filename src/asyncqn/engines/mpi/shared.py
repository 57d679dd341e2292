"""Memory that two processes of one machine share, so that large messages between them need no copy.

    offer = offer_room(nbytes)              in one process: a room, and where to find it; or None
    room = enter_room(offer.address)        in the other, from the integers of the address; or None
    offer.close()                           once the other process has mapped it, or never will

The memory has no name in any file system: it goes when the last process that uses it goes, however
that ends.  Where the system has no such memory, or the processes are not on one machine, the
answer is None and messages carry everything.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

ADDRESS = 5
"""Integers of an address: process, file descriptor, bytes, machine, secret."""
_SECRET = 8
"""Bytes after the room that hold the secret, by which a stranger's memory is told from ours."""


class Offer(NamedTuple):
    """A room of zeros, and its address for the other process."""

    room: npt.NDArray[np.uint8]
    address: tuple[int, ...]

    def close(self) -> None:
        """Accept no further process; those that have mapped the memory keep it."""
        os.close(self.address[1])


def offer_room(nbytes: int) -> Offer | None:
    """Memory that another process of this machine may enter; None where the system has none."""
    if not hasattr(os, "memfd_create") or (here := _machine()) is None:
        return None
    try:
        fd = os.memfd_create("asyncqn")
    except OSError:
        return None
    try:
        os.ftruncate(fd, nbytes + _SECRET)
        whole = _mapped(fd, nbytes)
    except OSError:
        os.close(fd)
        return None
    secret = secrets.randbits(62)
    whole[nbytes:].view(np.int64)[0] = secret
    return Offer(whole[:nbytes], (os.getpid(), fd, nbytes, here, secret))


def enter_room(address: Sequence[int]) -> npt.NDArray[np.uint8] | None:
    """The room that another process offers; None where it is not within reach."""
    process, fd, nbytes, machine, secret = map(int, address)
    if process == 0 or machine != _machine():
        return None
    path = f"/proc/{process}/fd/{fd}"
    with suppress(OSError):
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes + _SECRET:
            return None
        opened = os.open(path, os.O_RDWR)
        try:
            whole = _mapped(opened, nbytes)
        finally:
            os.close(opened)
        if whole[nbytes:].view(np.int64)[0] == secret:
            return whole[:nbytes]
    return None


def _mapped(fd: int, nbytes: int) -> npt.NDArray[np.uint8]:
    """Room and secret; the array keeps the mapping alive."""
    return np.frombuffer(mmap.mmap(fd, nbytes + _SECRET), np.uint8)


def _machine() -> int | None:
    """A number that processes share if they see each other: one boot of a kernel, one table of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        table = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None
    return int.from_bytes(hashlib.sha256(boot + str(table).encode()).digest()[:7])
