"""A data server that lies, breaks or stalls: one sentence, bounded memory, and an end that does not wait."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from conftest import child_environment

import asyncqn as aq
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.models import server
from asyncqn.models.remote import TOKEN, Question, ServedTable

SMALL = {"x": [0.0, 1.0, 2.0, 5.0], "y": [1.0, 0.5, 2.0, 1.0], "word": list("abab")}
SUMMARY: dict[str, Any] = {
    "classes": [],
    "squares": [1.0],
    "counts": [4.0],
    "mean_weight": 1.0,
    "mean_label": 1.0,
}


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


@pytest.mark.parametrize(
    ("rows", "digest", "names"),
    [
        (2**60, "0" * 32, "xy"),
        (-1, "0" * 32, "xy"),
        (4, "x", "xy"),
        (4, None, "xy"),
        (4, "0" * 32, "xx"),
    ],
)
def test_descriptions_of_no_table_are_refused(
    rows: int, digest: str | None, names: str,
    running: aq.DataServer, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    metadata = None if digest is None else {"digest": digest}
    schema = pa.schema([(name, pa.float64()) for name in names], metadata)
    monkeypatch.setattr(
        server._Service,
        "get_flight_info",
        lambda _, context, place: flight.FlightInfo(schema, place, [], rows, -1),
    )
    refused(running.address)


ANSWERS: dict[str, Callable[[], bytes]] = {
    "brackets": lambda: b"[" * 100_000,
    "nested": lambda: b'{"classes":' * 100_000,
    "no object": lambda: b"3",
    "texts for sums": lambda: json.dumps({**SUMMARY, "squares": ["1"]}).encode(),
    "long": lambda: b'{"classes": ["' + b"x" * (1 << 27) + b'"]}',
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_that_are_no_summary_are_refused(
    answer: str, running: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = msgspec.Raw(ANSWERS[answer]())
    monkeypatch.setattr(server._Table, "summary", lambda *_: content)
    refused(running.address)


@pytest.mark.parametrize(
    "change",
    [{"squares": []}, {"counts": [1.0, 2.0]}, {"squares": [-1.0]}, {"mean_weight": -1}],
)
def test_sums_that_cannot_be_are_refused(
    change: dict[str, Any], running: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._Table, "summary", lambda *_: {**SUMMARY, **change})
    with pytest.raises(BadInput, match="missing or infinite"):
        problem_of(running.address)


def table(**columns: Any) -> pa.Table:
    return pa.table({"x": np.arange(4.0), "y": np.arange(4.0), **columns})


ROWS: dict[str, Callable[[], list[pa.Table]]] = {
    "too few": lambda: [table().slice(1)],
    "too many": lambda: [table(), table()],
    "none": list,
    "integers": lambda: [table(x=np.arange(4))],
    "texts": lambda: [table(x=list("abcd"))],
    "another column": lambda: [table(z=np.arange(4.0))],
    "a dictionary": lambda: [table(x=pa.array(list("abab")).dictionary_encode())],
}


def reader_of(tables: list[pa.Table], wait: float = 0.0) -> pa.RecordBatchReader:
    schema = (tables or [table()])[0].schema
    batches = [batch for each in tables for batch in each.to_batches()]
    slow = (time.sleep(wait) or batch for batch in batches)
    return pa.RecordBatchReader.from_batches(schema, slow)


@pytest.mark.parametrize("rows", ROWS)
def test_other_rows_than_announced_are_refused(
    rows: str, running: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._Table, "rows", lambda *_: reader_of(ROWS[rows]()))
    refused(running.address)


def test_empty_messages_do_not_keep_a_reader(
    running: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = pa.record_batch([np.zeros(0), np.zeros(0)], schema=table().schema)
    endless = pa.RecordBatchReader.from_batches(empty.schema, itertools.repeat(empty))
    monkeypatch.setattr(server._Table, "rows", lambda *_: endless)
    refused(running.address)


def test_a_request_has_a_time_limit_as_a_whole(
    running: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = table().slice(0, 1)
    monkeypatch.setattr(server._Table, "rows", lambda *_: reader_of([row] * 4, 0.3))
    patient = ServedTable(f"{running.address}/set")
    assert len(list(patient.rows(patient.describe(), ["x", "y"], 0, 4))) == 4
    hasty = ServedTable(f"{running.address}/set", timeout=0.6)
    with pytest.raises(BadInput, match="did not respond in time"):
        list(hasty.rows(patient.describe(), ["x", "y"], 0, 4))


def test_a_label_that_is_no_class_is_refused(
    running: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = {**SUMMARY, "classes": ["a", "c"]}
    monkeypatch.setattr(server._Table, "summary", lambda *_: forged)
    problem = aq.LogisticRegression.from_server(
        f"{running.address}/set", label="word", features=["x"]
    )
    with pytest.raises(BadInput, match="has missing values"):
        problem.value(np.ones(2))


def test_a_label_with_endless_values_is_not_listed() -> None:
    for words in ([f"{i}" for i in range(20_000)], ["a", "b" * 10_000]):
        columns = {"x": np.arange(float(len(words))), "y": words}
        with (
            aq.DataServer({"set": columns}, token="") as started,
            pytest.raises(DamagedFile, match="did not respond"),
        ):
            aq.SoftmaxRegression.from_server(f"{started.address}/set", label="y")


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
            {"first": 3, "last": 2},
            {"last": 5},
            {"first": -1, "last": 2},
            {"digest": "1" * 32},
            {"name": "other"},
        ):
            body = json.dumps({**sound, **change}).encode()
            with pytest.raises(pa.ArrowException):
                client.do_get(flight.Ticket(body)).read_all()
    # It still serves.
    assert ServedTable(f"{running.address}/set").describe().rows == 4


@pytest.mark.parametrize("token", [" ", "a ", "a\nb", "gr\u00fcn", "\x00"])
def test_blank_and_unprintable_tokens_are_refused_here_and_there(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match="must consist of printable ASCII characters"):
        aq.DataServer({"set": SMALL}, host="0.0.0.0", token=token)
    with pytest.raises(BadInput, match="must consist of printable ASCII characters"):
        ServedTable("flight://127.0.0.1:1/set", token=token)
    if "\x00" not in token:
        monkeypatch.setenv(TOKEN, token)
        with pytest.raises(BadInput, match="must consist of printable"):
            aq.DataServer({"set": SMALL}, host="0.0.0.0")


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


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_the_command_ends_at_a_signal_while_a_reader_stalls(
    number: int, code: int, tmp_path: Path
) -> None:
    from pyarrow import parquet

    parquet.write_table(pa.table(large()), tmp_path / "set.parquet")
    command = [sys.executable, "-m", "asyncqn", "share", str(tmp_path / "set.parquet")]
    environment = child_environment(ASYNCQN_DATA_TOKEN="")
    with subprocess.Popen(
        [*command, "--json", "--quiet"],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            reader = stalled(address)
            next(reader)
            os.kill(process.pid, number)
            assert process.wait(60) == code
        finally:
            process.kill()
