"""Channel: one end of a socket between the master and a worker.

A message is a header of integers (its kind first, the size of its content last) and that content, which most
messages lack: numbers lie in shared memory.  The system closes a socket however a process ends, so the other
end always learns of a death.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from typing import NamedTuple

from asyncqn.engines.wire import HEADER, INTEGERS, MessageKind


class Message(NamedTuple):
    """A message that has arrived: its kind, its integers, and its content."""

    kind: MessageKind
    integers: tuple[int, ...]
    content: bytearray


class Channel:
    """Messages over a socket; its methods raise `Gone` if the process at the other end has ended."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._begin()

    def _begin(self) -> None:
        """Expect a header."""
        self._header: tuple[int, ...] = ()
        self._bytes = bytearray(HEADER.size)
        self._missing = memoryview(self._bytes)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, kind: MessageKind, *integers: int, content: bytes = b"") -> None:
        """Send a message; only one with a large content may have to wait for its receiver."""
        padding = (0,) * (INTEGERS - 2 - len(integers))
        header = HEADER.pack(kind, *integers, *padding, len(content))
        try:
            self._socket.sendall(header)
            if content:
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
            count = self._socket.recv_into(self._missing, 0, flags)
        except BlockingIOError:
            return None
        except OSError as error:
            raise Gone from error
        if count == 0:
            raise Gone
        self._missing = self._missing[count:]
        if self._missing:
            return None
        content = bytearray()
        if self._header:
            content = self._bytes
        else:
            self._header = HEADER.unpack(self._bytes)
            if size := self._header[-1]:
                self._bytes = bytearray(size)
                self._missing = memoryview(self._bytes)
                return None
        kind, *integers, _ = self._header
        self._begin()
        return Message(MessageKind(kind), tuple(integers), content)

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
