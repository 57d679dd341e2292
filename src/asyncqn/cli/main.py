"""The `asyncqn` program: how it starts, and the one way in which it fails."""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asyncqn.cli.ending import BAD_INPUT, INTERRUPTED, TERMINATED, clean, complain
from asyncqn.errors import AsyncqnError, StabilityWarning


class Terminated(BaseException):
    """SIGTERM arrived where no run with checkpoints hears it."""


@contextmanager
def _hearing_signals() -> Iterator[None]:
    """SIGINT and SIGTERM end the command with a sentence; under MPI the launcher speaks, and ends all ranks.

    An import that is broken into may leave a traceback of its own, or half a module: there the process ends
    at once.  Imports write nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, frame: Any) -> None:
        ending = ("terminated.", TERMINATED) if number == signal.SIGTERM else ("interrupted.", INTERRUPTED)
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                complain(ending[0])
                sys.stderr.flush()
                os._exit(ending[1])
            frame = frame.f_back
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    heard = [signal.SIGINT]
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        heard.append(signal.SIGTERM)
    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one sentence on stderr and exit code 2, never a traceback.

    With --json that sentence is also the one JSON object on stdout: {"error": "..."}.
    """
    given = sys.argv[1:] if arguments is None else arguments
    sentence, code = "", 0
    # A second Ctrl-C while the interpreter ends would print the traceback of whatever it breaks into.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        with warnings.catch_warnings(), _hearing_signals():
            warnings.showwarning = _warn
            warnings.simplefilter("always", StabilityWarning)
            sentence, code = _call(given)
    except (KeyboardInterrupt, Terminated) as signalled:
        terminated = isinstance(signalled, Terminated)
        sentence, code = ("terminated.", TERMINATED) if terminated else ("interrupted.", INTERRUPTED)
    if sentence:
        complain(sentence)
        if "--json" in given:
            print(json.dumps({"error": clean(sentence)}), flush=True)
    sys.exit(code)


def _warn(message: Warning | str, category: type[Warning], *rest: object, **more: object) -> None:
    print(f"asyncqn: warning: {clean(str(message))}", file=sys.stderr)


def _call(arguments: list[str]) -> tuple[str, int]:
    """Call the command: a sentence that says what went wrong, or none, and the exit code."""
    import typer

    from asyncqn.cli.program import program

    usage: type[Exception] = typer.BadParameter.__bases__[0]  # typer shows only this subclass of its base
    try:
        code = program().main(arguments, prog_name="asyncqn", standalone_mode=False)
        if code == INTERRUPTED:  # typer's own answer to Ctrl-C
            raise KeyboardInterrupt
        return "", code if isinstance(code, int) else 0
    except AsyncqnError as error:
        return str(error), BAD_INPUT
    except usage as error:
        if os.environ.get("OMPI_COMM_WORLD_RANK", "0") != "0":
            return "", 0  # every rank of an MPI job has this command line: rank 0 speaks and fails for all
        return usage_sentence(error), BAD_INPUT
    except typer.Abort:
        raise KeyboardInterrupt from None
    except (MemoryError, OverflowError, ValueError) as error:
        if not asks_too_much(error):
            raise
        return memory_sentence(error), BAD_INPUT
    except BrokenPipeError:
        return "", 1
    except OSError as error:
        return system_sentence(error), BAD_INPUT


def system_sentence(error: OSError) -> str:
    """What the system refused, and on which file."""
    name = f"{error.filename} cannot be used: " if error.filename else ""
    return f"{name}{error.strerror or error}."


def asks_too_much(error: Exception) -> bool:
    """Whether NumPy refused a size that no array can have: it has no error of its own for that."""
    return not isinstance(error, ValueError) or any(
        words in str(error) for words in ("Maximum allowed dimension", "array is too big")
    )


def memory_sentence(error: Exception) -> str:
    """What did not fit; NumPy names the array, others say nothing."""
    what = f": {str(error).rstrip('.')}" if str(error) else ""
    return f"this needs more memory than there is{what}; ask for something smaller, or use a larger machine."


def usage_sentence(error: Exception) -> str:
    """What is wrong with a command line, and which help to read; empty where help was already printed."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    first = " ".join(message.split())
    context = getattr(error, "ctx", None)
    if not first:
        return ""
    first = _mistake(error, first[0].lower() + first[1:].rstrip("."))
    program = context.command_path if context is not None else "asyncqn"
    return first if first.endswith("?") else f"{first}; try: {program} --help"


def _mistake(error: Exception, said: str) -> str:
    """What typer said, in the words of the rest of the program where they are better."""
    option, near = getattr(error, "option_name", None), getattr(error, "possibilities", None)
    if option and said.startswith("no such option"):
        return f"there is no option {option}" + (f": did you mean {' or '.join(near)}?" if near else "")
    if wanted := re.match(r"invalid value for '(.+)': Input should be a valid (integer|number)\b", said):
        return f"{wanted[1]} must be {'an integer' if wanted[2] == 'integer' else 'a number'}"
    return said
