"""The `asyncqn` program: its start, and its one way to fail: a sentence and an exit code.

The heavy imports are inside functions, so that Ctrl-C during the first moments also ends with a sentence.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import sys
import warnings
from typing import Any

from asyncqn.cli.ending import BAD_INPUT, INTERRUPTED, TERMINATED, clean, complain
from asyncqn.errors import AsyncqnError, StabilityWarning


class Terminated(BaseException):
    """SIGTERM arrived and no run with checkpoints handles it."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command of asyncqn and exit: see `run_commands`."""
    run_commands("asyncqn.cli.commands", "asyncqn", arguments)


def run_commands(package: str, name: str, arguments: list[str] | None = None) -> None:
    """Run a command of a package and exit.

    A user's mistake is one sentence on stderr and exit code 2, never a traceback.  With --json that sentence
    is also the one JSON object on stdout: {"error": "..."}.

    Parameters
    ----------
    package : str
        The package whose files are the commands: the function of the same name in each.
    name : str
        The name of the program in its help.
    arguments : list of str, optional
        The words after the name of the program; by default those of this process.
    """
    words = sys.argv[1:] if arguments is None else arguments
    # A second Ctrl-C while the interpreter exits would print the traceback of whatever it interrupts.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    before = signal.getsignal(signal.SIGTERM)
    # Under MPI, mpiexec reports SIGTERM and ends all ranks.
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            # Python shows a warning once per line by default, but each run deserves its own.
            warnings.simplefilter("always", StabilityWarning)
            sentence, code = _call(words, name, package)
    except KeyboardInterrupt:
        sentence, code = "interrupted.", INTERRUPTED
    except Terminated:
        sentence, code = "terminated.", TERMINATED
    finally:
        signal.signal(signal.SIGTERM, before)
    if sentence:
        complain(sentence)
        # A script that parses stdout must find an object there, whatever happened.  The words are searched
        # as text, because they may not have been parsed.
        if "--json" in words:
            print(json.dumps({"error": clean(sentence)}), flush=True)
    sys.exit(code)


def _terminate(number: int, frame: Any) -> None:
    # An exception unwinds the command, so that files are closed and locks released.
    raise Terminated


def _warn(
    message: Warning | str, category: type[Warning], *rest: object, **more: object
) -> None:
    # Without the file and line of Python's own format, which mean nothing to a user of the program.
    print(f"asyncqn: warning: {clean(str(message))}", file=sys.stderr)


def _call(arguments: list[str], name: str, package: str) -> tuple[str, int]:
    """Call the command; return a sentence about the error, or an empty one, and the exit code."""
    import typer

    from asyncqn.cli.program import program

    # typer exports only this subclass of its error about a wrong command line.
    usage: Any = typer.BadParameter.__bases__[0]
    try:
        # Completion parses the words of the shell's line, which are not among the arguments.
        words = [*arguments, *os.environ.get("COMP_WORDS", "").split()]
        command = program(package, words)
        # In standalone mode typer would print errors in its own form and end the process itself.
        code = command.main(arguments, prog_name=name, standalone_mode=False)
        if code == INTERRUPTED:  # typer's own reaction to Ctrl-C
            raise KeyboardInterrupt
        return "", code if isinstance(code, int) else 0
    # This clause must come before the one for ValueError, of which `BadInput` is a subclass.
    except AsyncqnError as error:
        return str(error), BAD_INPUT
    except usage as error:
        # Every rank of an MPI job has this command line; rank 0 alone reports the error.
        first_rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0"
        return (_usage(error), BAD_INPUT) if first_rank else ("", 0)
    # typer raises Abort where standard input ends inside a prompt; that counts as an interruption.
    except typer.Abort:
        raise KeyboardInterrupt from None
    except (MemoryError, OverflowError, ValueError) as error:
        # NumPy has no error of its own for a size that no array can have.
        too_large = re.search("Maximum allowed dimension|array is too big", str(error))
        if isinstance(error, ValueError) and not too_large:
            raise
        # Sizes come from the command line, so that running out of memory is a mistake of the input.
        advice = "choose a smaller problem, or use a larger machine"
        return f"this needs more memory than is available: {advice}.", BAD_INPUT
    # The reader of a pipe, such as `head`, has enough; that is not an error of the user's.
    except BrokenPipeError:
        return "", 1
    except OSError as error:
        file = f"{error.filename} cannot be used: " if error.filename else ""
        return f"{file}{error.strerror or error}.", BAD_INPUT


def _usage(error: Any) -> str:
    """Return a sentence about a wrong command line; where a command is missing, print the help instead."""
    message: str = error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None and message == context.get_help():
        print(message, file=sys.stderr)
        return ""
    return message
