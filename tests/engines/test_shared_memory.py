"""Memory shared by two processes: both see it, strangers do not, and nothing of it stays behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import child_environment

from asyncqn.engines import shared_memory as shared
from asyncqn.engines.shared_memory import Offer, enter_room, offer_room

DOUBLE = """
import sys
from asyncqn.engines.shared_memory import enter_room
room = enter_room([int(word) for word in sys.argv[1:]])
room *= 2
"""


def offered(nbytes: int) -> Offer:
    offer = offer_room(nbytes)
    assert offer is not None, "this system has no memory files"
    return offer


def test_what_one_process_writes_the_other_finds() -> None:
    offer = offered(1000)
    offer.room[:] = 21
    command = [sys.executable, "-c", DOUBLE, *map(str, offer.address)]
    subprocess.run(command, env=child_environment(), check=True, timeout=60)
    assert (offer.room == 42).all()
    offer.close()


def test_who_has_entered_stays_and_nobody_enters_later() -> None:
    offer = offered(100)
    room = enter_room(offer.address)
    offer.close()
    assert room is not None
    offer.room[3] = 7
    assert room[3] == 7
    assert enter_room(offer.address) is None


def test_strangers_find_no_room() -> None:
    offer = offered(100)
    process, fd, nbytes, machine, secret = offer.address
    for address in (
        (0, 0, 0, 0, 0),  # no offer
        (process, fd, nbytes, machine + 1, secret),
        (process, fd, nbytes, machine, secret + 1),
        (process, fd, nbytes + 8, machine, secret),
    ):
        assert enter_room(address) is None
    reading, writing = os.pipe()
    assert enter_room((process, reading, nbytes, machine, secret)) is None
    os.close(reading)
    os.close(writing)
    offer.close()


def test_a_system_without_such_memory_offers_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "_machine", lambda: None)
    assert offer_room(100) is None
    monkeypatch.undo()
    monkeypatch.delattr(os, "memfd_create")
    assert offer_room(100) is None


def test_a_room_beyond_all_addresses_is_not_offered() -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert (
        offer_room(1 << 60) is None
    )  # nothing is touched: there is no place to map it to
    assert len(os.listdir("/proc/self/fd")) == before
