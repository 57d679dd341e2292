"""Options that several commands share, and options that follow from the parameters of a class.

`grouped` turns a command for typer: a parameter of a command whose type is a dataclass of options becomes one
option per field, and one whose annotation holds `Generated` becomes one option per parameter of a class.
"""

from __future__ import annotations

import inspect
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from asyncqn.cli.output import Output
from asyncqn.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from asyncqn.view.seen import Seen

Section = dict[str, Any]
SECTIONS = ("problem", "algorithm", "cluster", "engine", "run")
"""The sections of a job file."""

AllowImports = Annotated[bool, typer.Option("--allow-imports")]
JobFile = Annotated[
    Path | None,
    typer.Argument(help=f"TOML file with sections {', '.join(SECTIONS)}."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE")
]

SHARED = {
    "allow_imports": 'Import your own classes, named as "module:Class"; this runs their code',
    "checkpoint": "Keep checkpoints in this folder",
    "checkpoint_every": "Seconds between two checkpoints",
    "save": "Save the run in this folder",
    "settings": "Any value of a job file, as in --set algorithm.h=1e-3 or --set "
    "'cluster.deaths={3=500.0}'; any number of times",
    "workers": "Number of workers",
}
"""The help of options with the same meaning in several commands."""


@dataclass(frozen=True)
class JobOptions:
    """The options of `simulate` and `run`; they override the job file, which overrides the defaults.

    Parameters
    ----------
    algorithm : str, optional
        Name of the algorithm; default: a good choice.
    theta : Path, optional
        Write theta to this .npy file.
    coefficients : Path, optional
        Of a linear model: write coefficients with standard errors to this .csv file.
    """

    job: JobFile = None
    algorithm: str | None = None
    workers: int | None = None
    settings: Settings = None
    checkpoint: Path | None = None
    checkpoint_every: float = 30.0
    save: Path | None = None
    theta: Path | None = None
    coefficients: Path | None = None
    allow_imports: AllowImports = False


@dataclass(frozen=True)
class ViewOptions:
    """The options that draw runs to files.

    Parameters
    ----------
    plot : Path, optional
        Also draw a figure to this .png or .svg file.
    html : Path, optional
        Also write an interactive page that works offline.
    """

    plot: Path | None = None
    html: Path | None = None

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


@dataclass(frozen=True)
class Generated:
    """One option per parameter of a class or function; the command receives those that were given."""

    make: Callable[..., Any]
    names: tuple[str, ...] = ()
    """The parameters that become options; all by default."""
    described_by: Callable[..., Any] | None = None
    """Whose docstring describes them; by default that of `make`."""

    def options(self) -> Iterator[inspect.Parameter]:
        """Return the options with their help."""
        from asyncqn.parameters import descriptions_of, parameters_of

        descriptions = descriptions_of(self.described_by or self.make)
        parameters = parameters_of(self.make)
        for name in self.names or parameters:
            parameter = parameters[name]
            text = f"{descriptions[name]}."
            if parameter.default is not None and not parameter.needed:
                text += f"  [default: {parameter.default}]"
            hint: Any = Annotated[_type(parameter.hint), typer.Option(help=text)]
            yield _option(name, None, hint, {})


def _option(
    name: str, default: Any, hint: Any, descriptions: Mapping[str, str]
) -> inspect.Parameter:
    """Return a parameter as typer reads it, with its description as the help of it."""
    type_, *notes = (
        typing.get_args(hint) if typing.get_origin(hint) is Annotated else [hint]
    )
    if not notes:
        # A flag needs its name, for typer would add another one that turns it off.
        flag = [f"--{name.replace('_', '-')}"] if type_ is bool else []
        required = default is inspect.Parameter.empty
        notes = [typer.Argument() if required else typer.Option(*flag)]
    (note,) = notes
    text = descriptions.get(name, SHARED.get(name))
    if note.help is None and text is not None:
        # A copy, because several commands share the note.
        note = copy(note)
        note.help = f"{text}."
    # typer requires that parameters with defaults come last, unless all are keyword-only.
    kind = inspect.Parameter.KEYWORD_ONLY
    hint = Annotated[type_, note]
    return inspect.Parameter(name, kind, default=default, annotation=hint)


def _type(hint: Any) -> Any:
    """Return the type of an option for a parameter of this type; None, if it is not given."""
    parts = set(_parts(hint))
    for kind in (float, int, bool):
        if kind in parts:
            return kind | None
    return str | None


def _parts(hint: Any) -> Iterator[Any]:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        arguments = arguments[:1]
    if not arguments:
        yield hint
    for each in arguments:
        yield from _parts(each)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` for typer: its docstring describes its options, whose groups are spread out."""
    from asyncqn.parameters import descriptions_of

    # With the extras, because `Generated` is in the annotations.
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[Any, list[str]]] = {}
    options: list[inspect.Parameter] = []
    # The sort is stable: only the options of `Output`, which all commands have, come last.
    own = sorted(
        inspect.signature(command).parameters.values(),
        key=lambda each: hints[each.name] is Output,
    )
    for parameter in own:
        hint = hints[parameter.name]
        notes = [note for note in typing.get_args(hint) if isinstance(note, Generated)]
        if is_dataclass(hint):
            kinds = get_type_hints(hint, include_extras=True)
            texts = descriptions_of(hint)  # type: ignore[arg-type]
            members = [
                _option(f.name, f.default, kinds[f.name], texts) for f in fields(hint)
            ]
        elif notes:
            members = list(notes[0].options())
        else:
            texts = descriptions_of(command)
            options.append(_option(parameter.name, parameter.default, hint, texts))
            continue
        options += members
        gather = hint if is_dataclass(hint) else _given
        groups[parameter.name] = gather, [member.name for member in members]

    @wraps(command)
    def call(**values: Any) -> None:
        for name, (gather, members) in groups.items():
            values[name] = gather(**{member: values.pop(member) for member in members})
        out = next(value for value in values.values() if isinstance(value, Output))
        # Log records are configured here, so that no command has to do it.
        with out.log_records():
            command(**values)

    # typer reads both: the signature for the order, the annotations for the types.
    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in options}
    call.__doc__ = (command.__doc__ or "").partition("\n    Parameters\n")[0]
    return call


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
        word = text.strip()
        # The value is parsed as the value of a TOML key, because TOML has no parser for a bare value.
        try:
            value = tomllib.loads(f"value = {word}")["value"]
        except (ValueError, RecursionError):
            value = word
        sections[section][key.replace("-", "_")] = value
    return sections
