"""The data server: tables over the network, for workers on machines that share no disk.

The paper's architecture has a master, workers, and a data server that all workers can reach.  `DataServer`
holds tables in memory and serves them with Arrow Flight at `flight://HOST:PORT/NAME`.  It answers four
questions: what a table has (rows, types of columns, digest), which values a column has, what a problem needs
of all rows at once (`scales`), and rows, by range.  Readers are in `remote`.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.models.feature_rows import DenseRows

__all__ = ["DataServer"]

SCHEME = "flight://"
TOKEN = "ASYNCQN_DATA_TOKEN"
"""The environment variable with the token of a data server."""
MESSAGE_BYTES = 1 << 22
"""Bytes of numbers in a message; a row that is longer has a message of its own."""
MAX_CLASSES = 10_000
"""Largest number of distinct values of a column that the server lists."""
MAX_TEXT_LENGTH = 1 << 12
"""Longest value of a column that the server lists, in characters."""
NUMBERS = {
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float", "double", "bool"),
}
"""Arrow's names of the types that are served as they are; all others are served as texts."""
_SHUTDOWN_TIMEOUT = 10.0
_MISTAKES = (ValueError, TypeError, LookupError, RecursionError)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_EVERYWHERE = ("0.0.0.0", "::")

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**48)]


class Description(msgspec.Struct):
    """The rows and columns of a table."""

    rows: Count
    columns: dict[str, str]
    """Arrow's name of each column's type."""
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class Scales(msgspec.Struct):
    """Sums over many rows that a linear model needs before it has any."""

    squares: list[float]
    """Sums of weight x_j^2 (`feature_rows.DenseRows.column_squares`)."""
    counts: list[float]
    """Counts of x_j != 0 in the same rows."""
    mean_weight: float
    mean_label: float
    """0 where the label is a text."""


class Question(msgspec.Struct):
    """A question about a table; `ask` is the Flight action, or "rows" in a ticket."""

    name: str
    digest: str = ""
    """Of the table that the reader expects; empty: any."""
    columns: list[str] = []
    label: str | None = None
    weights: str | None = None
    dtype: str = "float64"
    first: Count = 0
    last: Count = 0


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
        require(0 <= port < 65536, f"port must lie in 0..65535, not {port!r}.")
        require(
            bool(token) or host in _LOOPBACK,
            f"{host} can be reached from other machines: choose a token for them, and set it as "
            f"{TOKEN} on both sides.",
        )
        flight_library()
        served = {name: _Served(name, table) for name, table in tables.items()}
        try:
            self._service = _service(served, f"grpc://{bracketed(host)}:{port}", token)
        except (OSError, _arrow().ArrowException) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(
                f"{host}:{port} cannot be served ({reason}): choose another port."
            ) from None
        # "0.0.0.0" is an address to listen on, not one to connect to.
        reached = socket.gethostname() if host in _EVERYWHERE else host
        self.port = int(self._service.port)
        self.address = f"{SCHEME}{bracketed(reached)}:{self.port}"
        self._closed = Event()
        self._served = served

    @property
    def rows_sent(self) -> int:
        """Number of rows sent so far, to all readers."""
        return sum(table.rows_sent for table in self._served.values())

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
        ends = time.monotonic() + _SHUTDOWN_TIMEOUT
        while shutdown.is_alive() and time.monotonic() < ends:
            _close_connections(self.port)
            shutdown.join(0.05)

    def __enter__(self) -> DataServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Served:
    """A table in memory, and the answers to questions about it."""

    def __init__(self, name: str, given: Any) -> None:
        require(
            bool(name) and "/" not in name,
            f"{name[:200]!r} cannot be the name of a served table: use one without a slash.",
        )
        lib = _arrow()
        try:
            table = given if isinstance(given, lib.Table) else lib.table(given)
            columns = [_plain(column) for column in table.columns]
        except (lib.ArrowException, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(
                f"the table {name!r} has columns that cannot be served ({reason})."
            ) from None
        require(
            len(set(table.column_names)) == table.num_columns,
            f"the table {name!r} has two columns of one name: rename one.",
        )
        self.table = lib.table(columns, names=table.column_names)
        types = {field.name: str(field.type) for field in self.table.schema}
        self.described = Description(
            self.table.num_rows, types, _digest(self.table, types)
        )
        self.rows_sent = 0
        self._lock = Lock()

    def describe(self, question: Question) -> Description:
        """Return what the table has."""
        return self.described

    def classes(self, question: Question) -> list[Any]:
        """Return the distinct values of the label, sorted."""
        column = self._column(question.label)
        distinct = column.unique()
        long = column.type == "string" and any(
            len(word or "") > MAX_TEXT_LENGTH for word in distinct.to_pylist()
        )
        if len(distinct) > MAX_CLASSES or long:
            raise ValueError("the column has too many values, or too long ones")
        # As NumPy sorts them, in which order a model on a local file has its classes.
        classes: list[Any] = np.unique(distinct.drop_null().to_pylist()).tolist()
        return classes

    def scales(self, question: Question) -> Scales:
        """Return sums over rows of the features, with the bits of a model on a local file."""
        weights = np.zeros(0)
        if question.weights is not None:
            weights = self._numbers(question.weights)
        X: Any = _Matrix(self.table, question.columns, np.dtype(question.dtype))
        squares, counts = DenseRows(X).column_squares(weights)
        mean = 0.0
        if str(self._column(question.label).type) in NUMBERS:
            labels = self._numbers(question.label)
            mean = float(np.nan_to_num(labels.mean()))
        # A missing or infinite value is named by its row, when that comes.
        return Scales(
            np.nan_to_num(squares).tolist(),
            counts.tolist(),
            float(np.nan_to_num(weights.mean())) if weights.size else 1.0,
            mean,
        )

    def batches(self, question: Question) -> tuple[Any, Iterator[Any]]:
        """Return the schema and the messages of a range of rows."""
        table = self.table.select(question.columns)
        if not 0 <= question.first <= question.last <= table.num_rows:
            raise ValueError("the rows do not exist")
        some = table.slice(question.first, question.last - question.first)
        with self._lock:
            self.rows_sent += some.num_rows
        rows = max(1, MESSAGE_BYTES // (8 * max(1, table.num_columns)))
        # A generator: the next message is made only when the reader has taken the last one.
        parts = (some.slice(at, rows) for at in range(0, some.num_rows, rows))
        batches = (part.combine_chunks().to_batches()[0] for part in parts)
        return table.schema, batches

    def _column(self, name: str | None) -> Any:
        return self.table.column(name)

    def _numbers(self, name: str | None) -> npt.NDArray[np.float64]:
        return np.asarray(self._column(name).to_numpy(), np.float64)


class _Matrix:
    """Columns of a table as a matrix of which only slices are ever made."""

    def __init__(self, table: Any, columns: list[str], dtype: np.dtype[Any]) -> None:
        self.table = table
        self.columns = columns
        self.dtype = dtype
        self.shape: tuple[int, int] = (table.num_rows, len(columns))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        start, stop, step = rows.indices(len(self))
        X = np.empty((len(range(start, stop, step)), len(self.columns)), self.dtype)
        for j, name in enumerate(self.columns):
            X[:, j] = (
                self.table.column(name).slice(start, stop - start).to_numpy()[::step]
            )
        return X


def _service(tables: dict[str, _Served], location: str, token: str) -> Any:
    """Return the Flight service; its classes can only be defined where pyarrow is installed."""
    flight: Any = flight_library()

    class Doorkeeper(flight.ServerMiddlewareFactory):  # type: ignore[misc]
        def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> None:
            shown = (headers.get("authorization") or [""])[0]
            # A comparison in constant time does not reveal how much of a guess was right.
            if token and not hmac.compare_digest(
                shown.encode(), f"Bearer {token}".encode()
            ):
                raise flight.FlightUnauthenticatedError("a token is required")

    class Service(flight.FlightServerBase):  # type: ignore[misc]
        def do_action(self, context: Any, action: Any) -> list[bytes]:
            ask = str(action.type)
            if ask not in ("describe", "classes", "scales"):
                raise flight.FlightServerError("there is no such question")
            return [answer(action.body.to_pybytes(), lambda t: getattr(t, ask))]

        def do_get(self, context: Any, ticket: Any) -> Any:
            question, table = asked(ticket.ticket)
            if table is None:
                raise flight.FlightServerError("there is no such table")
            with refused():
                return flight.GeneratorStream(*table.batches(question))

    def asked(content: bytes) -> tuple[Question, _Served | None]:
        # Whatever comes from the network is not trusted.
        with refused():
            question = msgspec.json.decode(content, type=Question)
            table = tables.get(question.name)
            if table is not None and question.digest not in (
                "",
                table.described.digest,
            ):
                raise ValueError("the table is another one now")
        return question, table

    def answer(content: bytes, ask: Callable[[_Served], Any]) -> bytes:
        question, table = asked(content)
        # A list of the names serves as an error: the reader tells the user what there is.
        if table is None:
            return msgspec.json.encode({"tables": sorted(tables)[:100]})
        with refused():
            return msgspec.json.encode(ask(table)(question))

    class refused:
        """Turn a question that makes no sense into an error of Flight."""

        def __enter__(self) -> None:
            pass

        def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
            if isinstance(error, _MISTAKES):
                reason = " ".join(str(error).split())[:200]
                raise flight.FlightServerError(reason) from None

    return Service(location, middleware={"doorkeeper": Doorkeeper()})


def flight_library() -> Any:
    """Return `pyarrow.flight`, imported only where a data server or a reader of one needs it."""
    try:
        return importlib.import_module("pyarrow.flight")
    except ImportError:
        raise MissingExtra("pyarrow", "data", "The data server") from None


def _arrow() -> Any:
    return importlib.import_module("pyarrow")


def usable_token(token: str | None) -> str:
    """Return the given token, or that of the environment, or an empty text."""
    word = os.environ.get(TOKEN, "") if token is None else token
    require(
        not word or (word.strip() == word and word.isascii() and word.isprintable()),
        f"the token of a data server ({TOKEN}) must consist of printable ASCII characters, without blanks at "
        "its ends: choose another.",
    )
    return word


def bracketed(host: str) -> str:
    """Return the host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def _plain(column: Any) -> Any:
    """Return a column of numbers as it is, and any other as texts."""
    lib = _arrow()
    if not lib.types.is_dictionary(column.type):
        return column if str(column.type) in NUMBERS else column.cast("string")
    kind = (
        column.type.value_type if str(column.type.value_type) in NUMBERS else "string"
    )
    chunks = []
    for chunk in column.chunks:
        # The dictionary first: texts of polars can be cast, but not repeated.
        words = chunk.dictionary.cast(kind)
        repeated = lib.DictionaryArray.from_arrays(chunk.indices, words)
        chunks.append(repeated.dictionary_decode())
    return lib.chunked_array(chunks, kind)


def _digest(table: Any, types: dict[str, str]) -> str:
    """Return a digest of all that a table holds, however it is cut into chunks."""
    total = hashlib.blake2b(digest_size=16)
    for name, kind in types.items():
        total.update(f"{name!r} {kind} {table.num_rows}\n".encode())
        chunks = table.column(name).chunks
        for chunk in chunks:
            values = chunk.fill_null("" if kind == "string" else _zero(kind))
            if kind == "string":
                total.update(
                    "".join(f"{word}\0" for word in values.to_pylist()).encode()
                )
            else:
                total.update(np.asarray(values).tobytes())
        for chunk in chunks:
            total.update(np.asarray(chunk.is_valid()).tobytes())
    return total.hexdigest()


def _zero(kind: str) -> Any:
    return False if kind == "bool" else 0


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
