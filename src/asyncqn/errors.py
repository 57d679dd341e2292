"""Errors and warnings whose text is for the user: one sentence about what is wrong and what to do."""

from __future__ import annotations

from numbers import Integral
from typing import Any

__all__ = [
    "AsyncqnError",
    "BadInput",
    "DamagedFile",
    "MissingExtra",
    "NotFitted",
    "ReplayMismatch",
    "StabilityWarning",
    "WorkerFailed",
    "is_count",
    "require",
    "require_count",
]


class AsyncqnError(Exception):
    """An error that the user can fix; the command line prints its message alone and exits with code 2.

    Examples
    --------
    >>> import asyncqn as aq
    >>> try:
    ...     aq.Cluster(workers=0)
    ... except aq.AsyncqnError as error:
    ...     print(error)
    workers must be an integer of at least 1, not 0.
    """


class BadInput(AsyncqnError, ValueError):
    """A parameter, an array or a file that cannot be used as it is.

    Examples
    --------
    >>> import asyncqn as aq
    >>> try:
    ...     aq.AsyncSGD(h=1e-4, batch=0)
    ... except aq.BadInput as error:
    ...     print(error)
    batch must be an integer of at least 1, not 0.
    """


class NotFitted(BadInput, AttributeError):
    """A model was used before it was fitted; also an AttributeError, so that `hasattr` returns False."""


class DamagedFile(AsyncqnError):
    """A run, a model or a checkpoint that is incomplete, altered, or not written by asyncqn.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import asyncqn as aq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "run.json").write_text("{}")
    ...     try:
    ...         aq.load_run(folder)
    ...     except aq.DamagedFile:
    ...         print("damaged")
    damaged
    """


class ReplayMismatch(AsyncqnError):
    """A replay that computed other bits than the recorded run.

    Examples
    --------
    >>> import dataclasses
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.AsyncSGD(h=1e-4, batch=20)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=50)
    >>> try:
    ...     aq.replay(dataclasses.replace(run, theta=run.theta + 1.0))
    ... except aq.ReplayMismatch:
    ...     print("other bits")
    other bits
    """


class WorkerFailed(AsyncqnError):
    """A worker's computation raised an error; its text names the worker and the step."""


class MissingExtra(AsyncqnError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        # Every optional dependency has this one sentence, so that each error names the command that mends it.
        super().__init__(
            f"{purpose} needs the package '{package}': install it with pip install 'asyncqn[{extra}]'."
        )


class StabilityWarning(UserWarning):
    """Parameters that are predicted to make a run unstable.

    Examples
    --------
    >>> import warnings
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.ASLBFGS(h=1e-6, gamma=1.0, beta=500.0, memory=3, batch=20, overlap=10)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=5)
    >>> any(issubclass(w.category, aq.StabilityWarning) for w in caught)
    True
    """


class SamplingWarning(UserWarning):
    """Draws that should not be used as they are: chains disagree, diverge, or carry too little information.

    Examples
    --------
    >>> import warnings
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=3, n_data=30, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=2))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     samples = aq.sample(problem, chains=2, draws=50, engine=engine)
    >>> any(issubclass(w.category, aq.SamplingWarning) for w in caught)
    True
    """


def is_count(value: object, least: int = 1) -> bool:
    """Return whether a value is an integer of at least `least`, and not a bool."""
    # `Integral` includes NumPy's integers; bool is a subclass of int.
    return (
        isinstance(value, Integral)
        and not isinstance(value, bool)
        and int(value) >= least
    )


def require(condition: bool, sentence: str) -> None:
    """Raise `BadInput(sentence)` unless `condition` holds."""
    if not condition:
        raise BadInput(sentence)


def require_count(name: str, value: Any) -> None:
    """Raise `BadInput` unless the value of `name` is an integer of at least 1, and not a bool."""
    require(is_count(value), f"{name} must be a positive integer, not {value!r}.")
