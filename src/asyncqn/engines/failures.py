"""A worker's failure on its way to the user: a sentence that says who failed where, and the traceback."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from asyncqn.engines.orders import Assign
from asyncqn.errors import WorkerFailed


class Failure(NamedTuple):
    """A sentence, and where it happened."""

    sentence: str
    trace: str

    def raised(self) -> WorkerFailed:
        """The error for the user; the traceback of another process is a note of it."""
        error = WorkerFailed(self.sentence)
        error.add_note(self.trace)
        return error


def failure(what: Assign | str, error: Exception) -> Failure:
    """Describe an error; what: the order under way, or who failed where, if the error does not say."""
    # The worker's loop has already said who failed where; the cause holds the interesting traceback.
    if isinstance(error, WorkerFailed) and error.__cause__ is not None:
        return Failure(str(error), "".join(traceback.format_exception(error.__cause__)))
    if isinstance(what, Assign):
        what = f"worker {what.worker} failed in its step {what.k}, computing on version {what.read}"
    reason = " ".join(str(error).split()).rstrip(".")
    trace = "".join(traceback.format_exception(error))
    return Failure(f"{what} ({type(error).__name__}: {reason}).", trace)
