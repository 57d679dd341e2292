"""`asyncqn compare RUN RUN...`: compare saved runs: curves, staleness, time to a target."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asyncqn.cli.options import Section, ViewOptions
from asyncqn.cli.output import Output

if TYPE_CHECKING:
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
            help="Column to compare; by default error where all runs have it, else fun."
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="Report when each run reached this value; by default the worst of the runs' best values."
        ),
    ] = None,
) -> None:
    """Compare saved runs: staleness, best values, and when each reached the target."""
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
    drawn = metric
    # Only problems with a known minimum have the column "error".
    if metric is None:
        errors = all("error" in run.metrics for run in seen.values())
        metric = "error" if errors else "fun"
    for label, run in seen.items():
        columns = ", ".join(run.metrics.columns)
        require(
            metric in run.metrics,
            f"the run {label} has no column '{metric}'; it has {columns}.",
        )
    rows, goal = compared(seen, metric, target)
    if (warning := warning_of_tasks(seen)) is not None:
        out.say(f"warning: {warning}")
    view.write(lambda: comparison(seen, drawn, goal, axes.pop()), seen, out)
    _show(out, rows, metric, goal)
    out.result({"metric": metric, "target": goal, "runs": rows})


def labels(folders: list[Path]) -> dict[str, Path]:
    """Return a short name for each folder: its own, or the whole path where two names are equal."""
    names = [folder.name or str(folder) for folder in folders]
    return {
        name if names.count(name) == 1 else str(folder): folder
        for name, folder in zip(names, folders, strict=True)
    }


def warning_of_tasks(seen: dict[str, Seen]) -> str | None:
    """Return a warning where the times of simulated runs do not depend on what their tasks compute."""
    from asyncqn.cluster.fit import unlike_tasks

    rows = [
        run.numbers["passes"] * run.manifest["problem"]["n_data"] / len(run.schedule)
        for run in seen.values()
        if "passes" in run.numbers
        and len(run.schedule)
        and run.manifest["engine"].get("cluster", {"rows": 1}).get("rows") is None
    ]
    return unlike_tasks(rows)


def compared(
    seen: dict[str, Seen], metric: str, target: float | None
) -> tuple[list[Section], float | None]:
    """Return a row of numbers per run, and the target that the times refer to."""
    import numpy as np

    # By label: the lowest finite value, whatever came after it.
    best: dict[str, float | None] = {}
    for label, run in seen.items():
        values = run.metrics[metric]
        finite = values[np.isfinite(values)]
        best[label] = float(finite.min()) if finite.size else None
    # The worst of the best values is the lowest target that every run has reached.
    lowest = [value for value in best.values() if value is not None]
    goal = target if target is not None else max(lowest, default=None)
    rows = []
    for label, run in seen.items():
        times, stale = run.metrics["time"], run.schedule.staleness
        # NaN compares as False, so that rows after a divergence do not count.
        level = -np.inf if goal is None else goal
        reached = np.flatnonzero(run.metrics[metric] <= level)
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


def _show(out: Output, rows: list[Section], metric: str, goal: float | None) -> None:
    """Print the rows as a table."""
    columns = ["run", "algorithm", "status", "workers", "commits", "staleness"]
    target = "target" if goal is None else f"{goal:.4g}"
    texts = []
    for row in rows:
        best, time = row["best"], row["time_to_target"]
        texts.append(
            [
                row["run"],
                row["algorithm"],
                row["status"],
                f"{row['workers']:,}",
                f"{row['commits']:,}",
                f"{row['staleness_mean']:.1f} (to {row['staleness_max']})",
                "none" if best is None else f"{best:.4g}",
                "not reached" if time is None else f"{time:.5g}",
            ]
        )
    out.table([*columns, f"best {metric}", f"time to {target}"], texts)
