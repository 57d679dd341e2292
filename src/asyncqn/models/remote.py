"""Linear models whose rows are on a data server and come as they are used.

A problem of `from_server` has room for all rows: address space that the operating system fills with zeros and
backs by memory where something is written.  A function of the problem fetches the rows that it is called with,
unless they are there already, and then computes as on a local file, with the same bits.  So each process holds
the rows that it computes on, and no others.

Nothing that a server sends is trusted: the length of every message, the types, the numbers of rows, missing
values and the time of a request are bounded or compared, and what does not fit is one sentence.
"""

from __future__ import annotations

import importlib
import math
import mmap
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile, MissingExtra, require
from asyncqn.models.data_file import Roles, numbers, require_numbers, roles_of
from asyncqn.models.parameters import Prior, recipe_of
from asyncqn.parameters import Precision, checked
from asyncqn.types import Rows

if TYPE_CHECKING:
    from asyncqn.models.linear_model import LinearModel

__all__ = ["ServedTable"]

SCHEME = "flight://"
TOKEN = "ASYNCQN_DATA_TOKEN"
"""The environment variable with the token of a data server."""
NUMBERS = {
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float", "double", "bool"),
}
"""Arrow's names of the types that are served as they are; all others are served as texts."""
MAX_MESSAGE_BYTES = 1 << 26
"""Largest message that a reader accepts."""
REQUEST_BYTES = 1 << 26
"""Bytes of numbers in a request: more rows are several requests."""
SCATTERED = 1024
"""Rows that are fetched together where rows are wanted here and there."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**48)]


class Question(msgspec.Struct):
    """What a reader asks about a table: a range of rows of some columns, or a summary of them."""

    name: str
    digest: str
    """Of the table that the reader expects."""
    columns: list[str]
    first: Count = 0
    last: Count = 0
    label: str | None = None
    weights: str | None = None
    classes: bool = False
    """Whether the label names classes."""
    dtype: str = "float64"


class Summary(msgspec.Struct):
    """What a linear model needs to know of all rows before it has any."""

    classes: list[bool | int | float | str]
    """The distinct values of the label, sorted; empty where the label is a number."""
    squares: list[float]
    """Sums of weight x_j^2 (`feature_rows.DenseRows.column_squares`)."""
    counts: list[float]
    """Counts of x_j != 0 in the same rows."""
    mean_weight: float
    mean_label: float


class Description(NamedTuple):
    """The size of a table, Arrow's name of each column's type, and a digest of the content."""

    rows: int
    columns: dict[str, str]
    digest: str


@dataclass(frozen=True)
class ServedTable:
    """A table of a data server, as a reader sees it.

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
        # One table per address; a deeper path has no meaning.
        name = self.url.removeprefix(SCHEME).partition("/")[2].strip("/")
        sound = self.url.startswith(SCHEME) and name and "/" not in name
        if not (sound and host and port):
            raise BadInput(
                f"{self.url[:200]!r} is not an address of a data server: write {SCHEME}HOST:PORT/NAME."
            )
        return f"{bracketed(host)}:{port}", name

    def describe(self) -> Description:
        """Return what the table has."""
        flight = flight_library()
        with self._connected() as (client, options):
            descriptor = flight.FlightDescriptor.for_path(self._place[1])
            info = client.get_flight_info(descriptor, options)
            columns = {column.name: str(column.type) for column in info.schema}
            digest = info.schema.metadata[b"digest"].decode()
            if len(columns) < len(info.schema) or not 0 <= info.total_records < 2**48:
                raise ValueError("no table has these columns and rows")
            if not re.fullmatch("[0-9a-f]{32}", digest):
                raise ValueError("no digest is like this")
            return Description(info.total_records, columns, digest)

    def summary(
        self, about: Description, roles: Roles, classes: bool, dtype: str
    ) -> Summary:
        """Return what a linear model needs to know of all rows at its start."""
        question = Question(self._place[1], about.digest, roles.features)
        question.label, question.weights = roles.label, roles.weights
        question.classes, question.dtype = classes, dtype
        with self._connected() as (client, options):
            action = flight_library().Action("summary", msgspec.json.encode(question))
            content = next(iter(client.do_action(action, options))).body.to_pybytes()
            summary = msgspec.json.decode(content, type=Summary)
        sizes = {len(summary.squares), len(summary.counts)}
        sums = [*summary.squares, *summary.counts, summary.mean_weight]
        sound = sizes == {len(roles.features)} and all(map(math.isfinite, sums))
        require(
            sound and min(sums) >= 0.0 and math.isfinite(summary.mean_label),
            f"{self.url} has features, weights or a label that are missing or infinite: fill or remove "
            "those rows.",
        )
        return summary

    def rows(
        self, about: Description, columns: Sequence[str], first: int, last: int
    ) -> Iterator[tuple[int, Any]]:
        """Yield the rows from `first` to `last` as Arrow's record batches, each with its first row.

        The columns have the types of the description, and no more rows come than are asked for.
        """
        types = [about.columns[name] for name in columns]
        step = max(1, REQUEST_BYTES // (8 * max(1, len(columns))))
        while first < last:
            end = min(last, first + step)
            question = Question(self._place[1], about.digest, list(columns), first, end)
            with self._connected() as (client, options):
                ticket = flight_library().Ticket(msgspec.json.encode(question))
                for chunk in client.do_get(ticket, options):
                    batch = chunk.data
                    if [str(kind) for kind in batch.schema.types] != types:
                        raise ValueError("a column has another type than announced")
                    # Empty messages would keep a reader for as long as the server likes.
                    if not 0 < batch.num_rows <= end - first:
                        raise ValueError("other rows than were asked for")
                    batch.validate(full=True)
                    yield first, batch.rename_columns(list(columns))
                    first += batch.num_rows
                if first < end:
                    raise ValueError("fewer rows than were asked for")

    @contextmanager
    def _connected(self) -> Iterator[tuple[Any, Any]]:
        """Yield a client and the options of a request, and turn every failure into one sentence."""
        flight, (where, name) = flight_library(), self._place
        token = usable_token(self.token)
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        options = flight.FlightCallOptions(timeout=self.timeout, headers=headers)
        limits = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        try:
            with flight.connect(f"grpc://{where}", generic_options=limits) as client:
                yield client, options
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
        except importlib.import_module("pyarrow").ArrowKeyError:
            raise BadInput(
                f"the data server at {where} has no table {name!r}, or another table now than when the "
                "problem was made."
            ) from None
        # Arrow's errors, and those of Python for an answer that makes no sense.
        except (Exception, MemoryError) as error:
            raise DamagedFile(
                f"{self.url} did not respond like a data server: check the address."
            ) from error


class ArrivingRows:
    """Room for all rows of a problem, and which of them have come."""

    # For `runs.data_digest`: what has come is no property of the problem; the server's digest is.
    computed_on_demand = ("X", "y", "weights", "present")

    def __init__(
        self, table: ServedTable, about: Description, roles: Roles, dtype: Any
    ) -> None:
        self.table = table
        self.about = about
        self.roles = roles
        self.fingerprint = np.frombuffer(bytes.fromhex(about.digest), np.uint8)
        self.X = _room((about.rows, len(roles.features)), dtype)
        self.y = _room((about.rows,), np.float64)
        weighted = roles.weights is not None
        self.weights = _room((about.rows,), np.float64) if weighted else None
        self.present = _room((about.rows,), np.bool_)
        self.fetched = 0
        """Number of rows that this process has fetched."""
        self.lock = Lock()

    def lacking(self, rows: Rows) -> list[tuple[int, int]]:
        """Return the ranges to fetch before a computation on these rows."""
        missing = rows[~self.present[rows]]
        if not missing.size:
            return []
        consecutive = int(rows.max()) - int(rows.min()) + 1 == rows.size
        size = 1 if consecutive else SCATTERED
        units = np.unique(missing // size)
        # Units that follow each other are one range.
        ranges = np.split(units, np.flatnonzero(np.diff(units) > 1) + 1)
        return [
            (int(some[0]) * size, min(self.about.rows, (int(some[-1]) + 1) * size))
            for some in ranges
        ]


Model = TypeVar("Model", bound="LinearModel")


class FromServer:
    """The part of a linear model that reads rows from a data server."""

    source: ArrivingRows | None

    @classmethod
    @checked
    def from_server(  # type: ignore[misc]
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
        recipe = recipe_of(locals())
        table = ServedTable(url)
        about = table.describe()
        names = list(about.columns)
        roles = roles_of(names, repr(url), label, features, weights, None)
        own_fields = {each.name: each.default for each in fields(cls)}
        classes = "classes" in own_fields
        numeric = [*roles.features, *([] if classes else [label])]
        for name in (*numeric, *([] if weights is None else [weights])):
            require_numbers(about.columns[name] in NUMBERS, "texts", name)
        require(0 < about.rows < 2**31, f"{url} has {about.rows} rows: 1 to 2^31 - 1.")
        summary = table.summary(about, roles, classes, recipe["dtype"])
        source = ArrivingRows(table, about, roles, np.dtype(dtype))
        # The constructor looks at rows, of which there are none yet.
        problem = object.__new__(cls)
        defaults = {n: value for n, value in own_fields.items() if value is not MISSING}
        problem.__dict__.update(
            defaults,
            X=source.X,
            y=source.y,
            weights=source.weights,
            prior=prior,
            intercept=intercept,
            recipe=recipe,
            feature_names=tuple(roles.features),
            source=source,
            # For `runs.data_digest`.
            computed_on_demand=("X", "y", "weights"),
            # Cached properties of the model, whose values come from the server.
            _mean_weight=summary.mean_weight,
            _mean_label=summary.mean_label,
            _column_squares=(np.array(summary.squares), np.array(summary.counts)),
        )
        if classes:
            problem._checked_responses(np.array(summary.classes))
        return problem

    @property
    def stand_in(self: Model) -> Model | None:  # type: ignore[misc]
        """The same problem without what it would fetch; None where the rows are here."""
        if self.source is None:
            return None
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, source=None)
        return twin

    def __reduce_ex__(self: LinearModel, protocol: Any) -> Any:  # type: ignore[misc]
        """Send a problem to another process as its address and the digest of its table."""
        if self.source is None:
            return object.__reduce_ex__(self, protocol)
        return _from_recipe, (type(self), self.recipe, self.source.about.digest)

    def _fetch(self: LinearModel, rows: Rows) -> None:  # type: ignore[misc]
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

    def _store(  # type: ignore[misc]
        self: LinearModel, source: ArrivingRows, first: int, batch: Any
    ) -> None:
        """Write a batch of rows into its place."""
        roles, last = source.roles, first + batch.num_rows
        for j, name in enumerate(roles.features):
            source.X[first:last, j] = numbers(batch.column(name), name, first)
        if source.weights is not None:
            assert roles.weights is not None
            weights = numbers(batch.column(roles.weights), roles.weights, first)
            require(bool((weights >= 0).all()), "weights must not be negative.")
            source.weights[first:last] = weights
        label = batch.column(roles.label)
        classes: npt.NDArray[Any] | None = getattr(self, "classes", None)
        if classes is None:
            y = numbers(label, roles.label, first)
        else:
            # By their positions among the classes: texts of a batch would be as wide as the longest.
            compute = importlib.import_module("pyarrow.compute")
            values = compute.cast(classes.tolist(), label.type)
            places = compute.index_in(label, value_set=values)
            if places.null_count:
                raise BadInput(
                    f"column {roles.label!r} of {source.table.url} has missing values: fill or remove those "
                    "rows."
                )
            y = classes[places.to_numpy()]
        source.y[first:last] = self._known(y)
        source.present[first:last] = True
        source.fetched += last - first


def _from_recipe(model: type[Model], recipe: dict[str, Any], digest: str) -> Model:
    problem = model.from_server(**recipe)
    assert problem.source is not None
    require(
        problem.source.about.digest == digest,
        f"{recipe['url']} has another table now than when the problem was made.",
    )
    return problem


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


def flight_library() -> Any:
    """Return `pyarrow.flight`, imported only where a data server is read."""
    try:
        return importlib.import_module("pyarrow.flight")
    except ImportError:
        raise MissingExtra("pyarrow", "data", "The data server") from None


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
