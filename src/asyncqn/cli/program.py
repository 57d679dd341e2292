"""The program's commands; of a command line, only the commands that it names are imported.

Every file in a folder of commands is a command: the function of the same name in it.  The first line of the
file describes it, after the command and a colon.  So `asyncqn --help` reads one line of each file and imports
nothing that computes.

Other packages add commands by entry points of the group "asyncqn.commands".  One that names a module adds the
command of that file; one that names a package adds a group, whose commands are the files of the package.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from asyncqn.cli.options import grouped
from asyncqn.errors import BadInput

COMMANDS = "asyncqn.cli.commands"
PLUGINS = "asyncqn.commands"
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def command_modules(package: str = COMMANDS) -> dict[str, str]:
    """Return the module of each command of a package, by name."""
    # The pattern leaves out `__init__.py` and files that commands share.
    files = sorted(_file(package).parent.glob("[a-z]*.py"))
    # `import` is a word of Python, so that its file is `import_`.
    modules = {path.stem.rstrip("_"): f"{package}.{path.stem}" for path in files}
    if package == COMMANDS:
        modules |= {entry.name: entry.value for entry in entry_points(group=PLUGINS)}
    return modules


def program(package: str, words: Collection[str]) -> Any:
    """Return the program of a package, for a command line of these words."""
    return get_command(_application(package, words))


def _application(package: str, words: Collection[str]) -> typer.Typer:
    app = typer.Typer(
        # Completion is installed once, for the whole program.
        add_completion=package == COMMANDS,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )
    if package == COMMANDS:
        app.callback()(_asyncqn)
    else:
        # Without a callback, typer would make a group of one command that command.
        app.callback(help=_summary(_file(package)))(_nothing)
    for name, module in command_modules(package).items():
        file = _file(module)
        if file.name == "__init__.py":
            app.add_typer(_application(module, words), name=name)
        elif name in words:
            function = module.rpartition(".")[2]
            app.command(name)(grouped(getattr(import_module(module), function)))
        else:
            app.command(name, help=_summary(file))(_nothing)
    return app


def _file(module: str) -> Path:
    """Return the file of a module without importing it; the packages above it are imported."""
    spec = find_spec(module)
    # A package that was uninstalled may leave its entry points behind.
    if spec is None or spec.origin is None:
        raise BadInput(
            f"a plug-in needs the module {module}, which is not installed: reinstall the plug-in."
        )
    return Path(spec.origin)


def _summary(path: Path) -> str:
    """Return the description in the first line of a command's file."""
    with path.open(encoding="utf-8") as file:
        sentence = file.readline().strip().strip('"').partition(": ")[2]
    return sentence[:1].upper() + sentence[1:]


def _nothing() -> None:
    """Stand in the help for a command that the command line does not name."""


def _version(wanted: bool) -> None:
    if wanted:
        from asyncqn import __version__

        typer.echo(f"asyncqn {__version__}")
        raise typer.Exit


def _asyncqn(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Asynchronous stochastic quasi-Newton optimization, simulated and real, replayed bit for bit."""
