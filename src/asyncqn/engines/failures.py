"""A worker's failure on its way to the user: a sentence that says who failed where, and the traceback."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from asyncqn.errors import WorkerFailed


class Failure(NamedTuple):
    """A sentence, and where it happened."""

    sentence: str
    trace: str

    def raised(self) -> WorkerFailed:
        """Return the error for the user, with the traceback of the other process as a note."""
        error = WorkerFailed(self.sentence)
        error.add_note(self.trace)
        return error


def failure(what: object, error: Exception) -> Failure:
    """Describe an error; `what` says in words who failed where, as the step under way does."""
    # The worker's loop has already said who failed where; the cause holds the interesting traceback.
    if isinstance(error, WorkerFailed) and error.__cause__ is not None:
        return Failure(str(error), "".join(traceback.format_exception(error.__cause__)))
    # On one line: the sentence may end in a log or in a manifest.
    reason = " ".join(str(error).split()).rstrip(".")
    trace = "".join(traceback.format_exception(error))
    return Failure(f"{what} ({type(error).__name__}: {reason}).", trace)
