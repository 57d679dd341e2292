"""The `asyncqn` program: every command in cli/commands/, and one way to fail."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module

import typer

from asyncqn.errors import AsyncqnError, StabilityWarning

COMMANDS = (
    *("simulate", "show", "replay", "demo", "tune", "reproduce", "run", "resume"),
    *("data", "fit", "evaluate", "recommend"),
)

INTERRUPTED = 130

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


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one sentence on stderr and exit code 2, never a traceback."""

    def show(message: Warning | str, category: type[Warning], *rest: object, **more: object) -> None:
        print(f"asyncqn: warning: {message}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            warnings.simplefilter("always", StabilityWarning)
            code = build()(arguments, standalone_mode=False)
        if code == INTERRUPTED:  # typer's own answer to Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except AsyncqnError as error:
        print(f"asyncqn: {error}", file=sys.stderr)
        sys.exit(2)
    except _Usage as error:
        if os.environ.get("OMPI_COMM_WORLD_RANK", "0") != "0":
            sys.exit(0)  # every rank of an MPI job has this command line: rank 0 speaks and fails for all
        if sentence := usage_sentence(error):
            print(f"asyncqn: {sentence}", file=sys.stderr)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        print("asyncqn: interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except MemoryError as error:
        print(f"asyncqn: {memory_sentence(error)}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)


def memory_sentence(error: MemoryError) -> str:
    """What did not fit; NumPy names the array, others say nothing."""
    what = f": {error}" if str(error) else ""
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
