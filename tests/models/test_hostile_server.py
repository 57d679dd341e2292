"""A data server that lies, breaks or stalls: one sentence, bounded memory, and an end that does not wait."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import asyncqn as aq
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.models import server
from asyncqn.models.remote import TOKEN, Question, ServedTable

SMALL = {"x": [0.0, 1.0, 2.0, 5.0], "y": [1.0, 0.5, 2.0, 1.0], "word": list("abab")}


@pytest.fixture
def running() -> Iterator[aq.DataServer]:
    with aq.DataServer({"set": SMALL}, token="") as started:
        yield started


def problem_of(address: str) -> aq.LeastSquares:
    problem = aq.LeastSquares.from_server(f"{address}/set", label="y", features=["x"])
    problem.value(np.ones(problem.dim))
    return problem


def refused(address: str) -> Any:
    with pytest.raises(DamagedFile, match="did not respond like a data server"):
        problem_of(address)


ANSWERS = {"a number": b"3", "nested": b"[" * 100_000, "long": b"x" * (1 << 27)}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_that_are_no_summary_are_refused(
    name: str, running: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = msgspec.Raw(ANSWERS[name])
    monkeypatch.setattr(server._Table, "summary", lambda *_: answer)
    refused(running.address)


def table(**columns: Any) -> pa.Table:
    return pa.table({"x": np.arange(4.0), "y": np.arange(4.0), **columns})


ROWS: dict[str, Callable[[], list[pa.Table]]] = {
    "too few": lambda: [table().slice(1)],
    "too many": lambda: [table(), table()],
    "integers": lambda: [table(x=np.arange(4))],
    "a dictionary": lambda: [table(x=pa.array(list("abab")).dictionary_encode())],
}


def reader_of(tables: list[pa.Table], wait: float = 0.0) -> pa.RecordBatchReader:
    batches = [batch for each in tables for batch in each.to_batches()]
    slow = (time.sleep(wait) or batch for batch in batches)
    return pa.RecordBatchReader.from_batches(tables[0].schema, slow)


@pytest.mark.parametrize("rows", ROWS)
def test_other_rows_than_announced_are_refused(
    rows: str, running: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._Table, "rows", lambda *_: reader_of(ROWS[rows]()))
    refused(running.address)


def test_a_request_has_a_time_limit_as_a_whole(
    running: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = table().slice(0, 1)
    monkeypatch.setattr(server._Table, "rows", lambda *_: reader_of([row] * 4, 0.3))
    patient = ServedTable(f"{running.address}/set")
    assert len(list(patient.rows(patient.describe(), ["x", "y"], 0, 4))) == 1
    hasty = ServedTable(f"{running.address}/set", timeout=0.6)
    with pytest.raises(BadInput, match="did not respond in time"):
        list(hasty.rows(patient.describe(), ["x", "y"], 0, 4))


def test_questions_that_make_no_sense_are_refused(running: aq.DataServer) -> None:
    digest = running._tables["set"].digest
    sound = {"name": "set", "digest": digest, "columns": ["x"], "last": 4}
    with flight.connect(running.address.replace("flight://", "grpc://")) as client:
        client.do_get(flight.Ticket(json.dumps(sound).encode())).read_all()
        for body in (b"", b"[" * 100_000, b'{"name": 3}', json.dumps(sound).encode()):
            with pytest.raises(pa.ArrowException):
                list(client.do_action(flight.Action("summary", body)))
        with pytest.raises(pa.ArrowException):
            list(client.do_action(flight.Action("close", json.dumps(sound).encode())))
        for change in (
            {"columns": ["z"]},
            {"first": -1},
            {"digest": "1" * 32},
            {"name": "other"},
        ):
            body = json.dumps({**sound, **change}).encode()
            with pytest.raises(pa.ArrowException):
                client.do_get(flight.Ticket(body)).read_all()
    # It still serves.
    assert ServedTable(f"{running.address}/set").describe().rows == 4


@pytest.mark.parametrize("token", [" ", "a\nb", "gr\u00fcn"])
def test_blank_and_unprintable_tokens_are_refused_here_and_there(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, token)
    with pytest.raises(BadInput, match="must consist of printable ASCII characters"):
        aq.DataServer({"set": SMALL}, host="0.0.0.0")
    with pytest.raises(BadInput, match="must consist of printable ASCII characters"):
        ServedTable("flight://127.0.0.1:1/set")


def large() -> dict[str, Any]:
    """More bytes than fit into all buffers between a server and a reader."""
    return {f"x{j}": np.zeros(1_000_000) for j in range(3)}


def stalled(address: str) -> Iterator[Any]:
    """A reader that takes one message and no more."""
    table = ServedTable(f"{address}/set")
    columns = ["x0", "x1", "x2"]
    question = Question("set", table.describe().digest, columns, last=1_000_000)
    with flight.connect(address.replace("flight://", "grpc://")) as client:
        reader = client.do_get(flight.Ticket(msgspec.json.encode(question)))
        reader.read_chunk()
        yield reader
        reader.cancel()


@pytest.mark.timeout(100)
def test_close_does_not_wait_for_a_reader_that_stalls() -> None:
    started = aq.DataServer({"set": large()}, token="")
    readers = [stalled(started.address) for _ in range(3)]
    for reader in readers:
        next(reader)
    closing = threading.Thread(target=started.close, daemon=True)
    closing.start()
    closing.join(60.0)
    assert not closing.is_alive()
    started.close()  # a second time is nothing new
