"""How a command ends: its exit code, and the one sentence on stderr where something is wrong.

Nothing heavy is imported here: from its first moments on the program must be able to end with a sentence.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from asyncqn.core.outcome import Outcome

if TYPE_CHECKING:
    from asyncqn.runs.run import Run

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143
EXIT_CODES = {
    Outcome.COMPLETED: 0,
    Outcome.CONVERGED: 0,
    Outcome.DIVERGED: 3,
    Outcome.STOPPED: 4,
    Outcome.STALLED: 5,
    Outcome.INTERRUPTED: INTERRUPTED,
    Outcome.TERMINATED: TERMINATED,
}
"""The exit code of every status of a run: 0 only where there is an answer.  A command line stops a run before
its end where a limit was reached or every worker is gone.  130 and 143 are what a shell makes of SIGINT and
SIGTERM."""

ENDINGS = {signal.SIGINT: ("interrupted.", INTERRUPTED), signal.SIGTERM: ("terminated.", TERMINATED)}


class Terminated(BaseException):
    """SIGTERM arrived where no run with checkpoints hears it."""


@contextmanager
def hearing(numbers: Iterable[int], hear: Callable[[int, Any], None]) -> Iterator[dict[int, Any]]:
    """Inside, these signals call `hear`; yields who heard them before.  Only the main thread can hear."""
    heard = numbers if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(run: Run) -> int:
    """0 for an answer; an exact method that made its commits without converging was stopped by them."""
    code = EXIT_CODES[run.status]
    return code if run.success or code else EXIT_CODES[Outcome.STOPPED]


LONGEST_WORD = 400
"""Letters of a word, such as a path, that is shown whole in an error."""
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, delete, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks that turn the direction of text, separators
    "\ud800-\udfff]"  # surrogates, from paths that are not valid text: they cannot be printed
)


def clean(text: str) -> str:
    """Replace control characters, which could move the cursor, ring, or reverse the direction of text."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def complain(sentence: str) -> None:
    """One line on stderr, after the program's name; of a word without end, both ends."""
    words = (w if len(w) <= LONGEST_WORD else f"{w[:60]}...{w[-60:]}" for w in sentence.split())
    print(f"asyncqn: {clean(' '.join(words))}", file=sys.stderr)
