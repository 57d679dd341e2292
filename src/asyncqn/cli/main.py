"""The `asyncqn` program: every command in cli/commands/, and one way to fail."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer

from asyncqn.cli.output import BAD_INPUT, INTERRUPTED, TERMINATED, clean, complain
from asyncqn.errors import AsyncqnError, StabilityWarning

COMMANDS = (
    *("simulate", "show", "replay", "demo", "tune", "reproduce", "run", "resume", "schema"),
    "blame",
    *("data", "serve", "fit", "evaluate", "recommend", "similar"),
)

_Usage: type[Exception] = typer.BadParameter.__bases__[0]  # typer shows only this subclass of usage errors


def build() -> typer.Typer:
    """The application with every command registered."""
    app = typer.Typer(
        name="asyncqn",
        help="Asynchronous stochastic quasi-Newton optimization, simulated and real, replayed to the bit.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(lambda: None)
    for name in COMMANDS:
        import_module(f"asyncqn.cli.commands.{name}").register(app)
    return app


class Terminated(BaseException):
    """SIGTERM arrived where no run with checkpoints hears it."""


@contextmanager
def _hearing_sigterm() -> Iterator[None]:
    """SIGTERM ends the command with a sentence; under MPI the launcher speaks, and ends all ranks."""
    if threading.current_thread() is not threading.main_thread() or "OMPI_COMM_WORLD_RANK" in os.environ:
        yield
        return

    def hear(number: int, frame: Any) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one sentence on stderr and exit code 2, never a traceback."""

    def show(message: Warning | str, category: type[Warning], *rest: object, **more: object) -> None:
        print(f"asyncqn: warning: {clean(str(message))}", file=sys.stderr)

    # A second Ctrl-C while the interpreter ends would print the traceback of whatever it breaks into.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        with warnings.catch_warnings(), _hearing_sigterm():
            warnings.showwarning = show
            warnings.simplefilter("always", StabilityWarning)
            code = build()(arguments, standalone_mode=False)
        if code == INTERRUPTED:  # typer's own answer to Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except AsyncqnError as error:
        complain(str(error))
        sys.exit(BAD_INPUT)
    except _Usage as error:
        if os.environ.get("OMPI_COMM_WORLD_RANK", "0") != "0":
            sys.exit(0)  # every rank of an MPI job has this command line: rank 0 speaks and fails for all
        if sentence := usage_sentence(error):
            complain(sentence)
        sys.exit(BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        complain("interrupted.")
        sys.exit(INTERRUPTED)
    except Terminated:
        complain("terminated.")
        sys.exit(TERMINATED)
    except (MemoryError, OverflowError, ValueError) as error:
        if not asks_too_much(error):
            raise
        complain(memory_sentence(error))
        sys.exit(BAD_INPUT)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        complain(system_sentence(error))
        sys.exit(BAD_INPUT)


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
    first = first[0].lower() + first[1:].rstrip(".")
    program = context.command_path if context is not None else "asyncqn"
    return f"{first}; try: {program} --help"
