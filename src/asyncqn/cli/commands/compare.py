"""`asyncqn compare RUN RUN...`: compare saved runs: curves, staleness, time to a target."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import numpy as np

from asyncqn.cli.options import Section, ViewOptions
from asyncqn.cli.output import Output
from asyncqn.cluster.fit import unlike_tasks
from asyncqn.errors import require
from asyncqn.view.plots import comparison, time_axis
from asyncqn.view.seen import Seen, look_at


def compare(
    runs: list[Path],
    view: ViewOptions,
    out: Output,
    metric: str | None = None,
    target: float | None = None,
) -> None:
    """Compare saved runs: staleness, best values, and when each reached the target.

    Parameters
    ----------
    runs : list of Path
        Folders of saved runs, or of checkpoints.
    metric : str, optional
        Column to compare; by default error where all runs have it, else fun.
    target : float, optional
        Report when each run reached this value; by default the worst of the runs' best values.
    """
    view.check()
    require(
        target is None or isfinite(target),
        f"--target must be a finite number, not {target}.",
    )
    seen = {str(folder): look_at(folder) for folder in runs}
    # Units of simulated time and seconds have no common axis.
    axes = {time_axis(run) for run in seen.values()}
    require(
        len(axes) == 1,
        "simulated time and seconds cannot be compared: choose runs of one kind.",
    )
    # Only problems with a known minimum have the column "error".
    errors = all("error" in run.metrics for run in seen.values())
    column = metric or ("error" if errors else "fun")
    for label, run in seen.items():
        columns = ", ".join(run.metrics.columns)
        require(
            column in run.metrics,
            f"the run {label} has no column '{column}'; it has {columns}.",
        )
    if (warning := unlike_tasks(_sizes(seen))) is not None:
        out.say(f"warning: {warning}")
    best = {label: lowest(run, column) for label, run in seen.items()}
    # The worst of the best values is the lowest target that every run has reached.
    goal = max(best.values()) if target is None else target
    view.write(lambda: comparison(seen, metric, goal, axes.pop()), seen, out)
    rows = [
        {**row(label, run, column, goal), "best": best[label]}
        for label, run in seen.items()
    ]
    out.table(rows)
    out.show(f"best and target ({goal:.6g}) are values of {column}")
    out.result({"metric": column, "target": goal, "runs": rows})


def _sizes(seen: dict[str, Seen]) -> list[float]:
    """Return the mean rows of an update of each run whose times do not depend on them."""
    return [
        run.numbers["passes"] * run.manifest["problem"]["n_data"] / len(run.schedule)
        for run in seen.values()
        if "passes" in run.numbers
        and len(run.schedule)
        and run.manifest["engine"].get("cluster", {"rows": 1}).get("rows") is None
    ]


def lowest(run: Seen, metric: str) -> float:
    """Return the lowest finite value of a run, whatever came after it; infinity where there is none."""
    values = run.metrics[metric]
    return float(values[np.isfinite(values)].min(initial=np.inf))


def row(label: str, run: Seen, metric: str, goal: float) -> Section:
    """Return the numbers of a run that are compared."""
    times, stale = run.metrics["time"], run.schedule.staleness
    # NaN compares as False, so that rows after a divergence do not count.
    reached = np.flatnonzero(run.metrics[metric] <= goal)
    return {
        "run": label,
        "algorithm": str(run.manifest["algorithm"]["kind"]),
        "status": run.status,
        "workers": run.schedule.workers,
        "commits": run.schedule.commits,
        "time": float(times[-1]) if len(times) else 0.0,
        "staleness_mean": float(stale.mean()) if stale.size else 0.0,
        "staleness_max": int(stale.max(initial=0)),
        "time_to_target": float(times[reached[0]]) if len(reached) else None,
    }
