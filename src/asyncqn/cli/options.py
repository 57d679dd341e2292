"""Options that several commands share, and `grouped`, which passes them to a command as one object.

A dataclass of options is declared once and used by several commands; its field types carry the help texts.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from asyncqn.cli.logs import logging_to
from asyncqn.cli.output import Output
from asyncqn.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from asyncqn.view.seen import Seen

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
CheckpointEvery = Annotated[
    float,
    typer.Option(
        help="Seconds between two checkpoints.", rich_help_panel="Checkpoints"
    ),
]


def option(panel: str, help_: str, *names: str, metavar: str | None = None) -> Any:
    """Return an option in the section `panel` of the help."""
    return typer.Option(*names, help=help_, metavar=metavar, rich_help_panel=panel)


_SECTIONS: dict[str, tuple[str, ...]] = {
    "problem": ("dim", "n_data", "noise_var"),
    "cluster": ("workers", "worker_mean", "worker_std", "message", "master"),
    "run": (
        "commits",
        "seed",
        "evaluate",
        "tol",
        "max_passes",
        "max_time",
        "target",
        "metric",
    ),
}
"""The options that have the same name as an entry of a job file, by section."""
_WHEN, _PROBLEM, _ALGORITHM, _CLUSTER = "When to end", "Problem", "Algorithm", "Cluster"


@dataclass(frozen=True)
class SettingOptions:
    """The options of `simulate` and `run`; they override the job file, which overrides the defaults."""

    job: Annotated[
        Path | None,
        typer.Argument(
            help="TOML file with sections problem, algorithm, cluster, run and engine."
        ),
    ] = None
    parameter: Annotated[
        list[str] | None,
        option(
            _ALGORITHM,
            "Parameter of the algorithm, as in -p h=1e-3; any number of times.",
            "--parameter",
            "-p",
            metavar="KEY=VALUE",
        ),
    ] = None
    max_time: Annotated[
        float | None, option(_WHEN, "End after this time on the run's clock.")
    ] = None
    target: Annotated[
        float | None, option(_WHEN, "End when the metric is at or below this.")
    ] = None
    metric: Annotated[
        str | None,
        option(_WHEN, "Column of the metric table for --target; fun if not given."),
    ] = None
    dim: Annotated[int | None, option(_PROBLEM, "Number of parameters in theta.")] = (
        None
    )
    n_data: Annotated[int | None, option(_PROBLEM, "Number of observations.")] = None
    noise_var: Annotated[
        float | None, option(_PROBLEM, "Variance of an observation.")
    ] = None
    problem_seed: Annotated[
        int | None, option(_PROBLEM, "Seed of the problem's data.")
    ] = None
    workers: Annotated[int | None, option(_CLUSTER, "Number of workers.")] = None
    worker_mean: Annotated[
        float | None, option(_CLUSTER, "Mean time of a computation.")
    ] = None
    worker_std: Annotated[
        float | None, option(_CLUSTER, "Standard deviation of that time.")
    ] = None
    message: Annotated[
        float | None, option(_CLUSTER, "Time of a message to the master and back.")
    ] = None
    master: Annotated[
        float | None, option(_CLUSTER, "Time that the master takes for a commit.")
    ] = None
    cluster: Annotated[
        list[str] | None,
        option(
            _CLUSTER,
            "Any other field of Cluster, as in TOML: --cluster link=2.0, --cluster 'deaths={3=500.0}', "
            "--cluster 'times={kind=\"pareto\", mean=40.0, shape=1.5}'; any number of times.",
            metavar="KEY=VALUE",
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="Seed of minibatches, noise, delays and start.")
    ] = None
    evaluate: Annotated[
        int | None, typer.Option(help="Commits between two rows of metrics.")
    ] = None
    allow_imports: AllowImports = False

    def overrides(self) -> dict[str, dict[str, Any]]:
        """Return the given options, by section of a job file."""
        sections = {
            section: {name: getattr(self, name, None) for name in names}
            for section, names in _SECTIONS.items()
        }
        sections["problem"]["seed"] = self.problem_seed
        sections["cluster"] |= parse_cluster(self.cluster or [])
        kind = getattr(self, "algorithm", None)
        sections["algorithm"] = {"kind": kind, **parse_parameters(self.parameter or [])}
        return {
            # None means that the option was not given, so that the value of the job file remains.
            name: {key: value for key, value in section.items() if value is not None}
            for name, section in sections.items()
        }


@dataclass(frozen=True)
class JobOptions(SettingOptions):
    """The options of a job that is run."""

    algorithm: Annotated[
        str | None, option(_ALGORITHM, "default (minimize chooses), {algorithms}.")
    ] = None
    commits: Annotated[int | None, option(_WHEN, "Largest number of commits.")] = None
    tol: Annotated[
        float | None, option(_WHEN, "Tolerance at which an exact method has converged.")
    ] = None
    max_passes: Annotated[
        float | None, option(_WHEN, "Largest number of passes over the data.")
    ] = None
    checkpoint: Annotated[
        Path | None,
        option("Checkpoints", "Keep checkpoints in this folder.", metavar="DIR"),
    ] = None
    checkpoint_every: CheckpointEvery = 30.0
    save: Save = None

    def checkpoints(self) -> dict[str, Any]:
        """Return folder and interval of checkpoints, as arguments of `minimize`."""
        return {
            "checkpoint": self.checkpoint,
            "checkpoint_every": self.checkpoint_every,
        }


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
    """Return `command` for the command line: a parameter that is a dataclass becomes one option per field.

    The options of `Output`, which all commands have, come last.
    """
    # With the extras, because the help texts are in the annotations.
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: kind for name, kind in hints.items() if is_dataclass(kind)
    }
    parameters = inspect.signature(command).parameters.items()
    shown = []
    # The sort is stable, so that only `Output` changes its place.
    for name, own in sorted(
        parameters, key=lambda parameter: hints[parameter[0]] is Output
    ):
        members = fields(groups[name]) if name in groups else ()
        kinds = get_type_hints(groups[name], include_extras=True) if members else {}
        shown += [
            own.replace(name=f.name, default=f.default, annotation=kinds[f.name])
            for f in members
        ]
        # Annotations are texts in these files; typer needs the types themselves.
        shown += [] if members else [own.replace(annotation=hints[name])]
    # typer requires that parameters with defaults come last, unless all are keyword-only.
    shown = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown
    ]

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: kind(**{f.name: given.pop(f.name) for f in fields(kind)})
            for name, kind in groups.items()
        }
        # Log records are configured here, so that no command has to do it.
        out = next(
            (value for value in made.values() if isinstance(value, Output)), Output()
        )
        with logging_to(out.log, out.log_level):
            command(**made, **given)

    # typer reads both: the signature for the order, the annotations for the types.
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {
        parameter.name: parameter.annotation for parameter in shown
    }
    return called


def parse_cluster(pairs: list[str]) -> dict[str, Any]:
    """Parse KEY=VALUE texts whose values are written as in a TOML file."""
    advice = "a field of the cluster is written key=value with a value as in TOML, as in --cluster link=2.0 or "
    advice += "--cluster 'deaths={3=500.0}'"
    # The value is parsed as the value of a TOML key, because TOML has no parser for a bare value.
    return _parsed(
        pairs, lambda text: tomllib.loads(f"value = {text}")["value"], advice
    )


def parse_parameters(pairs: list[str]) -> dict[str, Any]:
    """Parse KEY=VALUE texts; values are numbers where possible, else words."""
    return _parsed(pairs, _value, "a parameter is written key=value, as in -p h=1e-3")


def _parsed(
    pairs: list[str], meaning: Callable[[str], Any], advice: str
) -> dict[str, Any]:
    values = {}
    for pair in pairs:
        key, _, text = pair.partition("=")
        try:
            if not (key.strip() and text.strip()):
                raise ValueError
            # -p cosine-floor=0.4 works like the options of the program.
            values[key.strip().replace("-", "_")] = meaning(text.strip())
        except (ValueError, KeyError, RecursionError):
            raise BadInput(f"'{pair}' cannot be read: {advice}.") from None
    return values


def _value(text: str) -> int | float | str:
    # In this order: "3" is an integer, and "3.0" is not.
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
