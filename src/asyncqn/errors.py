"""Errors and warnings whose text is meant for a person: one sentence, what is wrong and what to do."""

from __future__ import annotations


class AsyncqnError(Exception):
    """Something the user can mend; the command line prints its text alone and exits with 2."""


class BadInput(AsyncqnError, ValueError):
    """A parameter, an array or a file that cannot be used as it is."""


class NotFitted(BadInput, AttributeError):
    """A model that was asked before it learned; an AttributeError too, so that `hasattr` says no."""


class DamagedFile(AsyncqnError):
    """A run, model or checkpoint that is incomplete, altered or not ours."""


class ReplayMismatch(AsyncqnError):
    """A replay that computed other bits than the recorded run."""


class WorkerFailed(AsyncqnError):
    """A worker's computation raised an error; its text names the worker and the step."""


class MissingExtra(AsyncqnError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}': install it with pip install 'asyncqn[{extra}]'."
        )


class StabilityWarning(UserWarning):
    """Parameters that are predicted to make a run unstable."""


def require(condition: bool, sentence: str) -> None:
    """Raise `BadInput(sentence)` unless `condition` holds."""
    if not condition:
        raise BadInput(sentence)
