"""The data server: ratings over the network, for workers on machines that share no disk.

The paper's architecture has a master, workers, and a data server that all workers can reach.  On one machine
the memory map of a stored set takes that role.  If machines share no disk, one of them serves its sets with
Arrow Flight, and the others use `flight://HOST:PORT/NAME` in place of a file name.  A worker reads the
columns once, in messages of bounded size, and compares the digest.  This file alone imports pyarrow.flight.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile, require
from asyncqn_recommender.data.arrow import arrow
from asyncqn_recommender.data.ratings import Ratings
from asyncqn_recommender.data.store import SCHEMA, Header, check_columns, columns_of

SCHEME = "flight://"
TOKEN = "ASYNCQN_DATA_TOKEN"
"""The environment variable with the token of a data server."""
ROWS = 1 << 16
"""Rows per message: at most 512 kB of numbers."""
MAX_TEXT_LENGTH = 1 << 12
"""Longest id or title, in characters."""
MAX_MESSAGE_BYTES = 1 << 28
"""Largest message that a reader accepts, in bytes."""
SMALL = 1 << 26
MAX_EXPANSION = 100
"""Columns up to this size pass; a larger one may have at most this ratio to the bytes that arrived."""
_SHUTDOWN_TIMEOUT = 10.0
_DTYPE = re.compile(r"<(i4|i8|f4|f8|U[0-9]{1,5})")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_EVERYWHERE = ("0.0.0.0", "::")


class Served(Header):
    """The header of a stored set, and the dtype of every served column."""

    columns: dict[str, str]


class DataServer:
    """A running server of ratings; workers use its `address`, and `close` ends it.

    Parameters
    ----------
    sets : mapping from str to Ratings
        The ratings to serve, by name.
    host : str, default "127.0.0.1"
        Interface to listen on; the default serves this machine only.
    port : int, default 0
        Port to listen on; 0 lets the system choose.
    token : str, optional
        Secret that clients must present; by default the environment variable ASYNCQN_DATA_TOKEN. Without
        one, only this machine may be served. Nothing is encrypted: use a private network.

    Examples
    --------
    >>> from asyncqn_recommender.data import DataServer, as_ratings
    >>> ratings = as_ratings(([1, 1, 2], [10, 20, 20], [5.0, 3.0, 4.0]))
    >>> with DataServer({"small": ratings}) as server:
    ...     print(as_ratings(f"{server.address}/small"))
    Ratings(3 ratings of 2 users on 2 items)
    """

    def __init__(
        self,
        sets: Mapping[str, Ratings],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
    ) -> None:
        """Start to serve `sets`; the class documents the parameters."""
        token = _known_token(token)
        require(bool(sets), "a data server needs at least one set of ratings.")
        require(0 <= port < 65536, f"port must lie in 0..65535, not {port!r}.")
        require(
            bool(token) or host in _LOOPBACK,
            f"{host} can be reached from other machines: choose a token for them, and set it as "
            f"{TOKEN} on both sides.",
        )
        flight = arrow("pyarrow.flight")
        try:
            self._server = _service(
                flight, dict(sets), f"grpc://{_bracketed(host)}:{port}", token
            )
        except (OSError, arrow().ArrowException) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(
                f"{host}:{port} cannot be served ({reason}): choose another port."
            ) from None
        # "0.0.0.0" is an address to listen on, not one to connect to.
        reached = socket.gethostname() if host in _EVERYWHERE else host
        self.port = int(self._server.port)
        self.address = f"{SCHEME}{_bracketed(reached)}:{self.port}"
        self._closed = Event()

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
        shutdown = Thread(target=self._server.shutdown, daemon=True)
        shutdown.start()
        ends = time.monotonic() + _SHUTDOWN_TIMEOUT
        while shutdown.is_alive() and time.monotonic() < ends:
            _close_connections(self.port)
            shutdown.join(0.05)

    def __enter__(self) -> DataServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _service(
    flight: Any, sets: dict[str, Ratings], location: str, token: str | None
) -> Any:
    """Return the Flight service; its classes can only be defined where pyarrow is installed."""

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
            """Return the header of a set for `describe NAME`, or the list of sets."""
            name = action.body.to_pybytes().decode("utf-8", "replace")
            # A list of the names serves as an error: the reader tells the user what there is.
            if action.type != "describe" or name not in sets:
                return [msgspec.json.encode({"sets": sorted(sets)[:100]})]
            return [msgspec.json.encode(_header(sets[name]))]

        def do_get(self, context: Any, ticket: Any) -> Any:
            """Return one column of a set, in messages of at most `ROWS` rows."""
            try:
                # A ticket comes from the network, so its content is not trusted.
                name, column = json.loads(ticket.ticket)
                values = columns_of(sets[name])[column]
            except (ValueError, TypeError, KeyError):
                raise flight.FlightServerError("the column does not exist") from None
            lib = arrow()
            kind = _arrow_type(values.dtype)
            schema = lib.schema([("values", kind)])
            # A generator: the next message is made only when the reader has taken the last one.
            parts = (values[i : i + ROWS] for i in range(0, len(values), ROWS))
            batches = (
                lib.record_batch([lib.array(part, kind)], schema=schema)
                for part in parts
            )
            return flight.GeneratorStream(schema, batches)

    return Service(location, middleware={"doorkeeper": Doorkeeper()})


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
                if inet and connection.getsockname()[1] == port:
                    connection.shutdown(socket.SHUT_RDWR)


def _known_token(token: str | None) -> str:
    """Return the given token, or that of the environment, or an empty text."""
    word = os.environ.get(TOKEN, "") if token is None else token
    require(
        not word or (word.strip() == word and word.isascii() and word.isprintable()),
        f"the token of a data server ({TOKEN}) must consist of printable ASCII characters, without blanks at "
        "its ends: choose another.",
    )
    return word


def _header(ratings: Ratings) -> Served:
    columns = {name: values.dtype.str for name, values in columns_of(ratings).items()}
    return Served(
        ratings.digest, len(ratings), ratings.n_users, ratings.n_items, {}, columns
    )


def _place(address: str) -> tuple[str, str]:
    """Return HOST:PORT and NAME of an address."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
        port = parts.port
        name = parts.path.strip("/")
    except ValueError:
        host = None
        port = None
        name = ""
    # One set per address; a deeper path has no meaning.
    if not host or not port or not name or "/" in name:
        raise BadInput(
            f"{address[:200]!r} is not an address of a data server: write {SCHEME}HOST:PORT/NAME."
        )
    return f"{_bracketed(host)}:{port}", name


def read_remote(
    address: str, *, token: str | None = None, timeout: float = 600.0
) -> Ratings:
    """Return the ratings that a data server has at `flight://HOST:PORT/NAME`.

    `token` is `$ASYNCQN_DATA_TOKEN` by default; `timeout` is in seconds, for each column.
    """
    (where, name), flight = _place(address), arrow("pyarrow.flight")
    token = _known_token(token)
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    options = flight.FlightCallOptions(timeout=timeout, headers=headers)
    limits = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
    with (
        _telling(address, where),
        flight.connect(f"grpc://{where}", generic_options=limits) as client,
    ):
        action = flight.Action("describe", name.encode())
        answer = next(iter(client.do_action(action, options))).body.to_pybytes()
        header = _understood(answer, name)
        arrays = {}
        for column, dtype in header.columns.items():
            ticket = flight.Ticket(json.dumps([name, column]).encode())
            # Every column has one dimension.
            (size,) = (header.sizes[str(word)] for word in SCHEMA[column].shape or ())
            stream = (chunk.data for chunk in client.do_get(ticket, options))
            arrays[column] = _gathered(stream, size, np.dtype(dtype))
        ratings = Ratings(**arrays)
        check_columns(address, ratings, ": ask the operator of the server")
    if ratings.digest != header.digest:
        raise DamagedFile(
            f"{address} sent other ratings than it announced: read it again."
        )
    return ratings


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    """Return the Arrow type in which a column is sent."""
    return arrow().string() if dtype.kind == "U" else arrow().from_numpy_dtype(dtype)


def _gathered(
    stream: Iterator[Any], size: int, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Return one column; memory is allocated as rows arrive, never for what is only announced.

    Short texts in a wide column take many times the bytes that arrived, so this ratio is bounded, as it is
    for compressed files.
    """
    parts = []
    rows = 0
    received = 0
    for batch in stream:
        rows = rows + batch.num_rows
        received = received + batch.nbytes
        if batch.num_rows > ROWS or rows > size:
            raise ValueError("more rows than announced")
        # Texts have a fixed width in NumPy: one long id in a header would make every short one as wide.
        if rows * dtype.itemsize > max(SMALL, MAX_EXPANSION * received):
            raise ValueError("a column is far wider than its texts")
        if (
            batch.num_columns != 1
            or batch.column(0).type != _arrow_type(dtype)
            or batch.column(0).null_count
        ):
            raise ValueError("a column has another type than announced")
        parts.append(
            np.asarray(batch.column(0).to_numpy(zero_copy_only=False)).astype(dtype)
        )
    if rows != size:
        raise ValueError("fewer rows than announced")
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _understood(answer: bytes, wanted: str) -> Served:
    """Return the header of the set, after checking that its columns are those of stored sets."""
    plain = msgspec.json.decode(answer)
    if "sets" in plain:
        there = ", ".join(str(name)[:64] for name in plain["sets"][:10])
        shown = "".join(letter if letter.isprintable() else "?" for letter in there)
        raise BadInput(f"the data server has no set {wanted!r}: it has {shown}.")
    header = msgspec.convert(plain, Served)
    for name, spec in SCHEMA.items():
        if name not in header.columns and spec.optional:
            continue
        if _DTYPE.fullmatch(header.columns[name]) is None:
            raise ValueError("a column has an unknown dtype")
        dtype = np.dtype(header.columns[name])
        known = dtype.str in spec.dtypes or dtype.kind in spec.dtypes
        if not known or dtype.itemsize > 4 * MAX_TEXT_LENGTH:
            raise ValueError("a column has another type than in stored sets")
    # `Ratings(**arrays)` would raise a TypeError for a column that it does not know.
    if set(header.columns) - set(SCHEMA):
        raise ValueError("there is an unknown column")
    return header


@contextmanager
def _telling(address: str, where: str) -> Iterator[None]:
    """Turn failures of the network into one sentence each."""
    flight = arrow("pyarrow.flight")
    lib = arrow()
    odd = (
        *(
            lib.ArrowException,
            msgspec.MsgspecError,
            ValueError,
            TypeError,
            LookupError,
            StopIteration,
        ),
        *(RecursionError, MemoryError, OverflowError),
    )
    try:
        yield
    # Our own sentences pass unchanged; the clauses below are for the errors of others.
    except AsyncqnError:
        raise
    except flight.FlightUnauthenticatedError:
        raise BadInput(
            f"the data server at {where} requires a token: set {TOKEN} as on the server."
        ) from None
    except flight.FlightUnavailableError:
        raise BadInput(
            f"no data server responds at {where}: start one there with asyncqn recommender share."
        ) from None
    except flight.FlightTimedOutError:
        raise BadInput(
            f"the data server at {where} did not respond in time: try again."
        ) from None
    except odd as error:
        raise DamagedFile(
            f"{address} did not respond like a data server: check the address."
        ) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
