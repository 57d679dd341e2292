"""The data server: ratings over the network, for workers on machines that share no disk.

The paper's architecture has a master, workers, and a data server that all workers can reach.  On one machine
the memory map of a stored set plays its part; where machines share no disk, one of them serves its sets by
Arrow Flight, and the others name `flight://HOST:PORT/NAME` where they would name a file.  A worker reads the
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
from asyncqn_recommender.data.sources import MOST_SWELLING, SMALL
from asyncqn_recommender.data.store import SCHEMA, Header, check_columns, columns_of

SCHEME = "flight://"
TOKEN = "ASYNCQN_DATA_TOKEN"
"""The environment variable with the word that a data server may ask for."""
ROWS = 1 << 16
"""Rows of a message: at most 512 kB of numbers."""
LONGEST_TEXT = 1 << 12
"""Letters of an id or title, at most."""
LONGEST_MESSAGE = 1 << 28
"""Bytes of a message that a reader accepts, at most."""
_LONGEST_SHUTDOWN = 10.0
_DTYPE = re.compile(r"<(i4|i8|f4|f8|U[0-9]{1,5})")
_LOOPBACK, _EVERYWHERE = ("127.0.0.1", "localhost", "::1"), ("0.0.0.0", "::")


class Served(Header):
    """The header of a stored set, and the dtype of every column that is served."""

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
        self, sets: Mapping[str, Ratings], *, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> None:
        """Serve `sets` by name until closed, on a free port unless `port` names one.

        `token`: a word that clients must show, `$ASYNCQN_DATA_TOKEN` by default.  Without one only this
        machine may be served.  Nothing is encrypted: use a private network.
        """
        token = _known_token(token)
        require(bool(sets), "a data server needs at least one set of ratings.")
        require(0 <= port < 65536, f"port must lie in 0..65535, not {port!r}.")
        require(
            bool(token) or host in _LOOPBACK,
            f"{host} can be reached from other machines: choose a word that they must show, and set it as "
            f"{TOKEN} here and there.",
        )
        flight = arrow("pyarrow.flight")
        try:
            self._server = _service(flight, dict(sets), f"grpc://{_bracketed(host)}:{port}", token)
        except (OSError, arrow().ArrowException) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(
                f"nothing can be served at {host}:{port} ({reason}): choose another port."
            ) from None
        reached = socket.gethostname() if host in _EVERYWHERE else host
        self.port = int(self._server.port)
        self.address = f"{SCHEME}{_bracketed(reached)}:{self.port}"
        self._closed = Event()

    def wait(self) -> None:
        """Stay here until another thread closes the server, or an interrupt arrives."""
        while not self._closed.wait(1.0):
            pass

    def close(self) -> None:
        """End it within a few seconds; readings under way are cut off.

        Flight's own shutdown waits for every reader, also for one that has stalled and for which it would
        wait for ever.  So it runs in a thread of its own while the connections are closed here.
        """
        self._closed.set()
        shutdown = Thread(target=self._server.shutdown, daemon=True)
        shutdown.start()
        ends = time.monotonic() + _LONGEST_SHUTDOWN
        while shutdown.is_alive() and time.monotonic() < ends:
            _close_connections(self.port)
            shutdown.join(0.05)

    def __enter__(self) -> DataServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _service(flight: Any, sets: dict[str, Ratings], location: str, token: str | None) -> Any:
    """The Flight service; its classes exist only where pyarrow does."""

    class Doorkeeper(flight.ServerMiddlewareFactory):  # type: ignore[misc]
        def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> None:
            shown = (headers.get("authorization") or [""])[0]
            if token and not hmac.compare_digest(shown.encode(), f"Bearer {token}".encode()):
                raise flight.FlightUnauthenticatedError("a token is needed")

    class Service(flight.FlightServerBase):  # type: ignore[misc]
        def do_action(self, context: Any, action: Any) -> list[bytes]:
            """`describe NAME`: the header of a set, or which sets there are."""
            name = action.body.to_pybytes().decode("utf-8", "replace")
            if action.type != "describe" or name not in sets:
                return [msgspec.json.encode({"sets": sorted(sets)[:100]})]
            return [msgspec.json.encode(_header(sets[name]))]

        def do_get(self, context: Any, ticket: Any) -> Any:
            """One column of a set, in messages of at most `ROWS` rows."""
            try:
                name, column = json.loads(ticket.ticket)
                values = columns_of(sets[name])[column]
            except (ValueError, TypeError, KeyError):
                raise flight.FlightServerError("there is no such column") from None
            lib, kind = arrow(), _arrow_type(values.dtype)
            schema = lib.schema([("values", kind)])
            parts = (values[i : i + ROWS] for i in range(0, len(values), ROWS))
            batches = (lib.record_batch([lib.array(part, kind)], schema=schema) for part in parts)
            return flight.GeneratorStream(schema, batches)

    return Service(location, middleware={"doorkeeper": Doorkeeper()})


def _close_connections(port: int) -> None:
    """Shut down every TCP connection of this process whose local port is `port`."""
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):
            handle = os.dup(int(name))
            if not stat.S_ISSOCK(os.fstat(handle).st_mode):
                os.close(handle)
                continue
            with socket.socket(fileno=handle) as connection:
                inet = connection.family in (socket.AF_INET, socket.AF_INET6)
                if inet and connection.getsockname()[1] == port:
                    connection.shutdown(socket.SHUT_RDWR)


def _known_token(token: str | None) -> str:
    """The token that was given, or else that of the environment; empty: none."""
    word = os.environ.get(TOKEN, "") if token is None else token
    require(
        not word or (word.strip() == word and word.isascii() and word.isprintable()),
        f"the token of a data server ({TOKEN}) is blank, begins or ends with a blank, or has letters that "
        "are not printable ASCII: choose another.",
    )
    return word


def _header(ratings: Ratings) -> Served:
    columns = {name: values.dtype.str for name, values in columns_of(ratings).items()}
    return Served(ratings.digest, len(ratings), ratings.n_users, ratings.n_items, {}, columns)


def _place(address: str) -> tuple[str, str]:
    """HOST:PORT and NAME of an address."""
    try:
        parts = urlsplit(address)
        host, port, name = parts.hostname, parts.port, parts.path.strip("/")
    except ValueError:
        host, port, name = None, None, ""
    if not host or not port or not name or "/" in name:
        raise BadInput(f"{address[:200]!r} names no set of a data server: write {SCHEME}HOST:PORT/NAME.")
    return f"{_bracketed(host)}:{port}", name


def read_remote(address: str, *, token: str | None = None, timeout: float = 600.0) -> Ratings:
    """The ratings that a data server has at `flight://HOST:PORT/NAME`.

    `token`: `$ASYNCQN_DATA_TOKEN` by default; `timeout`: seconds for every column.
    """
    (where, name), flight = _place(address), arrow("pyarrow.flight")
    token = _known_token(token)
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    options = flight.FlightCallOptions(timeout=timeout, headers=headers)
    limits = [("grpc.max_receive_message_length", LONGEST_MESSAGE)]
    with _telling(address, where), flight.connect(f"grpc://{where}", generic_options=limits) as client:
        action = flight.Action("describe", name.encode())
        answer = next(iter(client.do_action(action, options))).body.to_pybytes()
        header = _understood(answer, name)
        arrays = {}
        for column, dtype in header.columns.items():
            ticket = flight.Ticket(json.dumps([name, column]).encode())
            (size,) = (header.sizes[str(word)] for word in SCHEMA[column].shape or ())
            stream = (chunk.data for chunk in client.do_get(ticket, options))
            arrays[column] = _gathered(stream, size, np.dtype(dtype))
        ratings = Ratings(**arrays)
        check_columns(address, ratings, ": ask whoever serves it")
    if ratings.digest != header.digest:
        raise DamagedFile(f"{address} gave other ratings than it announced: read it again.")
    return ratings


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    """The type in which a column travels."""
    return arrow().string() if dtype.kind == "U" else arrow().from_numpy_dtype(dtype)


def _gathered(stream: Iterator[Any], size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """One column; memory is taken as rows arrive, never for what is only announced.

    Short texts in a wide column take many times the bytes that arrived, so their ratio is bounded, as it is
    for packed files.
    """
    parts, rows, received = [], 0, 0
    for batch in stream:
        rows, received = rows + batch.num_rows, received + batch.nbytes
        if batch.num_rows > ROWS or rows > size:
            raise ValueError("more rows than announced")
        if rows * dtype.itemsize > max(SMALL, MOST_SWELLING * received):
            raise ValueError("a column that is far wider than its texts")
        if batch.num_columns != 1 or batch.column(0).type != _arrow_type(dtype) or batch.column(0).null_count:
            raise ValueError("a column of another type than announced")
        parts.append(np.asarray(batch.column(0).to_numpy(zero_copy_only=False)).astype(dtype))
    if rows != size:
        raise ValueError("fewer rows than announced")
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _understood(answer: bytes, wanted: str) -> Served:
    """The header of the set, once its columns are such as stored sets have."""
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
            raise ValueError("a dtype that stored sets do not have")
        dtype = np.dtype(header.columns[name])
        known = dtype.str in spec.dtypes or dtype.kind in spec.dtypes
        if not known or dtype.itemsize > 4 * LONGEST_TEXT:
            raise ValueError("a column that stored sets do not have")
    if set(header.columns) - set(SCHEMA):
        raise ValueError("an unknown column")
    return header


@contextmanager
def _telling(address: str, where: str) -> Iterator[None]:
    """Failures of the network in one sentence each."""
    flight, lib = arrow("pyarrow.flight"), arrow()
    odd = (
        *(lib.ArrowException, msgspec.MsgspecError, ValueError, TypeError, LookupError, StopIteration),
        *(RecursionError, MemoryError, OverflowError),
    )
    try:
        yield
    except AsyncqnError:
        raise
    except flight.FlightUnauthenticatedError:
        raise BadInput(
            f"the data server at {where} wants its token: set {TOKEN} as it was set there."
        ) from None
    except flight.FlightUnavailableError:
        raise BadInput(
            f"no data server answers at {where}: start one there with asyncqn recommender share."
        ) from None
    except flight.FlightTimedOutError:
        raise BadInput(f"the data server at {where} did not answer in time: try again.") from None
    except odd as error:
        raise DamagedFile(f"{address} did not answer as a data server does: check the address.") from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
