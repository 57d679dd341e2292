"""Channel: one end of a socket between the master and a worker.

A message is a header of eight integers (its kind first, the size of its content last) and that content,
which most messages lack: numbers lie in shared memory.  The system closes a socket however a process
ends, so the other end always learns of a death.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from typing import NamedTuple

from asyncqn.engines.wire import HEADER

# Kinds of messages to a worker: (number or -1), (worker, read, k, part, hand_in), (worker).
START = 1
WORK = 2
STOP = 3
# Kinds of messages from a worker: UPDATE and REJECTED with nanoseconds, the last three with content.
READY = 11
UPDATE = 12
REJECTED = 13
STATE = 14
LAST_STATE = 15
FAILED = 16

_HEAD = struct.Struct(f"={HEADER}q")
_ZEROS = (0,) * HEADER


class Message(NamedTuple):
    """A message that has arrived: its kind, its six integers, and its content."""

    kind: int
    numbers: tuple[int, ...]
    content: bytearray


class Channel:
    """Messages over a socket; its methods raise `Gone` if the process at the other end has ended."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._head = bytearray(_HEAD.size)
        self._header: tuple[int, ...] | None = None
        self._part = memoryview(self._head)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, kind: int, *numbers: int, content: bytes | memoryview = b"") -> None:
        """Send a message; only one with a large content may have to wait for its receiver."""
        padding = _ZEROS[: HEADER - 2 - len(numbers)]
        try:
            self._socket.sendall(_HEAD.pack(kind, *numbers, *padding, len(content)))
            if len(content):
                self._socket.sendall(content)
        except OSError as error:
            raise Gone from error

    def receive(self) -> Message:
        """Wait for the next message and return it."""
        while (message := self._next(0)) is None:
            pass
        return message

    def arrived(self) -> Message | None:
        """Return the next message if all of it has arrived, without waiting."""
        return self._next(socket.MSG_DONTWAIT)

    def _next(self, flags: int) -> Message | None:
        try:
            # Into the rest of the header or of the content: a message may arrive in several pieces.
            got = self._socket.recv_into(self._part, 0, flags)
        except BlockingIOError:
            return None
        except OSError as error:
            raise Gone from error
        if got == 0:
            raise Gone
        if got < len(self._part):
            self._part = self._part[got:]
            return None
        if self._header is None:
            header = _HEAD.unpack(self._head)
            if header[-1]:
                self._header, self._content = header, bytearray(header[-1])
                self._part = memoryview(self._content)
                return None
            content = bytearray()
        else:
            header, content = self._header, self._content
            self._header = None
        self._part = memoryview(self._head)
        return Message(header[0], header[1:-1], content)

    def end_with_the_other(self) -> None:
        """End this process from now on as soon as the one at the other end does, whatever it computes."""

        def watch() -> None:
            hung_up = select.poll()
            hung_up.register(self._socket, 0)  # no events but the end of the other side
            hung_up.poll()
            os._exit(1)

        threading.Thread(target=watch, name="asyncqn master", daemon=True).start()


class Gone(Exception):
    """The process at the other end is no longer there."""
