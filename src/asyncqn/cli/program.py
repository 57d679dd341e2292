"""The program's commands and help; the file of a command is imported only when the command is called.

Every file in a folder of commands is a command: the function of the same name in it.  The first line of the
file describes it, after the command and a colon.  So `asyncqn --help` reads one line of each file and imports
nothing that computes.

Other packages add commands by entry points of the group "asyncqn.commands".  One that names a module adds the
command of that file; one that names a package adds a group, whose commands are the files of the package.
"""

from __future__ import annotations

from difflib import SequenceMatcher, get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from asyncqn.cli.ending import BAD_INPUT
from asyncqn.cli.options import grouped
from asyncqn.errors import BadInput

COMMANDS = "asyncqn.cli.commands"
PLUGINS = "asyncqn.commands"
GROUPS = {
    "Run": ("simulate", "run", "sample", "resume"),
    "Look": ("show", "compare", "replay"),
    "Plan": ("plan", "blame"),
}
"""The section of each command in the help; commands that are not listed are under "More"."""
MOVED = {
    "watch": "show --follow",
    "schema": "run --schema",
    "warm": "run --warm defaults",
    "serve": "recommender share",
}
"""Commands of versions 0.1 and 0.2 that were renamed, or became an option of another command."""

WORDS = {"int": "N", "float": "X", "path": "PATH", "str": "TEXT"}
"""The placeholder for an option's value in the help, by type, where the option has no metavar."""


def command_modules(package: str = COMMANDS) -> dict[str, str]:
    """Return the module of each command of a package, by name, in the order of the help."""
    # The pattern leaves out `__init__.py`.
    found = {
        path.stem: f"{package}.{path.stem}"
        for path in _folder(package).glob("[a-z]*.py")
    }
    if package == COMMANDS:
        # A plug-in may replace a command of ours, as any later entry of a dictionary does.
        found |= {entry.name: entry.value for entry in entry_points(group=PLUGINS)}
    grouped = [name for names in GROUPS.values() for name in names if name in found]
    return {
        name: found[name] for name in [*grouped, *sorted(found.keys() - set(grouped))]
    }


def _folder(package: str) -> Path:
    return _file(package).parent


def _file(module: str) -> Path:
    """Return the file of a module without importing it; the packages above it are imported."""
    spec = find_spec(module)
    # A package that was uninstalled may leave its entry points behind.
    if spec is None or spec.origin is None:
        raise BadInput(
            f"a plug-in needs the module {module}, which is not installed: reinstall the plug-in."
        )
    return Path(spec.origin)


def _is_group(module: str) -> bool:
    return _file(module).name == "__init__.py"


def summary(module: str) -> str:
    """Return the description in the first line of a command's file."""
    # Reading one line avoids importing the module, which may take seconds.
    with _file(module).open(encoding="utf-8") as file:
        said = file.readline().strip().strip('"').partition(": ")[2].rstrip(".")
    return said[:1].upper() + said[1:]


def nearest(word: str, names: list[str]) -> list[str]:
    """Return the name most similar to a word, and any that is almost as similar."""
    # At most three names, each at least 60 % similar: the defaults of difflib.
    near = get_close_matches(word, names)
    likeness = {name: SequenceMatcher(None, name, word).ratio() for name in near}
    # Several names that are about equally similar are all suggested; a clear favourite stands alone.
    return [name for name in near if likeness[name] > max(likeness.values()) - 0.1]


class Command(TyperCommand):
    """A command whose help is plain text in sections, the same in a terminal, a file and a pager."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # The usage line names arguments in the same form as the section "Arguments" below it.
        return [
            "[OPTIONS]",
            *(_argument(param) for param in self.params if _is_argument(param)),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for param in self.get_params(ctx):
            if _is_argument(param):
                sections["Arguments"].append((_argument(param), _help(param)))
            else:
                panel = getattr(param, "rich_help_panel", None) or "Options"
                sections.setdefault(panel, []).append((_option(param), _help(param)))
        # The options that all commands share come last, behind those of this command.
        last = {"Options": sections.pop("Options", [])}
        for title, rows in (sections | last).items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=26)


class Program(TyperGroup):
    """The commands of a package; each is created when it is called."""

    package = COMMANDS

    @cached_property
    def modules(self) -> dict[str, str]:
        return command_modules(self.package)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.modules:
            return None
        # A command is built once, although typer asks for it several times.
        if cmd_name not in self.commands:
            module = self.modules[cmd_name]
            self.commands[cmd_name] = (
                _group(module, cmd_name) if _is_group(module) else _command(module)
            )
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # typer's shell completion parses incomplete lines, which are not mistakes.
        if (
            args[0] not in self.modules
            and not ctx.resilient_parsing
            and not args[0].startswith("-")
        ):
            raise BadInput(self._unknown(args[0], ctx.command_path))
        return super().resolve_command(ctx, args)

    def _unknown(self, word: str, path: str) -> str:
        """Return the sentence for a command that does not exist or was renamed."""
        if self.package == COMMANDS and word in MOVED:
            return f"'{path} {word}' is now '{path} {MOVED[word]}'."
        moved = (
            getattr(import_module(self.package), "MOVED", {})
            if self.package != COMMANDS
            else {}
        )
        # Values of a group close the quotation themselves, so that they can add a remark behind it.
        if word in moved:
            return f"'{path} {word}' is now '{path} {moved[word]}."
        # A command may have moved into a group; the words are searched in all of them.
        for name, module in self.modules.items():
            if _is_group(module) and word in command_modules(module):
                return f"'{path} {word}' is now '{path} {name} {word}'."
        near = nearest(word, list(self.modules))
        meant = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"see {path} --help for all commands."
        )
        return f"there is no command '{word}': {meant}"

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        with formatter.section("Options"):
            formatter.write_dl(
                [(_option(param), _help(param)) for param in self.get_params(ctx)],
                col_max=26,
            )

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        grouped = {name for names in GROUPS.values() for name in names}
        more = tuple(name for name in self.modules if name not in grouped)
        width = max(map(len, self.modules))
        # The sections are those of the main program; a group has too few commands to be divided.
        titles = (
            {**GROUPS, "More": more} if self.package == COMMANDS else {"Commands": more}
        )
        # Empty sections are left out, as for a package with a single group.
        for title, names in titles.items():
            rows = [
                (f"{name:<{width}}", summary(self.modules[name]))
                for name in names
                if name in self.modules
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _command(module: str) -> Any:
    """Return the command that a file defines."""
    # `rich_markup_mode=None` also prevents typer from replacing `format_options` by its boxes.
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    name = module.rpartition(".")[2]
    app.command(name, cls=Command)(grouped(getattr(import_module(module), name)))
    return get_command(app)


def _group(package: str, name: str) -> Program:
    """Return the group of the commands of a package."""

    def callback(context: typer.Context) -> None:
        _help_without_command(context)

    # typer takes the help of a group from the docstring of its callback.
    callback.__doc__ = f"{summary(package)}."
    return _program(package, name, callback)


def _program(package: str, name: str, callback: Any) -> Program:
    app = typer.Typer(
        name=name,
        cls=Program,
        invoke_without_command=True,
        # Completion is installed once, for the whole program.
        add_completion=package == COMMANDS,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": 100,
        },
    )
    app.callback(epilog="COMMAND --help shows the options of a command.")(callback)
    # typer builds the group itself; the package is stored on it afterwards, because its constructor takes no
    # such argument.
    made = get_command(app)
    assert isinstance(made, Program)
    made.package = package
    return made


def _help_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(
            BAD_INPUT
        )  # a command is missing, as with typer's `no_args_is_help`


def _version(wanted: bool) -> None:
    if wanted:
        from asyncqn import __version__

        typer.echo(f"asyncqn {__version__}")
        raise typer.Exit


def _asyncqn(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Asynchronous stochastic quasi-Newton optimization, simulated and real, replayed bit for bit."""
    _help_without_command(context)


def program(package: str = COMMANDS) -> Program:
    """Return the program, or the group of commands of another package."""
    return (
        _program(COMMANDS, "asyncqn", _asyncqn)
        if package == COMMANDS
        else _group(package, package)
    )


def typed_command(
    arguments: list[str], name: str = "asyncqn", package: str = COMMANDS
) -> str:
    """Return the command that a command line names, as far as it exists: "asyncqn recommender fit"."""
    # Only command names lead further; the first option or argument ends the search.
    for word in arguments:
        modules = command_modules(package)
        if word not in modules:
            break
        name, package = f"{name} {word}", modules[word]
        if not _is_group(package):
            break
    return name


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _argument(param: Any) -> str:
    # typer's metavar may end with dots already, which mark an argument that can be repeated.
    name = (param.metavar or param.name).upper().replace("_", "-").rstrip(".")
    name += "..." if param.nargs == -1 else ""
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    names = ", ".join(sorted(param.opts, key=len))
    if param.secondary_opts:
        names += " / " + ", ".join(param.secondary_opts)
    if getattr(param, "is_flag", False):
        return names
    # An option that can be repeated has the type list[str], and the placeholder of str.
    kind = param.bare_type().partition(" ")[0].removeprefix("list[").rstrip("]")
    return f"{names} {param.metavar or WORDS.get(kind, kind.upper())}"


NAMES = {
    "{algorithms}": ("asyncqn.algorithms", "ALGORITHMS"),
    "{engines}": ("asyncqn.engines.named", "REAL_ENGINES"),
}
"""Placeholders in help texts and the registry whose names replace them; imported only when needed."""


def _help(param: Any) -> str:
    text = param.help or ""
    for word, (module, registry) in NAMES.items():
        if word in text:
            text = text.replace(
                word, ", ".join(getattr(import_module(module), registry))
            )
    usual = param.default
    if getattr(param, "is_flag", False) and usual is not None:
        chosen = param.opts if usual else param.secondary_opts
        usual = chosen[0].lstrip("-") if chosen else None
    elif param.required and not _is_argument(param):
        return f"{text} [required]"
    # None and "" mean that the option does nothing by default, so no default is shown.
    if _is_argument(param) or usual is None or usual in ("", ()) or callable(usual):
        return text
    return f"{text} [default: {usual}]"
