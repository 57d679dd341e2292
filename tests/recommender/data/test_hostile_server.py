"""A data server that lies, breaks or stalls: one sentence, bounded memory, and an end that does not wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.flight as flight
import pytest
from conftest import child_environment

from asyncqn.errors import BadInput, DamagedFile
from asyncqn_recommender.data import (
    DataServer,
    Ratings,
    load,
    open_ratings,
    save_ratings,
    server,
)


def small(**changes: Any) -> Ratings:
    """Three ratings, or a forgery of them whose digest nobody has computed."""
    columns: dict[str, Any] = {
        "users": np.array([0, 1, 1], np.int32),
        "items": np.array([0, 0, 1], np.int32),
        "values": np.array([1.0, 2.0, 3.0], np.float32),
        "user_ids": np.array([10, 20]),
        "item_ids": np.array(["a", "b"]),
    }
    ratings = Ratings(**{**columns, **changes})
    ratings.__dict__["digest"] = "0" * 64
    return ratings


def index(value: int) -> Any:
    return np.array([0, value, 1], np.int32)


FORGERIES = {
    **{
        f"user {value}": {"users": index(value)}
        for value in (-5, -1, 2, 10**6, 2**31 - 1)
    },
    **{
        f"item {value}": {"items": index(value)}
        for value in (-5, -1, 2, 10**6, 2**31 - 1)
    },
    "nan": {"values": np.array([1.0, np.nan, 3.0], np.float32)},
    "infinite time": {"times": np.array([0.0, 1.0, np.inf])},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_columns_that_do_not_belong_together_are_refused_at_both_doors(
    forgery: str, tmp_path: Path
) -> None:
    forged = small(**FORGERIES[forgery])
    save_ratings(forged, tmp_path / "set")
    with pytest.raises(DamagedFile) as stored:
        open_ratings(tmp_path / "set")
    with (
        DataServer({"set": forged}, token="") as running,
        pytest.raises(DamagedFile) as served,
    ):
        load(f"{running.address}/set")
    words = (
        "outside its tables" if forgery.split()[0] in ("user", "item") else "not finite"
    )
    assert words in str(stored.value)
    assert words in str(served.value)


def described(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(server._header(small()))
    return {**plain, **changes}


ANSWERS: dict[str, Callable[[], bytes]] = {
    "brackets": lambda: b"[" * 100_000,
    "nested origin": lambda: b'{"origin":' * 100_000,
    "no object": lambda: b"3",
    "sets of a number": lambda: b'{"sets": 3}',
    "huge counts": lambda: json.dumps(described(ratings=2**47)).encode(),
    "negative counts": lambda: json.dumps(described(users=-1)).encode(),
    "long": lambda: b'{"digest": "' + b"x" * (1 << 25) + b'"}',
    **{
        f"dtype {dtype}": lambda dtype=dtype: json.dumps(  # type: ignore[misc]
            described(columns={**described()["columns"], "users": dtype})
        ).encode()
        for dtype in (
            "O",
            "V9999999999",
            "i4,[",
            "<i8",
            ">i4",
            "<U3",
            "\u0000",
            "<i4" * 1000,
        )
    },
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_that_are_no_header_are_one_sentence(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = ANSWERS[answer]()
    monkeypatch.setattr(server, "_header", lambda ratings: msgspec.Raw(content))
    with (
        DataServer({"set": small()}, token="") as running,
        pytest.raises(DamagedFile) as caught,
    ):
        load(f"{running.address}/set")
    assert "did not respond like a data server" in str(caught.value)


def test_a_wide_column_of_short_texts_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = 1 << 17
    wide = Ratings(
        np.zeros(n, np.int32), np.arange(n, dtype=np.int32), np.ones(n, np.float32), np.arange(1),
        np.full(n, "", "U1"),
    )  # fmt: skip
    wide.__dict__["digest"] = "0" * 64
    header = server._header(wide)
    header.columns["item_ids"] = "<U4096"  # 2 GB of blanks
    monkeypatch.setattr(server, "_header", lambda ratings: header)
    widest = 0
    concatenate = np.concatenate

    def watched(parts: Any) -> Any:
        nonlocal widest
        widest = max(widest, sum(part.nbytes for part in parts))
        return concatenate(parts)

    monkeypatch.setattr(server.np, "concatenate", watched)
    with DataServer({"set": wide}, token="") as running, pytest.raises(DamagedFile):
        load(f"{running.address}/set")
    assert widest <= 1 << 26


def test_columns_of_another_type_than_announced_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header, columns = server._header(small()), server.columns_of(small())
    columns["users"] = np.array([0, 2**32, 1])  # which a cast to 32 bits makes 0
    monkeypatch.setattr(server, "_header", lambda ratings: header)
    monkeypatch.setattr(server, "columns_of", lambda ratings: columns)
    with (
        DataServer({"set": small()}, token="") as running,
        pytest.raises(DamagedFile, match="did not respond"),
    ):
        load(f"{running.address}/set")


def test_names_of_sets_are_shown_in_printable_letters() -> None:
    with (
        DataServer({"\x1b[31mred\n": small()}, token="") as running,
        pytest.raises(BadInput, match=r"it has \?\[31mred\?\.$"),
    ):
        load(f"{running.address}/set")


@pytest.mark.parametrize(
    "token", [" ", "\t", " \n ", "a ", " a", "a\nb", "gr\u00fcn", "\x00"]
)
def test_blank_and_unprintable_tokens_are_refused_here_and_there(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match="must consist of printable ASCII characters"):
        DataServer({"set": small()}, host="0.0.0.0", token=token)
    with pytest.raises(BadInput, match="must consist of printable ASCII characters"):
        server.read_remote("flight://127.0.0.1:1/set", token=token)
    if "\x00" not in token:
        monkeypatch.setenv(server.TOKEN, token)
        with pytest.raises(
            BadInput, match="must consist of printable ASCII characters"
        ):
            DataServer({"set": small()}, host="0.0.0.0")


def large() -> Ratings:
    """More bytes in a column than fit into all buffers between a server and a reader."""
    n = 3_000_000
    return Ratings(
        np.zeros(n, np.int32), np.arange(n, dtype=np.int32) % 1000, np.ones(n, np.float32), np.arange(1),
        np.arange(1000),
    )  # fmt: skip


def stalled(address: str) -> Iterator[Any]:
    """A reader that takes one message and no more."""
    with flight.connect(
        address.replace("flight://", "grpc://").rsplit("/", 1)[0]
    ) as client:
        reader = client.do_get(flight.Ticket(json.dumps(["set", "users"]).encode()))
        reader.read_chunk()
        yield reader
        reader.cancel()


@pytest.mark.timeout(100)
def test_close_does_not_wait_for_a_reader_that_stalls() -> None:
    running = DataServer({"set": large()}, token="")
    readers = [stalled(f"{running.address}/set") for _ in range(3)]
    for reader in readers:
        next(reader)
    closing = threading.Thread(target=running.close, daemon=True)
    closing.start()
    closing.join(60.0)
    assert not closing.is_alive()
    running.close()  # a second time is nothing new


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_the_command_ends_at_a_signal_while_a_reader_stalls(
    number: int, code: int, tmp_path: Path
) -> None:
    save_ratings(large(), tmp_path / "set")
    command = [
        sys.executable,
        "-m",
        "asyncqn",
        "recommender",
        "share",
        f"set={tmp_path / 'set'}",
        "--json",
        "--quiet",
    ]
    environment = child_environment(ASYNCQN_DATA_TOKEN="")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["sets"][0]
            reader = stalled(address)
            next(reader)
            os.kill(process.pid, number)
            assert process.wait(60) == code
        finally:
            process.kill()
