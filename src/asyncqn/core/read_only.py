"""A user's potential is handed arrays that it cannot write to: one that changes theta is told at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput
from asyncqn.types import Potential

_OF_THETA = ("value", "metrics", "curvature_diagonal")
OF_ROWS = ("grad", "value_rows", "grad_with_value", "grad_with_curvature")
"""Functions whose first argument is theta; of these the second is rows."""
_READ_ONLY = re.compile("read.?only|write?able", re.IGNORECASE)
"""What the errors of NumPy, numba, Cython, ctypes and PyTorch have in common when an array is read-only."""


def read_only(potential: Potential) -> Any:
    """The potential as workers and master call it: asyncqn's own as it is, another behind `ReadOnly`.

    Our own, and what is derived from it, are left alone because read-only arrays are another type to
    numba: a second compilation of our kernels.
    """
    own = any(kind.__module__.partition(".")[0] == "asyncqn" for kind in type(potential).__mro__)
    return potential if own else ReadOnly(potential)


class ReadOnly:
    """Calls a potential with read-only views of theta and rows; every other attribute is the potential's."""

    def __init__(self, potential: Potential) -> None:
        self._potential = potential
        for name in (*_OF_THETA, *OF_ROWS):
            if callable(method := getattr(potential, name, None)):
                full = f"{type(potential).__name__}.{name}"
                setattr(self, name, _guarded(method, full, name in OF_ROWS))

    def __getattr__(self, name: str) -> Any:
        if name == "_potential":  # not there yet: an instance that is being copied
            raise AttributeError(name)
        return getattr(self._potential, name)


def _guarded(method: Callable[..., Any], name: str, with_rows: bool) -> Callable[..., Any]:
    """A function of a potential, called with views until it turns out to need arrays that it may write to.

    Code compiled for writable arrays alone (Cython, a numba signature) refuses views.  Such a call is
    repeated with writable copies: if they come back changed the potential is at fault, else it is
    handed plain arrays from then on.
    """
    n = 1 + with_rows
    takes_views = True
    # Most calls come with the arrays of the call before, so their views are kept.  Array and view are one
    # pair: threads that share this function never see one without the other.
    kept: list[tuple[Any, Any]] = [(None, None)] * n

    def call(*arguments: Any) -> Any:
        if not takes_views:
            return method(*arguments)
        views = []
        for i in range(n):
            array, view = kept[i]
            if array is not arguments[i]:
                view = _view(arguments[i])
                kept[i] = arguments[i], view
            views.append(view)
        try:
            return method(*views, *arguments[n:])
        except Exception as error:
            return with_copies(error, *arguments)

    def with_copies(error: Exception, *arguments: Any) -> Any:
        nonlocal takes_views
        if _READ_ONLY.search(str(error)) is None:
            raise error
        copies = [np.array(array) for array in arguments[:n]]
        result = method(*copies, *arguments[n:])
        for what, copy, array in zip(("theta", "rows"), copies, arguments):
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
