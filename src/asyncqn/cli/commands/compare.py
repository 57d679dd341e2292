"""`asyncqn compare RUN RUN...`: compare saved runs: curves, staleness, time to a target."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.options import ViewOptions
from asyncqn.cli.output import Output

if TYPE_CHECKING:
    from rich.text import Text

    from asyncqn.view.seen import Seen


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of saved runs, or of checkpoints.")
    ],
    view: ViewOptions,
    out: Output,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Column to compare.  [error where all runs have it, else fun]"
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="Report when each run reached this value.  [the worst of the runs' best values]"
        ),
    ] = None,
) -> None:
    """Compare saved runs: overlaid curves, staleness, and when each reached the target."""
    from asyncqn.errors import require
    from asyncqn.view.plots import comparison, time_axis
    from asyncqn.view.seen import look_at

    view.check()
    require(
        target is None or isfinite(target),
        f"--target must be a finite number, not {target}.",
    )
    seen = {label: look_at(folder) for label, folder in labels(runs).items()}
    # Units of simulated time and seconds have no common axis.
    axes = {time_axis(run) for run in seen.values()}
    require(
        len(axes) == 1,
        "simulated time and seconds cannot be compared: choose runs of one kind.",
    )
    # Only problems with a known minimum have the column "error".
    metric = metric or (
        "error" if all("error" in run.metrics for run in seen.values()) else "fun"
    )
    for label, run in seen.items():
        has = ", ".join(run.metrics.columns)
        require(
            metric in run.metrics,
            f"the run {label} has no column '{metric}'; it has {has}.",
        )
    rows, goal = compared(seen, metric, target)
    view.write(lambda: comparison(seen, metric, goal, axes.pop()), seen, out)
    if out.json:
        out.result({"metric": metric, "target": goal, "runs": rows})
    else:
        out.show(report(seen, rows, metric, goal))


def labels(folders: list[Path]) -> dict[str, Path]:
    """Return a short name for each folder: its own, or the whole path where two names are equal."""
    names = [folder.name or str(folder) for folder in folders]
    return {
        name if names.count(name) == 1 else str(folder): folder
        for name, folder in zip(names, folders, strict=True)
    }


def compared(
    seen: dict[str, Seen], metric: str, target: float | None
) -> tuple[list[dict[str, Any]], float | None]:
    """Return a row of numbers per run, and the target that the times refer to."""
    import numpy as np

    # By label: the lowest finite value, whatever came after it.
    best = {}
    for label, run in seen.items():
        values = run.metrics[metric]
        finite = values[np.isfinite(values)]
        best[label] = float(finite.min()) if finite.size else None
    known = [value for value in best.values() if value is not None]
    # The worst of the best values is the lowest target that every run has reached.
    goal = target if target is not None else max(known, default=None)
    rows = []
    for label, run in seen.items():
        values, times, stale = (
            run.metrics[metric],
            run.metrics["time"],
            run.schedule.staleness,
        )
        # NaN compares as False, so that rows after a divergence do not count.
        reached = np.flatnonzero(values <= (-np.inf if goal is None else goal))
        rows.append(
            {
                "run": label,
                "algorithm": str(run.manifest["algorithm"]["kind"]),
                "status": run.status,
                "workers": run.schedule.workers,
                "commits": run.schedule.commits,
                "time": float(times[-1]) if len(times) else 0.0,
                "staleness_mean": float(stale.mean()) if stale.size else 0.0,
                "staleness_max": int(stale.max(initial=0)),
                "best": best[label],
                "time_to_target": float(times[reached[0]]) if len(reached) else None,
            }
        )
    return rows, goal


def report(
    seen: dict[str, Seen], rows: list[dict[str, Any]], metric: str, goal: float | None
) -> Text:
    """Return the table and the overlaid curves; a run's letter has the colour of its curve elsewhere."""
    from rich.text import Text

    from asyncqn.view.axes import axis_of
    from asyncqn.view.plots import time_axis
    from asyncqn.view.styles import styles_of_runs
    from asyncqn.view.terminal import overlaid_chart

    titles = [
        "",
        "run",
        "algorithm",
        "status",
        "workers",
        "commits",
        "staleness",
        f"best {metric}",
    ]
    table = [[*titles, f"time to {goal:.4g}" if goal is not None else "time to target"]]
    # Letters and not colours alone distinguish the curves, also in a file or without colour.
    letters = [chr(ord("a") + i % 26) for i in range(len(rows))]
    for letter, row in zip(letters, rows, strict=True):
        stale = f"{row['staleness_mean']:.1f} (to {row['staleness_max']})"
        best = "none" if row["best"] is None else f"{row['best']:.4g}"
        when = (
            "not reached"
            if row["time_to_target"] is None
            else f"{row['time_to_target']:.5g}"
        )
        numbers = [f"{row['workers']:,}", f"{row['commits']:,}", stale, best, when]
        table.append([letter, row["run"], row["algorithm"], row["status"], *numbers])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(f"{cell:<{w}}" for cell, w in zip(cells, widths, strict=True))
        for cells in table
    ]
    curves = {
        letter: (run.metrics["time"], run.metrics[metric])
        for letter, run in zip(letters, seen.values(), strict=True)
    }
    axis = axis_of([y for _, y in curves.values()])
    log = axis is not None and axis.log
    title = f"{metric} over {time_axis(next(iter(seen.values())))}{', logarithmic' if log else ''}"
    looks = styles_of_runs({row["run"]: row["algorithm"] for row in rows})
    colors = {
        letter: looks[row["run"]]["color"]
        for letter, row in zip(letters, rows, strict=True)
    }
    text = Text(f"{lines[0].rstrip()}\n")
    for letter, line in zip(letters, lines[1:], strict=True):
        text.append(letter, colors[letter]).append(f"{line[1:].rstrip()}\n")
    text.append(f"\n{title}\n")
    # The frame to the left of "┤" holds labels, whose characters must not be coloured like curves.
    for line in overlaid_chart(curves, axis=axis):
        frame, mark, drawn = line.partition("┤")
        text.append(frame + mark)
        for cell in drawn:
            text.append(cell, colors.get(cell))
        text.append("\n")
    text.rstrip()
    return text
