"""The data server: tables over the network, for workers on machines that share no disk.

The paper's architecture has a master, workers, and a data server that all workers can reach.  `DataServer`
holds tables in memory and serves them with Arrow Flight at `flight://HOST:PORT/NAME`: the description of a
table, what a model needs of all its rows at once, and rows, by range.  Readers, and the messages, are in
`remote`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.models.feature_rows import DenseRows
from asyncqn.models.remote import (
    NUMBERS,
    SCHEME,
    TOKEN,
    Question,
    Summary,
    usable_token,
)

try:
    import pyarrow
    from pyarrow import flight, ipc
except ImportError:
    raise MissingExtra("pyarrow", "data", "The data server") from None

__all__ = ["DataServer"]

MESSAGE_BYTES = 1 << 22
"""Bytes of numbers in a message; a row that is longer has a message of its own."""
_SHUTDOWN_TIMEOUT = 10.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_EVERYWHERE = ("0.0.0.0", "::")


class DataServer:
    """A running server of tables; workers use its `address`, and `close` ends it.

    Parameters
    ----------
    tables : mapping from str to table
        The tables to serve, by name: of pyarrow, pandas or polars, or mappings from names to columns.
    host : str, default "127.0.0.1"
        Interface to listen on; the default serves this machine only.
    port : int, default 0
        Port to listen on; 0 lets the system choose.
    token : str, optional
        Secret that clients must present; by default the environment variable ASYNCQN_DATA_TOKEN. Without
        one, only this machine may be served. Nothing is encrypted: use a private network.

    Examples
    --------
    >>> import asyncqn as aq
    >>> with aq.DataServer({"small": {"x": [0.0, 1.0, 3.0], "y": [1.0, 2.0, 5.0]}}) as server:
    ...     problem = aq.LeastSquares.from_server(f"{server.address}/small", label="y")
    ...     run = aq.minimize(problem, engine=aq.Threads(1))
    >>> run.status, server.rows_sent
    ('converged', 3)
    """

    def __init__(
        self,
        tables: Mapping[str, Any],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
    ) -> None:
        """Start to serve `tables`; the class documents the parameters."""
        token = usable_token(token)
        require(bool(tables), "a data server needs at least one table.")
        require(
            bool(token) or host in _LOOPBACK,
            f"{host} can be reached from other machines: choose a token for them, and set it as "
            f"{TOKEN} on both sides.",
        )
        self._tables = {name: _Table(name, table) for name, table in tables.items()}
        place = _bracketed(host)
        try:
            self._service = _Service(
                f"grpc://{place}:{port}",
                middleware={"token": _TokenCheck(token)},
            )
        except (OSError, pyarrow.ArrowException) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(
                f"{host}:{port} cannot be served ({reason}): choose another port."
            ) from None
        self._service.tables = self._tables
        # "0.0.0.0" is an address to listen on, not one to connect to.
        reachable = socket.gethostname() if host in _EVERYWHERE else place
        self.port = int(self._service.port)
        self.address = f"{SCHEME}{reachable}:{self.port}"
        self._closed = Event()

    @property
    def rows_sent(self) -> int:
        """Number of rows sent so far, to all readers."""
        return sum(table.rows_sent for table in self._tables.values())

    def wait(self) -> None:
        """Block until another thread closes the server, or an interrupt arrives."""
        # Short waits let Ctrl-C through on every platform.
        while not self._closed.wait(1.0):
            pass

    def close(self) -> None:
        """End the server within a few seconds; active readers are disconnected.

        Flight's own shutdown waits for every reader, even forever for one that has stalled.  So it runs in a
        separate thread while the connections are closed here.
        """
        self._closed.set()
        shutdown = Thread(target=self._service.shutdown, daemon=True)
        shutdown.start()
        end = time.monotonic() + _SHUTDOWN_TIMEOUT
        while shutdown.is_alive() and time.monotonic() < end:
            _close_connections(self.port)
            shutdown.join(0.05)

    def __enter__(self) -> DataServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses calls without the server's token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self.expected = f"Bearer {token}" if token else ""

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> None:
        header = (headers.get("authorization") or [""])[0]
        # A comparison in constant time does not reveal how much of a guess was right.
        if self.expected and not hmac.compare_digest(
            header.encode(), self.expected.encode()
        ):
            raise flight.FlightUnauthenticatedError("a token is required")


class _Service(flight.FlightServerBase):  # type: ignore[misc]
    """Decodes questions; Flight turns every exception here into an error of that call alone."""

    tables: Mapping[str, _Table]

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        table = self.tables[descriptor.path[0].decode()].table
        return flight.FlightInfo(table.schema, descriptor, [], table.num_rows, -1)

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        if action.type != "summary":
            raise ValueError("there is no such action")
        table, question = self._question(action.body.to_pybytes())
        return [msgspec.json.encode(table.summary(question))]

    def do_get(self, context: Any, ticket: Any) -> Any:
        table, question = self._question(ticket.ticket)
        return flight.RecordBatchStream(table.rows(question))

    def _question(self, content: bytes) -> tuple[_Table, Question]:
        question = msgspec.json.decode(content, type=Question)
        table = self.tables[question.name]
        if question.digest != table.digest:
            raise KeyError("another table has this name now")
        return table, question


class _Table:
    """A table in memory, with its digest among the metadata, and the answers to questions about it."""

    def __init__(self, name: str, data: Any) -> None:
        require(
            bool(name) and "/" not in name,
            f"{name[:200]!r} cannot be the name of a served table: use one without a slash.",
        )
        try:
            given = data if isinstance(data, pyarrow.Table) else pyarrow.table(data)
            columns = [_served_column(column) for column in given.columns]
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(
                f"the table {name!r} has columns that cannot be served ({reason})."
            ) from None
        require(
            len(set(given.column_names)) == given.num_columns,
            f"the table {name!r} has two columns of one name: rename one.",
        )
        table = pyarrow.table(columns, names=given.column_names)
        # One chunk per column, so that the digest does not depend on how a table is cut.
        table = table.combine_chunks()
        self.digest = _digest(table)
        self.table = table.replace_schema_metadata({"digest": self.digest})
        self.rows_sent = 0
        self._lock = Lock()

    def summary(self, question: Question) -> Summary:
        """Return the classes of the label, and sums over rows with the bits of a model on a local file."""
        label = self.table.column(question.label)
        classes: list[Any] = []
        mean = 0.0
        if question.classes:
            # As NumPy sorts them: in the order of a model's classes.
            classes = np.unique(label.unique().drop_null().to_pylist()).tolist()
        else:
            mean = float(np.asarray(label.to_numpy(), np.float64).mean())
        weights = np.zeros(0)
        if question.weights is not None:
            column = self.table.column(question.weights)
            weights = np.asarray(column.to_numpy(), np.float64)
        X: Any = _Matrix(self.table, question.columns, np.dtype(question.dtype))
        squares, counts = DenseRows(X).column_squares(weights)
        # A missing or infinite value is named by its row, when that comes.
        return Summary(
            classes,
            np.nan_to_num(squares).tolist(),
            counts.tolist(),
            float(np.nan_to_num(weights.mean())) if weights.size else 1.0,
            float(np.nan_to_num(mean)),
        )

    def rows(self, question: Question) -> Any:
        """Return a reader of a range of rows, in messages of bounded size."""
        size = question.last - question.first
        part = self.table.select(question.columns).slice(question.first, size)
        with self._lock:
            self.rows_sent += part.num_rows
        row_bytes = 8 * max(1, part.num_columns)
        return part.to_reader(max_chunksize=max(1, MESSAGE_BYTES // row_bytes))


class _Matrix:
    """Columns of a table as a matrix of which only slices are ever made."""

    def __init__(self, table: Any, columns: list[str], dtype: np.dtype[Any]) -> None:
        self.columns = [table.column(name) for name in columns]
        self.dtype = dtype
        self.shape: tuple[int, int] = (table.num_rows, len(columns))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        start, stop, step = rows.indices(len(self))
        parts = [each.slice(start, stop - start).to_numpy() for each in self.columns]
        return np.stack([part[::step].astype(self.dtype) for part in parts], axis=1)


def _served_column(column: Any) -> Any:
    """Return a column of numbers as it is, and any other as texts."""
    if pyarrow.types.is_dictionary(column.type):
        # Arrow repeats no entries of the dictionaries of polars.
        column = pyarrow.chunked_array([column.to_pylist()])
    return column if str(column.type) in NUMBERS else column.cast("string")


def _digest(table: Any) -> str:
    """Return a digest of all that a table holds."""
    total = hashlib.blake2b(digest_size=16)
    # A file to which Arrow writes the table.
    sink = SimpleNamespace(
        write=total.update, flush=lambda: None, close=lambda: None, closed=False
    )
    with ipc.new_stream(pyarrow.PythonFile(sink, "w"), table.schema) as stream:
        stream.write_table(table)
    return total.hexdigest()


def _bracketed(host: str) -> str:
    """Return the host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def _close_connections(port: int) -> None:
    """Shut down every TCP connection of this process whose local port is `port`."""
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):
            # A duplicate, because the descriptor itself belongs to Flight, which closes it.
            handle = os.dup(int(name))
            if not stat.S_ISSOCK(os.fstat(handle).st_mode):
                os.close(handle)
                continue
            with socket.socket(fileno=handle) as connection:
                inet = connection.family in (socket.AF_INET, socket.AF_INET6)
                inet = inet and not connection.getsockopt(
                    socket.SOL_SOCKET, socket.SO_ACCEPTCONN
                )
                if inet and connection.getsockname()[1] == port:
                    connection.shutdown(socket.SHUT_RDWR)
