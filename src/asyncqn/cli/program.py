"""The program's commands and its help: a command's file is imported when it is called, not before.

Every file of cli/commands/ is a command: the function of the same name in it.  The first line of the file
says what it does, after the command and a colon.  So `asyncqn --help` reads one line of each and imports
nothing that computes.
"""

from __future__ import annotations

from difflib import SequenceMatcher, get_close_matches
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from asyncqn.cli.ending import BAD_INPUT
from asyncqn.cli.options import grouped
from asyncqn.errors import BadInput

FOLDER = Path(__file__).parent / "commands"
GROUPS = {
    "Run": ("simulate", "run", "resume", "tune"),
    "Look": ("show", "compare", "watch", "replay"),
    "Plan": ("plan", "blame"),
    "Recommend": ("data", "serve", "fit", "evaluate", "recommend", "similar"),
}
"""Where a command stands in the help; one that is named nowhere stands under "More"."""

WORDS = {"int": "N", "float": "X", "path": "PATH", "str": "TEXT"}
"""What stands for an option's value in the help, where the option does not say itself."""


def command_names() -> list[str]:
    """Every command, in the order of the help."""
    found = {path.stem for path in FOLDER.glob("[a-z]*.py")}
    grouped = [name for names in GROUPS.values() for name in names if name in found]
    return [*grouped, *sorted(found - set(grouped))]


def summary(name: str) -> str:
    """What the first line of a command's file says it does."""
    with (FOLDER / f"{name}.py").open(encoding="utf-8") as file:
        said = file.readline().strip().strip('"').partition(": ")[2].rstrip(".")
    return said[:1].upper() + said[1:]


def nearest(word: str, names: list[str]) -> list[str]:
    """The name most like a word, and any that is nearly as like it."""
    near = get_close_matches(word, names)
    likeness = {name: SequenceMatcher(None, name, word).ratio() for name in near}
    return [name for name in near if likeness[name] > max(likeness.values()) - 0.1]


class Command(TyperCommand):
    """A command whose help is plain text in sections: it reads the same in a terminal, a file and a pager."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(_argument(param) for param in self.params if _is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for param in self.get_params(ctx):
            if _is_argument(param):
                sections["Arguments"].append((_argument(param), _help(param)))
            else:
                panel = getattr(param, "rich_help_panel", None) or "Options"
                sections.setdefault(panel, []).append((_option(param), _help(param)))
        last = {"Options": sections.pop("Options", [])}
        for title, rows in (sections | last).items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=26)


class Program(TyperGroup):
    """All commands, each made when it is asked for."""

    @cached_property
    def names(self) -> list[str]:
        return command_names()

    def list_commands(self, ctx: Any) -> list[str]:
        return self.names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.names:
            return None
        if cmd_name not in self.commands:
            app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            function = getattr(import_module(f"asyncqn.cli.commands.{cmd_name}"), cmd_name)
            app.command(cmd_name, cls=Command)(grouped(function))
            self.commands[cmd_name] = get_command(app)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.names and not ctx.resilient_parsing and not args[0].startswith("-"):
            near = nearest(args[0], self.names)
            meant = f"did you mean {' or '.join(near)}?" if near else "asyncqn --help lists all commands."
            raise BadInput(f"there is no command '{args[0]}': {meant}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        with formatter.section("Options"):
            formatter.write_dl([(_option(param), _help(param)) for param in self.get_params(ctx)], col_max=26)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        grouped = {name for names in GROUPS.values() for name in names}
        more = tuple(name for name in self.names if name not in grouped)
        width = max(map(len, self.names))
        for title, names in {**GROUPS, "More": more}.items():
            rows = [(f"{name:<{width}}", summary(name)) for name in names if name in self.names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _version(wanted: bool) -> None:
    if wanted:
        from asyncqn import __version__

        typer.echo(f"asyncqn {__version__}")
        raise typer.Exit


def _asyncqn(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Asynchronous stochastic quasi-Newton optimization, simulated and real, replayed to the bit."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(BAD_INPUT)  # as typer's own `no_args_is_help`: a command is missing


def program() -> Program:
    """The program; its commands are imported when they are called."""
    app = typer.Typer(
        name="asyncqn",
        cls=Program,
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(epilog="asyncqn COMMAND --help tells the options of a command.")(_asyncqn)
    made = get_command(app)
    assert isinstance(made, Program)
    return made


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _argument(param: Any) -> str:
    name = (param.metavar or param.name).upper().replace("_", "-").rstrip(".")
    name += "..." if param.nargs == -1 else ""
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    names = ", ".join(sorted(param.opts, key=len))
    if param.secondary_opts:
        names += " / " + ", ".join(param.secondary_opts)
    if getattr(param, "is_flag", False):
        return names
    kind = param.bare_type().partition(" ")[0].removeprefix("list[").rstrip("]")
    return f"{names} {param.metavar or WORDS.get(kind, kind.upper())}"


NAMES = {
    "{algorithms}": ("asyncqn.algorithms", "ALGORITHMS"),
    "{engines}": ("asyncqn.engines.named", "REAL_ENGINES"),
    "{tunable}": ("asyncqn.lab.tuning.spaces", "SPACES"),
}
"""The registry whose names stand for a word of a help text; imported only for a text that has the word."""


def _help(param: Any) -> str:
    text = param.help or ""
    for word, (module, registry) in NAMES.items():
        if word in text:
            text = text.replace(word, ", ".join(getattr(import_module(module), registry)))
    usual = param.default
    if getattr(param, "is_flag", False) and usual is not None:
        chosen = param.opts if usual else param.secondary_opts
        usual = chosen[0].lstrip("-") if chosen else None
    elif param.required and not _is_argument(param):
        return f"{text} [required]"
    if _is_argument(param) or usual is None or usual in ("", ()) or callable(usual):
        return text
    return f"{text} [default: {usual}]"
