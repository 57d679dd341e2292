"""The data server on the loopback interface: the same ratings, bounded messages, sentences for failures."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import child_environment

import asyncqn as aq
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.models import rebuild
from asyncqn_recommender.data import (
    DataServer,
    Ratings,
    as_ratings,
    load,
    save_ratings,
    server,
)

WORD = "open sesame"


def some_ratings(n: int = 5000) -> Ratings:
    rng = np.random.default_rng(0)
    pairs = rng.choice(200 * 90, n, replace=False)
    users = np.array([f"user {u}" for u in pairs // 90])
    return Ratings.from_arrays(
        users, pairs % 90, rng.integers(1, 6, n), times=rng.random(n), titles={3: "Tri"}
    )


@pytest.fixture(scope="module")
def served() -> Iterator[DataServer]:
    with DataServer({"ours": some_ratings()}, token="") as running:
        yield running


def test_a_reader_gets_the_very_ratings_that_are_served_in_messages_of_bounded_size(
    served: DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ROWS", 700)  # several messages for every column
    sizes = []
    gathered = server._gathered

    def watched(stream: Any, *rest: Any) -> Any:
        return gathered(
            (sizes.append(batch.num_rows) or batch for batch in stream), *rest
        )

    monkeypatch.setattr(server, "_gathered", watched)
    ours, theirs = some_ratings(), as_ratings(f"{served.address}/ours")
    for name in ("users", "items", "values", "user_ids", "item_ids", "titles", "times"):
        mine, read = getattr(ours, name), getattr(theirs, name)
        assert mine.dtype == read.dtype
        np.testing.assert_array_equal(mine, read)
    assert theirs.digest == ours.digest
    assert max(sizes) == 700
    assert sum(sizes) == 4 * 5000 + ours.n_users + 2 * ours.n_items


def test_a_problem_named_by_an_address_computes_the_bits_of_the_one_named_by_a_path(
    served: DataServer, tmp_path: Path
) -> None:
    save_ratings(some_ratings(), tmp_path / "here")
    sources = (f"{served.address}/ours", str(tmp_path / "here"))
    problems = [
        rebuild({"kind": "matrix-factorization", "source": s, "rank": 2})
        for s in sources
    ]
    algorithm = aq.AsyncSGD(h=1e-5, batch=50)
    engine = aq.Simulator(aq.Cluster(workers=3))
    far, near = (
        aq.minimize(p, algorithm, engine=engine, commits=20, seed=1) for p in problems
    )
    assert far.theta.tobytes() == near.theta.tobytes()
    aq.replay(far)  # reads the ratings from the server again


def test_only_who_shows_the_token_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with DataServer({"ours": some_ratings(50)}, token=WORD) as guarded:
        for shown in ("", "another"):
            monkeypatch.setenv(server.TOKEN, shown)
            with pytest.raises(BadInput, match=f"requires a token: set {server.TOKEN}"):
                load(f"{guarded.address}/ours")
        monkeypatch.setenv(server.TOKEN, WORD)
        assert len(load(f"{guarded.address}/ours")) == 50


def test_other_machines_are_served_only_with_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(server.TOKEN, raising=False)
    with pytest.raises(BadInput, match="can be reached from other machines"):
        DataServer({"ours": some_ratings(50)}, host="0.0.0.0")


def test_what_cannot_be_read_is_one_sentence(served: DataServer) -> None:
    with pytest.raises(BadInput, match="has no set 'theirs': it has ours"):
        load(f"{served.address}/theirs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # taken, and nobody listens
        with pytest.raises(BadInput, match="no data server responds at 127"):
            load(f"flight://127.0.0.1:{free.getsockname()[1]}/ours")
    for address in (
        "flight://",
        "flight://host/ours",
        "flight://host:99999/ours",
        "flight://host:1/a/b",
    ):
        with pytest.raises(BadInput, match="write flight://HOST:PORT/NAME"):
            load(address)
    with pytest.raises(BadInput, match="whose columns are known"):
        load(f"{served.address}/ours", user="who")


def test_a_server_that_sends_other_ratings_than_it_announced_is_not_believed(
    served: DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = server._header

    def lying(**changes: Any) -> Any:
        def answer(ratings: Ratings) -> Any:
            found = header(ratings)
            for name, value in changes.items():
                setattr(found, name, value)
            return found

        return answer

    monkeypatch.setattr(server, "_header", lying(digest="0" * 64))
    with pytest.raises(DamagedFile, match="sent other ratings than it announced"):
        load(f"{served.address}/ours")
    for wrong in ({"ratings": 4999}, {"ratings": 5001}, {"columns": {"users": "<i4"}}):
        monkeypatch.setattr(server, "_header", lying(**wrong))
        with pytest.raises(DamagedFile, match="did not respond like a data server"):
            load(f"{served.address}/ours")


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    save_ratings(some_ratings(50), tmp_path / "set")
    command = [
        sys.executable,
        "-m",
        "asyncqn",
        "recommender",
        "share",
        f"ours={tmp_path / 'set'}",
        "--json",
        "--quiet",
    ]
    environment = child_environment(ASYNCQN_DATA_TOKEN=WORD)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert len(server.read_remote(told["sets"][0], token=WORD)) == 50
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stdout.read() == "", "one object"
        finally:
            process.kill()
