"""Options that several commands share: when a run ends, and whether own classes are imported."""

from __future__ import annotations

from typing import Annotated

import typer

_WHEN = "When to end"

AllowImports = Annotated[
    bool,
    typer.Option(
        "--allow-imports", help='Import classes of your own, named as "module:Class": this runs their code.'
    ),
]

Commits = Annotated[
    int | None, typer.Option(help="At most so many commits of the master.", rich_help_panel=_WHEN)
]
Tol = Annotated[
    float | None,
    typer.Option(help="Tolerance at which an exact method has converged.", rich_help_panel=_WHEN),
]
MaxPasses = Annotated[
    float | None, typer.Option(help="End after so many passes over the data.", rich_help_panel=_WHEN)
]
MaxTime = Annotated[
    float | None, typer.Option(help="End after so long on the run's clock.", rich_help_panel=_WHEN)
]
Target = Annotated[
    float | None, typer.Option(help="End when the metric is at or below this.", rich_help_panel=_WHEN)
]
Metric = Annotated[
    str | None, typer.Option(help="Column of the metric table for --target [fun].", rich_help_panel=_WHEN)
]
