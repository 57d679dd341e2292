"""Laws of time: how long a worker's computations take, as functions of standard normals.

The normals of a worker are a function of the seed and of its number alone, so times replay; and two laws that
increase with the normal give, from one seed, times that are long together.

    LogNormal(mean, std)      exp(m + s z), with this mean and standard deviation.
    Exponential(mean)         -mean ln(1 - Phi(z)).
    Pareto(mean, shape)       x (1 - Phi(z))^(-1/shape), x = mean (shape - 1) / shape: a heavy tail.
    Constant(mean)            The same time for every computation.
    Trace(recorded)           Recorded times in their order, from a starting place drawn for each worker.

A user's own law is any object with a method `times`; see `TimeLaw`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.kernels.random import DELAYS, fill_normals, fill_upper_tails
from asyncqn.parameters import REAL, Checked, Kind, Refused, from_json, parameter
from asyncqn.storage.serialise import (
    Json,
    is_own,
    make_own,
    own_kind,
    own_parameters,
    to_json,
)

__all__ = ["Constant", "Exponential", "LogNormal", "Pareto", "TimeLaw", "Trace"]

Times = npt.NDArray[np.float64]

_DRAWS_FOR_MEAN = 4096
"""Draws from which the mean of a user's law is estimated: an error of 1.6 % where the deviation equals the
mean."""


@runtime_checkable
class TimeLaw(Protocol):
    """A law of computation times; a protocol for your own laws, as frozen dataclasses of plain numbers.

    `times(z)` turns a worker's first standard normals into its first computation times, one for one.
    Further normals must not change earlier times: `times(z)[:k]` equals `times(z[:k])`. A law may therefore
    look back, as for times that drift, but not ahead.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> @dataclass(frozen=True)
    ... class Pauses:
    ...     every: int
    ...     def times(self, z):
    ...         return 1.0 + 9.0 * (np.arange(1, z.size + 1) % self.every == 0)
    >>> isinstance(Pauses(every=3), aq.times.TimeLaw)
    True
    >>> aq.Cluster(workers=2, times=Pauses(every=3)).compute_times(seed=0, worker=1, count=4).tolist()
    [1.0, 1.0, 10.0, 1.0]
    """

    def times(self, z: Times) -> Times:
        """Return the first z.size times of a worker whose normals are z; positive and finite."""


Mean = Annotated[float, parameter(gt=0.0)]


@dataclass(frozen=True)
class LogNormal(Checked):
    """Log-normal computation times, as `worker_mean` and `worker_std` of a `Cluster` describe them.

    Parameters
    ----------
    mean : float
        Mean time of one computation, in units of the cluster's time.
    std : float
        Standard deviation of the time of one computation, in the same units.

    Examples
    --------
    >>> import asyncqn as aq
    >>> aq.Cluster(workers=4, times=aq.times.LogNormal(mean=70.0, std=14.0)).means().tolist()
    [70.0, 70.0, 70.0, 70.0]
    """

    kind: ClassVar[str] = "log-normal"
    mean: Mean
    std: Annotated[float, parameter(ge=0.0)]

    def times(self, z: Times) -> Times:
        s2 = math.log1p((self.std / self.mean) ** 2)
        if s2 == 0.0:
            return np.full(z.size, float(self.mean))
        return np.asarray(np.exp(math.log(self.mean) - s2 / 2 + math.sqrt(s2) * z))


@dataclass(frozen=True)
class Exponential(Checked):
    """Exponential computation times, which have no memory.

    The remaining time of a computation does not depend on how long it has taken already.

    Parameters
    ----------
    mean : float
        Mean time of one computation, in units of the cluster's time.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> aq.times.Exponential(mean=2.0).times(np.zeros(1)).round(3).tolist()         # the median: 2 ln 2
    [1.386]
    """

    kind: ClassVar[str] = "exponential"
    mean: Mean

    def times(self, z: Times) -> Times:
        return np.asarray(-self.mean * np.log(upper_tails(z)))


@dataclass(frozen=True)
class Pareto(Checked):
    """Pareto computation times: a few of them are very long.

    Parameters
    ----------
    mean : float
        Mean time of one computation, in units of the cluster's time.
    shape : float
        Exponent of the tail, above 1: P(time > t) falls as t^-shape. The variance is infinite up to 2.

    Examples
    --------
    >>> import asyncqn as aq
    >>> cluster = aq.Cluster(workers=100, times=aq.times.Pareto(mean=40.0, shape=1.5))
    >>> shortest = 40.0 * (1.5 - 1) / 1.5
    >>> bool((cluster.compute_times(seed=0, worker=0, count=1000) >= shortest).all())
    True
    """

    kind: ClassVar[str] = "pareto"
    mean: Mean
    shape: Annotated[float, parameter(gt=1.0)]

    def times(self, z: Times) -> Times:
        # The scale that gives a Pareto variable this mean.
        shortest = self.mean * (self.shape - 1.0) / self.shape
        return np.asarray(shortest * upper_tails(z) ** (-1.0 / self.shape))


@dataclass(frozen=True)
class Constant(Checked):
    """Computation times that are all equal.

    Parameters
    ----------
    mean : float
        Mean time of one computation, in units of the cluster's time.

    Examples
    --------
    >>> import asyncqn as aq
    >>> cluster = aq.Cluster(workers=2, times=[aq.times.Constant(1.0), aq.times.Exponential(5.0)])
    >>> cluster.compute_times(seed=0, worker=0, count=2).tolist()
    [1.0, 1.0]
    """

    kind: ClassVar[str] = "constant"
    mean: Annotated[float, parameter(ge=0.0)]

    def times(self, z: Times) -> Times:
        return np.full(z.size, float(self.mean))


@dataclass(frozen=True)
class Trace(Checked):
    """Recorded computation times, which are repeated in their order.

    A worker begins at a random place, drawn from its first normal, so that workers with the same trace are
    not synchronized. The order is kept, so a run of slow times stays together.

    Parameters
    ----------
    recorded : array-like of float
        The times in their order, positive and finite, in units of the cluster's time.

    Examples
    --------
    >>> import asyncqn as aq
    >>> law = aq.times.Trace([3.0, 1.0, 2.0])
    >>> sorted(aq.Cluster(workers=1, times=law).compute_times(seed=0, worker=0, count=3).tolist())
    [1.0, 2.0, 3.0]
    """

    kind: ClassVar[str] = "trace"
    recorded: Annotated[Sequence[float], REAL, parameter()]

    def __post_init__(self) -> None:
        super().__post_init__()
        values = np.asarray(self.recorded, np.float64)
        require(
            values.ndim == 1
            and values.size > 0
            and bool((np.isfinite(values) & (values > 0)).all()),
            "Trace: recorded must be a list of at least one time, all positive and finite.",
        )
        object.__setattr__(self, "recorded", tuple(values.tolist()))

    def __repr__(self) -> str:
        # A log has thousands of times, which nobody wants to read.
        return f"Trace(<{len(self.recorded):,} times>)"

    @property
    def mean(self) -> float:
        return float(np.mean(self.recorded))

    def times(self, z: Times) -> Times:
        values = np.asarray(self.recorded)
        if z.size == 0:
            return np.empty(0)
        # Phi of the first normal is uniform on (0, 1): it chooses where in the trace this worker begins.
        begin = min(int((1.0 - upper_tails(z[:1])[0]) * values.size), values.size - 1)
        return values[(begin + np.arange(z.size)) % values.size]


@dataclass(frozen=True)
class Scaled:
    """A law with times multiplied by `by`."""

    law: TimeLaw
    by: float

    @property
    def mean(self) -> float:
        return self.by * mean_of(self.law)

    def times(self, z: Times) -> Times:
        return self.by * np.asarray(self.law.times(z))


LAWS: dict[str, type[Any]] = {
    law.kind: law for law in (LogNormal, Exponential, Pareto, Constant, Trace)
}
"""Every law by the name that files give it."""


def upper_tails(z: Times) -> Times:
    """Return 1 - Phi(z) of every entry, with full relative precision where z is large."""
    out = np.empty(z.size)
    fill_upper_tails(np.ascontiguousarray(z), out)
    return out


def draw_times(law: TimeLaw, seed: int, worker: int, count: int) -> Times:
    """Draw a worker's first `count` times from a law, and check them."""
    z = np.empty(count)
    fill_normals(seed, 0, worker, DELAYS, z)
    times = np.asarray(law.times(z), np.float64)
    name = type(law).__name__
    # A user's law is checked at every draw: a bad time would otherwise surface as an impossible schedule.
    require(
        times.shape == (count,),
        f"{name}.times must give one time per normal, not {times.shape}.",
    )
    require(
        bool((np.isfinite(times) & (times >= 0)).all()),
        f"{name}.times must return finite times of at least 0.",
    )
    return times


def mean_of(law: TimeLaw) -> float:
    """Return the law's own `mean`, or the mean of `_DRAWS_FOR_MEAN` draws."""
    mean = getattr(law, "mean", None)
    if mean is None:
        mean = draw_times(law, 0, 0, _DRAWS_FOR_MEAN).mean()
    return float(mean)


def law_to_json(law: TimeLaw) -> Json:
    """Return the law as plain data; of a user's law with other than plain numbers, only the name."""
    kind = getattr(law, "kind", None)
    if kind in LAWS and type(law) is LAWS[kind]:
        return {"kind": kind, **to_json(law)}
    parameters = own_parameters(law)
    return {"kind": own_kind(type(law)) or type(law).__name__, **(parameters or {})}


def law_from_json(data: Any, *, allow_imports: bool = False) -> TimeLaw:
    """Return the law that plain data describe; the inverse of `law_to_json`."""
    if not isinstance(data, Mapping):
        raise BadInput(
            f"a law is a table such as {{kind = 'pareto', mean = 40.0, shape = 1.5}}, not {data!r}."
        )
    parameters = dict(data)
    kind = parameters.pop("kind", None)
    if is_own(kind):
        law: TimeLaw = make_own(str(kind), parameters, "law", allow_imports)
        return law
    if kind not in LAWS:
        raise BadInput(
            f"there is no law of kind {kind!r}; there are {', '.join(LAWS)}."
        )
    made: TimeLaw = from_json(LAWS[kind], parameters, f"law '{kind}'")
    return made


def _law(value: Any) -> TimeLaw:
    """Validate a law, or build one from the plain data that represent it in files."""
    if isinstance(value, Mapping):
        return law_from_json(value)
    if not isinstance(value, TimeLaw) or isinstance(value, type):
        raise Refused
    return value


Law = Annotated[
    TimeLaw, Kind(("a law such as LogNormal(mean=1.0, std=0.2)",), _law, in_files=False)
]
