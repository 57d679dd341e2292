"""Linear models whose rows are on a data server and come as they are used.

A problem of `from_server` has room for all rows: address space that the operating system fills with zeros and
backs by memory where something is written.  A function of the problem fetches the rows that it is called with,
unless they are there already, and then computes as on a local file, with the same bits.  So each process holds
the rows that it computes on, and no others.

The types and the numbers of rows that a server sends are compared with those that it announced, Arrow
validates the content, and each request has a time limit.  What does not fit is one sentence.
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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, DamagedFile, MissingExtra, require
from asyncqn.models.data_file import Roles, columns_of, require_numbers, roles_of
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
PAGE = 1024
"""Rows that are fetched together, because a request for each of many scattered rows would take longer."""


class Question(msgspec.Struct):
    """Request of a reader: a range of rows of some columns of a table, or a summary of them."""

    name: str
    digest: str
    """Of the table that the reader expects."""
    columns: list[str]
    first: int = 0
    last: int = 0
    label: str | None = None
    weights: str | None = None
    classes: bool = False
    """Whether the label names classes."""
    dtype: str = "float64"


class Summary(msgspec.Struct):
    """Facts about all rows that a linear model needs before it has any."""

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
        parts = re.fullmatch(r"flight://([^/]+:\d+)/([^/]+)", self.url)
        if parts is None:
            raise BadInput(
                f"{self.url[:200]!r} is not an address of a data server: write {SCHEME}HOST:PORT/NAME."
            )
        return parts[1], parts[2]

    def describe(self) -> Description:
        """Return what the table has."""
        flight = flight_library()
        with self._connected() as (client, options):
            descriptor = flight.FlightDescriptor.for_path(self._place[1])
            info = client.get_flight_info(descriptor, options)
            columns = {column.name: str(column.type) for column in info.schema}
            digest = info.schema.metadata[b"digest"].decode()
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
        sums = [*summary.squares, summary.mean_weight, summary.mean_label]
        require(
            all(map(math.isfinite, sums)) and min(sums[:-1]) >= 0.0,
            f"{self.url} has features, weights or a label that are missing or infinite: fill or remove "
            "those rows.",
        )
        return summary

    def rows(
        self, about: Description, columns: Sequence[str], first: int, last: int
    ) -> Iterator[tuple[int, Any]]:
        """Yield the rows from `first` to `last` as Arrow's tables, each with the number of its first row."""
        types = [about.columns[name] for name in columns]
        step = max(1, REQUEST_BYTES // (8 * max(1, len(columns))))
        for start in range(first, last, step):
            end = min(last, start + step)
            question = Question(self._place[1], about.digest, list(columns), start, end)
            with self._connected() as (client, options):
                ticket = flight_library().Ticket(msgspec.json.encode(question))
                table = client.do_get(ticket, options).read_all()
                if [str(kind) for kind in table.schema.types] != types:
                    raise ValueError("a column has another type than announced")
                if table.num_rows != end - start:
                    raise ValueError("other rows than were requested")
                # Arrow checks the places of texts only on request.
                table.validate(full=True)
            yield start, table.rename_columns(list(columns))

    @contextmanager
    def _connected(self) -> Iterator[tuple[Any, Any]]:
        """Yield a client and the options of a request, and turn every failure into one sentence."""
        flight = flight_library()
        where, name = self._place
        token = usable_token(self.token)
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        options = flight.FlightCallOptions(timeout=self.timeout, headers=headers)
        limits = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        server = f"the data server at {where}"
        sentences = {
            flight.FlightUnauthenticatedError: f"{server} requires a token: set {TOKEN} as on the server.",
            flight.FlightUnavailableError: (
                f"no data server responds at {where}: start one there with asyncqn share."
            ),
            flight.FlightTimedOutError: f"{server} did not respond in time: try again.",
            importlib.import_module("pyarrow").ArrowKeyError: (
                f"{server} has no table {name!r}, or another table now than when the problem was made."
            ),
        }
        try:
            with flight.connect(f"grpc://{where}", generic_options=limits) as client:
                yield client, options
        except tuple(sentences) as error:
            raise BadInput(sentences[type(error)]) from None
        # Arrow's other errors, and those of Python for an answer that makes no sense.
        except (Exception, MemoryError) as error:
            raise DamagedFile(
                f"{self.url} did not respond like a data server: check the address."
            ) from error


class ArrivingRows:
    """Room for all rows of a problem, and which pages of them have come."""

    # For `runs.data_digest`: what has come is no property of the problem; the server's digest is.
    computed_on_demand = ("X", "y", "weights", "pages")

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
        self.pages = np.zeros(-(-about.rows // PAGE), np.bool_)
        self.fetched = 0
        """Number of rows that this process has fetched."""
        self.lock = Lock()

    def missing(self, rows: Rows) -> Iterator[tuple[int, int]]:
        """Yield the ranges to fetch before a computation on these rows."""
        wanted = np.zeros_like(self.pages)
        wanted[rows // PAGE] = True
        pages = np.flatnonzero(wanted & ~self.pages)
        if pages.size:
            # Pages that follow each other are one range.
            for some in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
                end = (int(some[-1]) + 1) * PAGE
                yield int(some[0]) * PAGE, min(self.about.rows, end)


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
        """Fetch what is missing of these rows."""
        source = self.source
        assert source is not None
        roles = source.roles
        names = [*roles.features, roles.label]
        if roles.weights is not None:
            names.append(roles.weights)
        with source.lock:
            for first, last in source.missing(rows):
                for at, table in source.table.rows(source.about, names, first, last):
                    part = columns_of(table, roles, self.dtype, at)
                    own = slice(at, at + table.num_rows)
                    source.X[own] = part.X
                    source.y[own] = self._known(part.y)
                    if source.weights is not None and part.weights is not None:
                        sound = bool((part.weights >= 0).all())
                        require(sound, "weights must not be negative.")
                        source.weights[own] = part.weights
                source.pages[first // PAGE : -(-last // PAGE)] = True
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
        room = mmap.mmap(-1, size, flags=flags)
    except (OSError, OverflowError):
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
