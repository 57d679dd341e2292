"""Tables on the data server: each process fetches the rows that it computes on, with the bits of a file."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from conftest import Mpirun, child_environment

import asyncqn as aq
from asyncqn.errors import BadInput
from asyncqn.models import remote
from asyncqn.models.data_file import read_table
from asyncqn.models.remote import TOKEN, ServedTable

# Two blocks of whole pages.
ROWS = 4096
FEATURES = [f"x{j}" for j in range(6)]
MODELS = {
    aq.LogisticRegression: "bought",
    aq.SoftmaxRegression: "class",
    aq.LeastSquares: "count",
    aq.PoissonRegression: "count",
    aq.RobustRegression: "x0",
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, 6))
    X[:, 5] = rng.random(ROWS) < 0.001  # rare: its scale needs all rows
    z = X @ np.linspace(-1.0, 1.0, 6)
    columns = {f"x{j}": X[:, j] for j in range(6)}
    columns |= {"w": 0.5 + rng.random(ROWS), "count": rng.poisson(np.exp(z / 3))}
    columns["class"] = np.array(["low", "mid", "top"])[np.digitize(z, [-1.0, 1.0])]
    columns["bought"] = np.where(z + rng.logistic(size=ROWS) > 0, "yes", "no")
    path = tmp_path_factory.mktemp("data") / "table.csv"
    from pyarrow import csv

    csv.write_csv(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def served(file: Path) -> Iterator[aq.DataServer]:
    with aq.DataServer({"ours": read_table(file)}, token="") as running:
        yield running


def url(served: aq.DataServer) -> str:
    return f"{served.address}/ours"


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("model", MODELS)
def test_a_run_has_the_bits_of_one_on_the_file_and_fetches_every_row_once(
    model: Any, weights: str | None, file: Path, served: aq.DataServer
) -> None:
    choice: dict[str, Any] = {"label": MODELS[model], "weights": weights}
    choice["features"] = [f"x{j}" for j in range(1, 6)]
    near = model.from_file(file, **choice)
    far = model.from_server(url(served), **choice)
    algorithm = aq.default_algorithm(far, 3)
    engine = aq.Simulator(aq.Cluster(3, worker_std=0.3))
    there, here = (
        aq.minimize(problem, algorithm, engine=engine, seed=1)
        for problem in (far, near)
    )
    assert there.status == here.status == "converged"
    assert there.theta.tobytes() == here.theta.tobytes()
    assert far.source.fetched == ROWS
    # Whoever asks for U or for errors of coefficients gets the numbers of the file, too.
    assert far.value(here.theta) == near.value(here.theta)
    assert str(far.coefficients(there)) == str(near.coefficients(here))
    assert far.source.fetched == ROWS
    assert aq.replay(there).theta.tobytes() == there.theta.tobytes()


def test_a_minibatch_fetches_what_is_near_its_rows(served: aq.DataServer) -> None:
    problem = aq.LeastSquares.from_server(url(served), label="x0", features=["x1", "w"])
    assert problem.source is not None
    out = np.empty(problem.dim)
    problem.grad(np.zeros(problem.dim), np.array([2, 40, 7]), out)
    assert problem.source.fetched == remote.PAGE
    problem.grad(np.zeros(problem.dim), np.arange(4000, 4096), out)
    assert problem.source.fetched == 2 * remote.PAGE
    problem.value(np.zeros(problem.dim))
    assert problem.source.fetched == ROWS


def test_requests_are_bounded(
    served: aq.DataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "REQUEST_BYTES", 8 * 2 * 700)
    table = ServedTable(url(served))
    parts = list(table.rows(table.describe(), ["x1", "w"], 5, 2000))
    assert [first for first, _ in parts] == [5, 705, 1405]
    assert sum(part.num_rows for _, part in parts) == 1995


def test_a_problem_travels_as_an_address(served: aq.DataServer) -> None:
    problem = aq.LogisticRegression.from_server(
        url(served), label="bought", features=FEATURES
    )
    theta = np.full(problem.dim, 0.1)
    value = problem.value(theta)
    content = pickle.dumps(problem)
    assert len(content) < 10_000
    again = pickle.loads(content)
    assert again.source.fetched == 0
    assert again.value(theta) == value
    # What is computed and thrown away is computed on zeros.
    stand_in = problem.stand_in
    stand_in.grad(theta, np.arange(ROWS), np.empty(problem.dim))
    assert problem.source.fetched == ROWS
    again.stand_in.grad(theta, np.arange(ROWS), np.empty(problem.dim))


def test_processes_fetch_their_own_rows_and_the_master_none(
    file: Path, served: aq.DataServer
) -> None:
    problem = aq.LogisticRegression.from_server(
        url(served), label="bought", features=FEATURES
    )
    before = served.rows_sent
    run = aq.minimize(problem, engine=aq.Processes(workers=2))
    assert run.status == "converged"
    assert problem.source is not None
    assert problem.source.fetched == 0
    # Nobody helps, and every worker keeps its block.
    assert served.rows_sent - before == ROWS
    # The curve is what the method knows.
    assert len(run.metrics["fun"]) > 3
    near = aq.LogisticRegression.from_file(file, label="bought", features=FEATURES)
    assert aq.replay(run, problem=near).theta.tobytes() == run.theta.tobytes()


def test_ranks_fetch_their_own_rows_and_rank_0_none(
    file: Path, served: aq.DataServer, mpirun: Mpirun
) -> None:
    script = str(Path(__file__).with_name("server_ranks.py"))
    done = mpirun(3, [script, url(served), str(file)])
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "converged"
    assert told["same"]
    assert told["fetched"] == [0, ROWS // 2, ROWS // 2]


def test_only_who_shows_the_token_is_served(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = "open sesame"
    with aq.DataServer({"ours": read_table(file)}, token=word) as guarded:
        for shown in ("", "another"):
            monkeypatch.setenv(TOKEN, shown)
            with pytest.raises(BadInput, match=f"requires a token: set {TOKEN}"):
                ServedTable(url(guarded)).describe()
        monkeypatch.setenv(TOKEN, word)
        assert ServedTable(url(guarded)).describe().rows == ROWS
    monkeypatch.delenv(TOKEN)
    with pytest.raises(BadInput, match="can be reached from other machines"):
        aq.DataServer({"ours": read_table(file)}, host="0.0.0.0")


def test_a_mistake_is_one_sentence(served: aq.DataServer) -> None:
    model, place = aq.LogisticRegression, url(served)
    with pytest.raises(BadInput, match="has no table 'theirs'"):
        model.from_server(f"{served.address}/theirs", label="bought")
    with pytest.raises(BadInput, match="no column 'sold'"):
        model.from_server(place, label="sold")
    with pytest.raises(BadInput, match="column 'class' holds texts"):
        model.from_server(place, label="bought", features=["class"])
    with pytest.raises(BadInput, match="column 'bought' holds texts"):
        aq.LeastSquares.from_server(place, label="bought", features=["x1"])
    with pytest.raises(BadInput, match="two different values, not 3"):
        model.from_server(place, label="class", features=["x1"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # taken, and nobody listens
        with pytest.raises(BadInput, match="no data server responds at 127"):
            ServedTable(f"flight://127.0.0.1:{free.getsockname()[1]}/ours").describe()
    for address in ("flight://host/ours", "flight://host:1/a/b", "grpc://host:1/a"):
        with pytest.raises(BadInput, match="write flight://HOST:PORT/NAME"):
            ServedTable(address)


def test_a_missing_number_is_named_by_its_row_when_it_comes() -> None:
    columns = {"x": [1.0, 2.0, None, 4.0], "y": [1.0, 2.0, 3.0, 5.0]}
    with aq.DataServer({"t": columns}, token="") as running:
        for label in ("x", "y"):
            problem = aq.LeastSquares.from_server(f"{running.address}/t", label=label)
            with pytest.raises(BadInput, match=r"'x' .* first in row 3 of the data"):
                problem.value(np.ones(2))


def test_another_table_at_the_same_address_is_noticed(file: Path) -> None:
    table = read_table(file)
    with aq.DataServer({"t": table}, token="") as first:
        problem = aq.LeastSquares.from_server(
            f"{first.address}/t", label="x0", features=["x1"]
        )
        port = first.port
    with (
        aq.DataServer({"t": table.slice(1)}, token="", port=port),
        pytest.raises(BadInput, match="another table now"),
    ):
        problem.value(np.zeros(2))
    # However a table is cut into chunks, it is the same one.
    chunks = pa.concat_tables([table.slice(0, 7), table.slice(7)])
    with aq.DataServer({"t": chunks}, token="", port=port):
        problem.value(np.zeros(2))


def test_frames_of_pandas_and_polars_are_the_same_table() -> None:
    frame = pandas.DataFrame({"x": [0.5, 1.0, 2.0], "b": [True, False, True]})
    frame["word"] = pandas.Categorical(["no", "yes", "no"])
    frame["day"] = pandas.Timestamp("2024-01-01")
    tables = {"a": frame, "b": polars.from_pandas(frame)}
    with aq.DataServer(tables, token="") as running:
        places = [ServedTable(f"{running.address}/{name}") for name in tables]
        one, other = (place.describe() for place in places)
        assert one == other
        assert list(one.columns.values()) == ["double", "bool", "string", "string"]
        problem = aq.LogisticRegression.from_server(
            places[1].url, label="word", features=["x"]
        )
        assert problem.classes.tolist() == ["no", "yes"]


def test_the_command_serves_until_it_is_interrupted(file: Path) -> None:
    word = "open sesame"
    command = [sys.executable, "-m", "asyncqn", "share", str(file), f"b={file}"]
    with subprocess.Popen(
        [*command, "--json", "--quiet"],
        stdout=subprocess.PIPE,
        env=child_environment(ASYNCQN_DATA_TOKEN=word),
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            names = [place.rpartition("/")[2] for place in told["tables"]]
            assert names == ["table", "b"]
            for place in told["tables"]:
                assert ServedTable(place, token=word).describe().rows == ROWS
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stdout.read() == "", "one object"
        finally:
            process.kill()
