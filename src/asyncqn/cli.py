"""The `asyncqn` program: every command in commands/, and one way to fail."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

import typer

from asyncqn.errors import AsyncqnError, StabilityWarning

COMMANDS = ("replay",)

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
        import_module(f"asyncqn.commands.{name}").register(app)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one sentence on stderr and exit code 2, never a traceback."""

    def show(message: Warning | str, category: type[Warning], *rest: object, **more: object) -> None:
        print(f"asyncqn: warning: {message}", file=sys.stderr)

    warnings.showwarning = show
    warnings.simplefilter("always", StabilityWarning)
    try:
        code = build()(arguments, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except AsyncqnError as error:
        print(f"asyncqn: {error}", file=sys.stderr)
        sys.exit(2)
    except _Usage as error:
        print(f"asyncqn: {error}", file=sys.stderr)
        sys.exit(2)
    except typer.Abort:
        print("asyncqn: interrupted.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
