"""Options that several commands share, and options that follow from the parameters of a class.

`grouped` turns a command for typer: a parameter of a command whose type is a dataclass of options becomes one
option per field, and one whose annotation holds `Generated` becomes one option per parameter of a class.
"""

from __future__ import annotations

import inspect
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from asyncqn.cli.output import Output
from asyncqn.errors import BadInput, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from asyncqn.view.seen import Seen

Section = dict[str, Any]
SECTIONS = ("problem", "algorithm", "cluster", "engine", "run")
"""The sections of a job file."""

AllowImports = Annotated[
    bool,
    typer.Option(
        "--allow-imports",
        help='Import your own classes, named as "module:Class"; this runs their code.',
    ),
]
Save = Annotated[
    Path | None, typer.Option(help="Save the run in this folder.", metavar="DIR")
]
Checkpoint = Annotated[
    Path | None, typer.Option(help="Keep checkpoints in this folder.", metavar="DIR")
]
CheckpointEvery = Annotated[
    float, typer.Option(help="Seconds between two checkpoints.")
]
JobFile = Annotated[
    Path | None,
    typer.Argument(help=f"TOML file with sections {', '.join(SECTIONS)}."),
]
Workers = Annotated[int | None, typer.Option(help="Number of workers.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Any value of a job file, as in --set algorithm.h=1e-3 or --set "
        "'cluster.deaths={3=500.0}'; any number of times.",
    ),
]


@dataclass(frozen=True)
class Generated:
    """One option per parameter of a class or function; the command receives those that were given."""

    make: Callable[..., Any]
    names: tuple[str, ...] = ()
    """The parameters that become options; all by default."""

    def options(self) -> Iterator[inspect.Parameter]:
        """Return the options, described by the docstring of `make`."""
        from asyncqn.parameters import descriptions_of, parameters_of

        descriptions = descriptions_of(self.make)
        parameters = parameters_of(self.make)
        for name in self.names or parameters:
            default = parameters[name].default
            usual = "" if default is None else f"  [default: {default}]"
            if parameters[name].needed:
                usual = ""
            option = typer.Option(help=f"{descriptions[name]}.{usual}")
            yield inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[_type(parameters[name].kind.in_files), option],
            )


def _type(hint: Any) -> Any:
    """Return the type of an option for a parameter of this type; None, if it is not given."""
    parts = set(_parts(hint))
    for kind in (float, int, bool):
        if kind in parts:
            return kind | None
    return str | None


def _parts(hint: Any) -> Iterator[Any]:
    if typing.get_origin(hint) is Annotated:
        yield from _parts(typing.get_args(hint)[0])
    elif arguments := typing.get_args(hint):
        for each in arguments:
            yield from _parts(each)
    else:
        yield hint


@dataclass(frozen=True)
class JobOptions:
    """The options of `simulate` and `run`; they override the job file, which overrides the defaults."""

    job: JobFile = None
    algorithm: Annotated[
        str | None, typer.Option(help="Name of the algorithm; default: a good choice.")
    ] = None
    workers: Workers = None
    settings: Settings = None
    checkpoint: Checkpoint = None
    checkpoint_every: CheckpointEvery = 30.0
    save: Save = None
    theta: Annotated[
        Path | None,
        typer.Option(help="Write theta to this .npy file.", metavar="FILE"),
    ] = None
    coefficients: Annotated[
        Path | None,
        typer.Option(
            help="Of a linear model: write coefficients with standard errors to this .csv file.",
            metavar="FILE",
        ),
    ] = None
    allow_imports: AllowImports = False


@dataclass(frozen=True)
class ViewOptions:
    """The options that draw runs to files."""

    plot: Annotated[
        Path | None,
        typer.Option(
            help="Also draw a figure to this .png or .svg file.", metavar="FILE"
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            help="Also write an interactive page that works offline.", metavar="FILE"
        ),
    ] = None

    def check(self) -> None:
        """Raise `BadInput` early for a figure that could not be written later."""
        from asyncqn.view.plots import check_ending

        if self.plot is not None:
            check_ending(self.plot)

    def write(
        self, draw: Callable[[], Figure], runs: Mapping[str, Seen], out: Output
    ) -> None:
        """Write the requested files: the figure that `draw` makes, and the page of these runs."""
        from asyncqn.view.page import write_page
        from asyncqn.view.plots import save_picture

        if self.plot is not None:
            out.say(f"figure: {save_picture(draw(), self.plot)}")
        if self.html is not None:
            out.say(f"page: {write_page(self.html, runs)}")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` for typer: each group of options is spread out, and gathered for the call."""
    # With the extras, because help texts and `Generated` are in the annotations.
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[Any, list[str]]] = {}
    options: list[inspect.Parameter] = []
    # The sort is stable: only the options of `Output`, which all commands have, come last.
    for name, own in sorted(
        inspect.signature(command).parameters.items(),
        key=lambda item: hints[item[0]] is Output,
    ):
        gather, members = _members(own.replace(annotation=hints[name]))
        options += members
        if gather is not None:
            groups[name] = gather, [member.name for member in members]

    @wraps(command)
    def called(**values: Any) -> None:
        for name, (gather, members) in groups.items():
            values[name] = gather(**{member: values.pop(member) for member in members})
        out = next(value for value in values.values() if isinstance(value, Output))
        # Log records are configured here, so that no command has to do it.
        with out.log_records():
            command(**values)

    # typer requires that parameters with defaults come last, unless all are keyword-only.
    options = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    # typer reads both: the signature for the order, the annotations for the types.
    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in options}
    return called


def _members(own: inspect.Parameter) -> tuple[Any, list[inspect.Parameter]]:
    """Return the options that a parameter of a command stands for, and what gathers their values."""
    hint = own.annotation
    if is_dataclass(hint):
        kinds = get_type_hints(hint, include_extras=True)
        return hint, [
            own.replace(name=f.name, default=f.default, annotation=kinds[f.name])
            for f in fields(hint)
        ]
    for note in typing.get_args(hint)[1:]:
        if isinstance(note, Generated):
            return _given, list(note.options())
    return None, [own]


def _given(**values: Any) -> Section:
    return {name: value for name, value in values.items() if value is not None}


def parse_settings(pairs: Sequence[str]) -> dict[str, Section]:
    """Parse texts of the form section.key=value, whose values are written as in TOML or are plain words."""
    sections: dict[str, Section] = {name: {} for name in SECTIONS}
    for pair in pairs:
        place, _, text = pair.partition("=")
        section, _, key = place.strip().partition(".")
        require(
            bool(key and text.strip()) and section in SECTIONS,
            f"--set {pair} cannot be read: write section.key=value, as in --set algorithm.h=1e-3; the "
            f"sections are {', '.join(SECTIONS)}.",
        )
        # --set algorithm.cosine-floor=0.4 works like the options of the program.
        sections[section][key.replace("-", "_")] = _value(pair, text.strip())
    return sections


def _value(pair: str, text: str) -> Any:
    # The value is parsed as the value of a TOML key, because TOML has no parser for a bare value.
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        if text[0] in "[{\"'":
            raise BadInput(
                f"--set {pair} cannot be read: its value is neither TOML nor a word."
            ) from None
        return text
