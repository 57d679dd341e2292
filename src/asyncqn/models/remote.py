"""Linear models whose rows are on a data server and come as they are used.

A problem of `from_server` has the address of its table, the types of its columns, and room for all rows: an
address space that the operating system fills with zeros and backs by memory where something is written.  A
function of the problem fetches the rows that it is called with, unless they are there already, and then
computes as on a local file, with the same bits.  So each process holds the rows that it computes on, and no
others.

Nothing that a server sends is trusted: the length of every message, the types, the numbers of rows, missing
values and the time of a request are bounded or compared, and what does not fit is one sentence.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, dataclass, field, fields
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile, require
from asyncqn.models.data_file import Roles, require_numbers_in, roles_of
from asyncqn.models.feature_rows import Vector
from asyncqn.models.parameters import Prior
from asyncqn.models.server import (
    NUMBERS,
    SCHEME,
    TOKEN,
    Description,
    Question,
    Scales,
    bracketed,
    flight_library,
    usable_token,
)
from asyncqn.parameters import Precision, checked
from asyncqn.types import Rows

__all__ = ["ServedTable"]

MAX_MESSAGE_BYTES = 1 << 26
"""Largest message that a reader accepts."""
REQUEST_BYTES = 1 << 26
"""Bytes of numbers in a request: more rows are several requests."""
SCATTERED = 1024
"""Rows that are fetched together where rows are wanted here and there."""


@dataclass(frozen=True)
class ServedTable:
    """A table of a data server, as a reader sees it; it travels to other processes as its address.

    Parameters
    ----------
    url : str
        flight://HOST:PORT/NAME.
    token : str, optional
        The server's token; by default the environment variable ASYNCQN_DATA_TOKEN, which every process
        reads for itself.
    timeout : float, default 60.0
        Seconds within which every request must be complete. A request is for at most 64 MB of numbers, or
        one row.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    timeout: float = 60.0

    def __post_init__(self) -> None:
        usable_token(self.token)
        _ = self._place

    @property
    def _place(self) -> tuple[str, str]:
        """HOST:PORT and NAME."""
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
            parts = urlsplit("")
        name = parts.path.strip("/")
        sound = f"{parts.scheme}://" == SCHEME and host and port and name
        # One table per address; a deeper path has no meaning.
        if not sound or "/" in name:
            raise BadInput(
                f"{self.url[:200]!r} is not an address of a data server: write {SCHEME}HOST:PORT/NAME."
            )
        return f"{bracketed(str(host))}:{port}", name

    def describe(self) -> Description:
        """Return what the table has."""
        question = Question(self._place[1])
        about: Description = self._answer("describe", question, Description)
        return about

    def classes(self, digest: str, column: str) -> npt.NDArray[Any]:
        """Return the distinct values of a column, sorted."""
        question = Question(self._place[1], digest, label=column)
        kinds = list[bool | int | float | str]
        return np.array(self._answer("classes", question, kinds))

    def scales(
        self,
        digest: str,
        features: Sequence[str],
        label: str,
        weights: str | None,
        dtype: str,
    ) -> Scales:
        """Return the sums over all rows that a linear model needs at its start."""
        name = self._place[1]
        question = Question(name, digest, list(features), label, weights, dtype)
        scales: Scales = self._answer("scales", question, Scales)
        sizes = {len(scales.squares), len(scales.counts)}
        numbers = [*scales.squares, *scales.counts, scales.mean_weight]
        sound = sizes == {len(features)} and all(map(math.isfinite, numbers))
        require(
            sound and min(numbers) >= 0.0 and math.isfinite(scales.mean_label),
            f"{self.url} has features, weights or a label that are missing or infinite: fill or remove "
            "those rows.",
        )
        return scales

    def rows(
        self, about: Description, columns: Sequence[str], first: int, last: int
    ) -> Iterator[tuple[int, Any]]:
        """Yield the rows from `first` to `last` as Arrow's record batches, each with its first row.

        The columns have the types of the description, and no more rows come than are asked for.
        """
        flight = flight_library()
        wanted = [about.columns[name] for name in columns]
        step = max(1, REQUEST_BYTES // (8 * max(1, len(columns))))
        while first < last:
            end = min(last, first + step)
            question = Question(
                self._place[1], about.digest, list(columns), first=first, last=end
            )
            with self._one_sentence(), self._connected() as (client, options):
                ticket = flight.Ticket(msgspec.json.encode(question))
                for chunk in client.do_get(ticket, options):
                    batch = chunk.data
                    types = [str(kind) for kind in batch.schema.types]
                    if types != wanted:
                        raise ValueError("a column has another type than announced")
                    # Empty messages would keep a reader for as long as the server likes.
                    if not 0 < batch.num_rows <= end - first:
                        raise ValueError("other rows than were asked for")
                    batch.validate(full=True)
                    yield first, batch
                    first += batch.num_rows
                if first < end:
                    raise ValueError("fewer rows than were asked for")

    def _answer(self, ask: str, question: Question, kind: Any) -> Any:
        flight = flight_library()
        with self._one_sentence(), self._connected() as (client, options):
            action = flight.Action(ask, msgspec.json.encode(question))
            answer = next(iter(client.do_action(action, options))).body.to_pybytes()
            if ask == "describe" and answer.startswith(b'{"tables"'):
                names = msgspec.json.decode(answer, type=dict[str, list[str]])["tables"]
                there = ", ".join(name[:64] for name in names[:10])
                there = "".join(c if c.isprintable() else "?" for c in there)
                raise BadInput(
                    f"the data server has no table {question.name!r}: it has {there}."
                )
            return msgspec.json.decode(answer, type=kind)

    @contextmanager
    def _connected(self) -> Iterator[tuple[Any, Any]]:
        """Yield a client and the options of a request; the connection lasts for the request alone."""
        flight = flight_library()
        token = usable_token(self.token)
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        options = flight.FlightCallOptions(timeout=self.timeout, headers=headers)
        limits = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        where = f"grpc://{self._place[0]}"
        with flight.connect(where, generic_options=limits) as client:
            yield client, options

    @contextmanager
    def _one_sentence(self) -> Iterator[None]:
        """Turn failures of the network, and answers that make no sense, into one sentence each."""
        flight, where = flight_library(), self._place[0]
        nonsense = (
            msgspec.MsgspecError, ValueError, TypeError, LookupError, StopIteration, RecursionError,
            MemoryError, OverflowError,
        )  # fmt: skip
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
                f"no data server responds at {where}: start one there with asyncqn share."
            ) from None
        except flight.FlightTimedOutError:
            raise BadInput(
                f"the data server at {where} did not respond in time: try again."
            ) from None
        except (flight.FlightError, *nonsense) as error:
            if "another one now" in str(error):
                raise BadInput(
                    f"{self.url} has another table now than when the problem was made: make it again."
                ) from None
            raise DamagedFile(
                f"{self.url} did not respond like a data server: check the address."
            ) from error


class ArrivingRows:
    """Room for all rows of a problem, and which of them have come.

    Parameters
    ----------
    table : ServedTable
        Where they come from.
    about : Description
        What the table has.
    roles : Roles
        Which column is what.
    dtype : dtype
        Type of the features.
    """

    # For `runs.data_digest`: what has come is no property of the problem; the server's digest is.
    computed_on_demand = ("X", "y", "weights", "present")

    def __init__(
        self, table: ServedTable, about: Description, roles: Roles, dtype: Any
    ) -> None:
        self.table = table
        self.about = about
        self.roles = roles
        self.dtype = np.dtype(dtype)
        self.fingerprint = np.frombuffer(bytes.fromhex(about.digest), np.uint8)
        self.closed = False
        """Whether nothing may come any more."""
        self._make_room()

    def _make_room(self) -> None:
        n = self.about.rows
        self.X = _room((n, len(self.roles.features)), self.dtype)
        self.y = _room((n,), np.float64)
        weighted = self.roles.weights is not None
        self.weights = _room((n,), np.float64) if weighted else None
        self.present = _room((n,), np.bool_)
        self.fetched = 0
        """Number of rows that this process has fetched."""
        self.lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        own = ("table", "about", "roles", "dtype", "fingerprint", "closed")
        return {name: getattr(self, name) for name in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_room()

    def lacking(self, rows: Rows) -> list[tuple[int, int]]:
        """Return the ranges to fetch before a computation on these rows."""
        missing = rows[~self.present[rows]]
        if self.closed or not missing.size:
            return []
        together = int(rows.max()) - int(rows.min()) + 1 == rows.size
        size = 1 if together else SCATTERED
        units = np.unique(missing // size)
        # Units that follow each other are one range.
        starts = np.flatnonzero(np.diff(units, prepend=-2) > 1)
        ends = np.append(starts[1:], len(units)) - 1
        last = self.about.rows
        return [
            (int(units[i]) * size, min(last, (int(units[j]) + 1) * size))
            for i, j in zip(starts, ends)
        ]

    def numbers(self, column: Any, name: str, first: int) -> npt.NDArray[Any]:
        """Return a column of a batch whose first row is `first`; raise `BadInput` unless all are finite."""
        values = column.to_numpy(zero_copy_only=False)
        # Arrow's missing integers are NaN in NumPy.
        finite = np.isfinite(values.astype(np.float64))
        if not finite.all():
            row = first + int(np.argmin(finite)) + 1
            raise BadInput(
                f"column {name!r} of {self.table.url} has a missing or infinite value in row {row} of the "
                "data: fill or remove such rows."
            )
        array: npt.NDArray[Any] = values
        return array


Model = TypeVar("Model", bound="FromServer")


class FromServer:
    """The part of a linear model that reads rows from a data server."""

    source: ArrivingRows | None

    def _known(self, y: npt.NDArray[Any]) -> Vector:
        raise NotImplementedError

    def _checked_responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        raise NotImplementedError

    @classmethod
    @checked
    def from_server(
        cls: type[Model],
        url: str,
        label: str,
        features: Sequence[str] | None = None,
        weights: str | None = None,
        prior: Prior = 1.0,
        intercept: bool = True,
        dtype: Precision = np.float64,
    ) -> Model:
        """Make the problem from a table of a data server, which `asyncqn share` starts.

        A function of the problem fetches the rows that it is called with, unless this process has them
        already. So each process or rank holds the rows that it computes on; a run of a method with exact
        gradients evaluates nothing at the master, which then holds none.

        Parameters
        ----------
        url : str
            flight://HOST:PORT/NAME. The environment variable ASYNCQN_DATA_TOKEN has the server's token.
        label : str
            The column to predict.
        features : list of str, optional
            The columns to predict from; None: all columns without another role.
        weights : str, optional
            Column of the weights of rows.
        prior : float, default 1.0
            Precision of the Gaussian prior.
        intercept : bool, default True
            Whether theta ends with an intercept, to which the prior does not apply.
        dtype : float64 or float32
            Type of the features and of theta.

        Returns
        -------
        LinearModel
            The problem.  A saved run of it reads the table again for a replay.
        """
        table = ServedTable(url)
        about = table.describe()
        names = list(about.columns)
        roles = roles_of(names, repr(url), label, features, weights, None)
        classes = any(each.name == "classes" for each in fields(cls))  # type: ignore[arg-type]
        numeric = [*roles.features, *([] if classes else [label])]
        for name in (*numeric, *([] if weights is None else [weights])):
            require_numbers_in(about.columns[name] in NUMBERS, "texts", name)
        require(0 < about.rows < 2**31, f"{url} has {about.rows} rows: 1 to 2^31 - 1.")
        word = np.dtype(dtype).name
        recipe = {
            "url": url, "label": label, "features": None if features is None else list(features),
            "weights": weights, "prior": prior, "intercept": intercept, "dtype": word,
        }  # fmt: skip
        values = {
            each.name: each.default
            for each in fields(cls)  # type: ignore[arg-type]
            if each.default is not MISSING
        }
        values |= {"prior": prior, "intercept": intercept, "recipe": recipe}
        values |= {"feature_names": tuple(roles.features)}
        values |= {"source": ArrivingRows(table, about, roles, dtype)}
        # The constructor looks at rows, of which there are none yet.
        problem = object.__new__(cls)
        problem.__setstate__(values)
        if classes:
            problem._checked_responses(table.classes(about.digest, label))
        scales = table.scales(about.digest, roles.features, label, weights, word)
        squares = np.array(scales.squares), np.array(scales.counts)
        means = {"_mean_weight": scales.mean_weight, "_mean_label": scales.mean_label}
        # Cached properties, whose values come from the server.
        problem.__dict__.update(means, _column_squares=squares)
        return problem

    @property
    def stand_in(self: Model) -> Model | None:
        """The same problem with rows of zeros, which fetches nothing; None where the rows are here."""
        if self.source is None:
            return None
        twin = copy(self)
        assert twin.source is not None
        twin.source.closed = True
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.source is not None:
            for name in ("X", "y", "weights", "_rows", "_responses_and_weights"):
                state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.source is None:
            return
        source = copy(self.source)
        self.__dict__.update(source=source, X=source.X, y=source.y)
        self.__dict__.update(weights=source.weights)
        # For `runs.data_digest`.
        self.__dict__.update(computed_on_demand=("X", "y", "weights"))

    def _fetch(self, rows: Rows) -> None:
        """Fetch what is lacking of these rows."""
        source = self.source
        assert source is not None
        roles = source.roles
        columns = [*roles.features, roles.label]
        if roles.weights is not None:
            columns.append(roles.weights)
        with source.lock:
            for first, last in source.lacking(rows):
                for at, batch in source.table.rows(source.about, columns, first, last):
                    self._store(source, at, batch)

    def _store(self, source: ArrivingRows, first: int, batch: Any) -> None:
        """Write a batch of rows into its place."""
        last = first + batch.num_rows
        roles, count = source.roles, len(source.roles.features)
        for j, name in enumerate(roles.features):
            source.X[first:last, j] = source.numbers(batch.column(j), name, first)
        label = batch.column(count)
        classes: npt.NDArray[Any] | None = getattr(self, "classes", None)
        if classes is None:
            y = source.numbers(label, roles.label, first)
        else:
            # By their positions among the classes: texts of a batch would be as wide as the longest.
            import pyarrow
            from pyarrow import compute

            known = pyarrow.array(classes.tolist()).cast(label.type)
            place = compute.index_in(label, value_set=known)
            if place.null_count:
                raise BadInput(
                    f"column {roles.label!r} of {source.table.url} has missing values: fill or remove those "
                    "rows."
                )
            y = classes[place.to_numpy()]
        source.y[first:last] = self._known(y)
        if source.weights is not None:
            assert roles.weights is not None
            weights = source.numbers(batch.column(count + 1), roles.weights, first)
            require(bool((weights >= 0).all()), "weights must not be negative.")
            source.weights[first:last] = weights
        source.present[first:last] = True
        source.fetched += last - first


def _room(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Return an array of zeros that takes no memory before something is written to it."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    # MAP_NORESERVE, which Python does not name everywhere: there may be more rows than memory.
    unreserved = 0x4000 if sys.platform == "linux" else 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | unreserved
    try:
        room = mmap.mmap(-1, max(1, size), flags=flags)
    except (OSError, OverflowError, ValueError):
        raise BadInput(
            f"there is no room for a table of {size:,} bytes: name fewer columns in features."
        ) from None
    return np.frombuffer(room, dtype, math.prod(shape)).reshape(shape)
