"""The end of a command: its exit code, and one sentence on stderr where something is wrong.

Nothing heavy is imported here: the program must be able to end with a sentence from its first moment on.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

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
"""The exit code of every status of a run: 0 only where there is an answer.  A run counts as stopped where it
reached a limit or lost all workers.  130 and 143 are the codes of shells for SIGINT and SIGTERM."""

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, delete, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks that turn the direction of text, separators
    "\ud800-\udfff]"  # surrogates, from paths that are not valid text: they cannot be printed
)


def exit_code(run: Run) -> int:
    """Return 0 for an answer; an exact method that made all commits without converging counts as stopped."""
    # A run that made its commits may still be no success: then its code must not be 0.
    code = EXIT_CODES[run.status]
    return code if run.success or code else EXIT_CODES[Outcome.STOPPED]


def clean(text: str) -> str:
    """Replace control characters, which could move the cursor, ring, or reverse the direction of text."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def complain(sentence: str) -> None:
    """Print one line on stderr after the program's name."""
    print(f"asyncqn: {clean(' '.join(sentence.split()))}", file=sys.stderr)
