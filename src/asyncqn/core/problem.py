"""Problem: the function to minimise, as a user writes it, and how a run calls it.

Read `Problem` first: four members are required, all others are optional.  `ReadOnly` follows: a run passes
read-only views of its arrays to a user's class, so that a problem that overwrites theta fails at once with a
clear message instead of corrupting other workers' numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, is_count, require

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Rows: TypeAlias = npt.NDArray[np.int64]
Counters: TypeAlias = npt.NDArray[np.int64]


@runtime_checkable
class Problem(Protocol):
    """The function to minimise: U(theta) = -log p(theta) - sum_i log p(Y_i | theta) over `n_data` rows.

    A user writes four members: `dim`, `n_data`, `value(theta)` and `grad(theta, rows, out)`. They must be
    pure: equal arguments give equal bits, and only `out` is written to. A run passes read-only views
    (`read_only`).

    All further members are optional (`PROBLEM_EXTRAS` lists them); `core.algorithm.extra` looks them up:

    * `dtype`: of theta (float64 when absent);
    * `initial(rng)`: a starting point drawn with a `numpy.random.Generator` (zeros when absent);
    * `metrics(theta)`: a dict of further numbers for the metric table;
    * `optimum`: U*, where it is known, which adds the column `error` = (U - U*)/U*;
    * `value_rows(theta, rows)`: the estimate of U(theta) from `rows`, scaled as `grad` scales its own;
      `ExactLBFGS` judges its steps by it;
    * `grad_with_value(theta, rows, out)`: computes `grad` and returns `value_rows` in one pass over the rows;
    * `curvature_diagonal(theta)`: a positive vector near the Hessian's diagonal (`initial_scale="diagonal"`);
    * `curvature_size`, `grad_with_curvature(theta, rows, out, curvature)` and `inverse_metric_from(curvature,
      step, batch)`: a structured H0 from short summaries that add up over rows as gradients do;
    * `sampled_metric`: True where the summary of a sample of rows serves for all rows, so that samples may
      grow; `grad_with_curvature` then takes one more argument, the number of rows in the sample, and an empty
      `curvature` where none is wanted; for `ExactLBFGS`;
    * `default_algorithm(workers)`: the algorithm that `minimize` uses on this number of workers;
    * `convex`: True where U is convex, so that a method may leave out what is there for plateaus and saddles;
    * `stand_in`: of rows that are elsewhere until they are used, the same problem with rows of zeros, for
      computations that are thrown away; a run of an exact method then evaluates nothing at the master;
    * `names`: a name for each number of theta, for tables and ArviZ;
    * `constrain(theta)`: the natural parameters (of many theta along the last axis), which `sample` reports;
    * `reference()`: plain data (JSON) from which `asyncqn.models.rebuild` makes the problem again.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> class Mean:
    ...     def __init__(self, y):
    ...         self.y, self.dim, self.n_data = y, 1, len(y)
    ...     def value(self, theta):
    ...         return 0.5 * float(((self.y - theta) ** 2).sum())
    ...     def grad(self, theta, rows, out):
    ...         out[:] = self.n_data / len(rows) * (theta - self.y[rows]).sum()
    >>> run = aq.minimize(Mean(np.array([1.0, 2.0, 6.0])), engine=aq.Simulator(aq.Cluster(workers=1)))
    >>> round(float(run.theta[0]), 6)
    3.0
    """

    @property
    def dim(self) -> int: ...
    @property
    def n_data(self) -> int: ...
    def value(self, theta: Array) -> float:
        """Return U(theta) over all data."""

    def grad(self, theta: Array, rows: Rows, out: Array) -> Any:
        """Write into `out` the estimate of grad U(theta) from the data points `rows`.

        out = -grad log p(theta) - (n_data / len(rows)) * sum_{i in rows} grad log p(Y_i | theta).
        A row may occur more than once; `rows = arange(n_data)` gives the exact gradient.
        """


PROBLEM_EXTRAS = (
    "dtype",
    "initial",
    "metrics",
    "optimum",
    "value_rows",
    "grad_with_value",
    "curvature_diagonal",
    "curvature_size",
    "grad_with_curvature",
    "inverse_metric_from",
    "sampled_metric",
    "default_algorithm",
    "convex",
    "stand_in",
    "names",
    "constrain",
    "reference",
)
"""The optional members of a problem."""


def check_members(problem: Any) -> None:
    """Raise `BadInput` unless an object has the members of a `Problem`, of the right kinds."""
    name = getattr(problem, "__name__", type(problem).__name__)
    # Missing members come first: a class in the place of an object also has them, and gets its own message
    # below.
    for member in ("dim", "n_data", "value", "grad"):
        require(
            hasattr(problem, member), f"{name} is not a problem: it has no '{member}'."
        )
    require(
        not isinstance(problem, type),
        f"the problem is the class {name}: make an object of it, {name}(...).",
    )
    for member in ("value", "grad"):
        require(
            callable(getattr(problem, member)),
            f"'{member}' of the problem must be a method.",
        )
    for member in ("dim", "n_data"):
        count = getattr(problem, member)
        require(
            is_count(count),
            f"{name} has {member} = {count!r}: it must be an integer of at least 1.",
        )


_OF_THETA = ("value", "metrics", "curvature_diagonal")
OF_ROWS = ("grad", "value_rows", "grad_with_value", "grad_with_curvature")
"""Functions whose first argument is theta; of these the second is rows."""
# "writeable" is NumPy's own spelling.
_READ_ONLY = re.compile("read.?only|write?able", re.IGNORECASE)
"""What the errors of NumPy, numba, Cython, ctypes and PyTorch have in common when an array is read-only."""


def is_ours(kind: type) -> bool:
    """Return whether a class belongs to asyncqn, or to a package of ours, whose name begins with asyncqn_.

    Such a class is compared and kept in order by our own tests; a user's is checked while it runs.
    """
    package = kind.__module__.partition(".")[0]
    return package == "asyncqn" or package.startswith("asyncqn_")


def read_only(problem: Problem) -> Any:
    """Return the problem as workers and master call it: asyncqn's own unchanged, others behind `ReadOnly`.

    Our own classes and their subclasses are not wrapped, because numba treats read-only arrays as another
    type and would compile our kernels a second time.
    """
    # The whole MRO counts: a user's subclass of our model still calls our kernels.
    return problem if any(map(is_ours, type(problem).__mro__)) else ReadOnly(problem)


class ReadOnly:
    """Calls a problem with read-only views of theta and rows; other attributes pass through."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        # Wrapped once per object, so that a call costs no lookup.
        for name in (*_OF_THETA, *OF_ROWS):
            if callable(method := getattr(problem, name, None)):
                full = f"{type(problem).__name__}.{name}"
                setattr(self, name, _guarded(method, full, name in OF_ROWS))

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` create the object before they fill it; without this test the lookup below would
        # recurse forever.
        if name == "_problem":
            raise AttributeError(name)
        return getattr(self._problem, name)


def _guarded(
    method: Callable[..., Any], name: str, with_rows: bool
) -> Callable[..., Any]:
    """Return a method of a problem that is called with read-only views until it turns out to refuse them.

    Code compiled for writable arrays alone (Cython, a numba signature) refuses views.  Such a call is
    repeated with writable copies.  If they come back changed, the problem is at fault; otherwise the method
    receives plain arrays from then on.
    """
    n = 1 + with_rows
    takes_views = True

    def call(*arguments: Any) -> Any:
        # This function has shown that it needs writable arrays and leaves them unchanged, so the guard is
        # off.
        if not takes_views:
            return method(*arguments)
        try:
            return method(*map(_view, arguments[:n]), *arguments[n:])
        except Exception as error:
            # Only the error's text tells a refused view from a real failure: every library raises its own
            # class.
            return with_copies(error, *arguments)

    def with_copies(error: Exception, *arguments: Any) -> Any:
        nonlocal takes_views
        if _READ_ONLY.search(str(error)) is None:
            raise error
        copies = [np.array(array) for array in arguments[:n]]
        result = method(*copies, *arguments[n:])
        for what, copy, array in zip(("theta", "rows"), copies, arguments):
            # Bytes are compared, not values: NaN is not equal to itself, and -0.0 equals 0.0.
            if copy.tobytes() != array.tobytes():
                raise BadInput(
                    f"{name} changes {what}: it must leave {what} unchanged, so let it work on a copy."
                ) from error
        takes_views = False
        return result

    return call


def _view(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view
