"""The functions of a problem, called with copies of their arguments, so that any change of these is noticed.

`first_calls` makes all its calls through this class: a function that writes to theta or to the rows is then
named, and not the check that fails because of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.problem import read_only
from asyncqn.errors import BadInput, require
from asyncqn.types import Array, Problem, Rows, extra

MARK = 1.2345678e-30
"""Number that fills `out` before the first call of `grad`: if every entry still has it, nothing was written.
No gradient consists of it."""

Vector = npt.NDArray[np.float64]


class NothingToJudge(Exception):
    """A function raised an error or is not finite: the run will meet that again, and say where."""


class ObservedCalls:
    """The functions of a problem, each call with copies of its arguments."""

    def __init__(self, problem: Problem) -> None:
        # As in the run: a user's compiled functions are compiled once.
        self.problem = read_only(problem)
        # A mistake below `Constrained` is one of the user's own class.
        inner = getattr(problem, "users_problem", None)
        self.name = type(problem if inner is None else inner).__name__

    def has(self, function: str) -> bool:
        return extra(self.problem, function) is not None

    def number(self, function: str, theta: Array, rows: Rows | None = None) -> float:
        """Call `value` or `value_rows`, and return the result as a float."""
        return self._as_number(function, self._call(function, theta, rows))

    def grad(self, theta: Array, rows: Rows, fill: float = math.nan) -> Vector:
        out = np.full_like(theta, fill)
        returned = self._call("grad", theta, rows, out)
        if fill == MARK and bool((out == out.dtype.type(MARK)).all()):
            hint = (
                "" if returned is None else f" (it returns {_shown(returned)} instead)"
            )
            raise BadInput(
                f"{self.name}.grad leaves the array out unchanged{hint}: write the gradient, out[:] = ..."
            )
        return out.astype(np.float64)

    def grad_with_value(self, theta: Array, rows: Rows) -> tuple[Vector, float]:
        # NaN, so that entries which are not written make the comparison fail.
        out = np.full_like(theta, np.nan)
        returned = self._call("grad_with_value", theta, rows, out)
        return out.astype(np.float64), self._as_number("grad_with_value", returned)

    def _as_number(self, function: str, result: Any) -> float:
        try:
            if np.ndim(result) == 0 and not np.iscomplexobj(result):
                return float(result)
        except (TypeError, ValueError):
            pass
        raise BadInput(
            f"{self.name}.{function} must return a number, not {_shown(result)}."
        )

    def _call(self, function: str, theta: Array, rows: Rows | None, *out: Array) -> Any:
        point = theta.copy()
        arguments = [point] if rows is None else [point, rows.copy()]
        try:
            result = getattr(self.problem, function)(*arguments, *out)
        except StopIteration as error:
            raise BadInput(
                f"{self.name}.{function} raises StopIteration, which is for callbacks: let it raise another."
            ) from error
        except BadInput:
            raise
        # Any class of error: it is the user's function, and the run will report it with its context.
        except Exception as error:
            raise NothingToJudge from error
        require(
            point.tobytes() == theta.tobytes(),
            f"{self.name}.{function} changes theta: it must leave theta as it is.",
        )
        require(
            rows is None or arguments[1].tobytes() == rows.tobytes(),
            f"{self.name}.{function} changes rows: it must leave rows as they are.",
        )
        return result


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape:
        return f"an array of shape {shape}"
    return "None" if value is None else type(value).__name__
