"""`asyncqn import FILE`: read the log of another system: its staleness, its workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from asyncqn.cli.options import Generated, Section
from asyncqn.cli.output import Output
from asyncqn.cluster.cluster import Cluster
from asyncqn.core.schedule import Schedule
from asyncqn.errors import BadInput
from asyncqn.models.data_file import read_table
from asyncqn.storage import check_output, write_whole
from asyncqn.view.plots import check_ending, draw_log, save_picture
from asyncqn.view.terminal import bar_chart, histogram_bins

COLUMNS = ("worker", "start", "end", "version", "commit")
MAX_WORKERS = 12
"""Workers in the printed table; the JSON object has all of them."""


def import_(
    file: Path,
    columns: Annotated[Section, Generated(Schedule.from_table, COLUMNS)],
    out: Output,
    plot: Path | None = None,
    job: Path | None = None,
) -> None:
    """Read a log with a row per update (worker, start, end), and show what its stragglers do.

    In Python, Schedule.from_table reads the same log, and Recorded(schedule) runs any algorithm under exactly
    its delays.

    Parameters
    ----------
    file : Path
        CSV or Parquet file with one row per update.
    plot : Path, optional
        Draw staleness and workers to this .png or .svg file.
    job : Path, optional
        Write the workers' times as a job file for simulate and plan.
    """
    if plot is not None:
        check_ending(plot)
    if job is not None:
        check_output(job)
    try:
        schedule = Schedule.from_table(read_table(file), **columns)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    if plot is not None:
        out.say(f"figure: {save_picture(draw_log(schedule), plot)}")
    if job is not None:
        out.say(f"job: {write_whole(job, cluster_section(schedule))}")
    workers = schedule.per_worker()
    histogram = np.bincount(schedule.staleness)
    out.show(f"{schedule}")
    for line in bar_chart(*histogram_bins(histogram)):
        out.show(line)
    # The slowest workers first, because they are what a reader looks for.
    slowest = sorted(workers, key=lambda one: -one.cycle)
    out.table([one._asdict() for one in slowest[:MAX_WORKERS]])
    out.result(
        {
            "updates": len(schedule),
            "commits": schedule.commits,
            "dropped": schedule.dropped,
            "workers": [one._asdict() for one in workers],
            "staleness_histogram": histogram,
        }
    )


def cluster_section(schedule: Schedule) -> str:
    """Return the section [cluster] of a job file, in which each worker repeats its own times."""
    laws: Any = Cluster.from_schedule(schedule).laws()
    times = [
        f'  {{kind = "trace", recorded = {list(map(float, law.recorded))}}},'
        for law in laws
    ]
    head = ["[cluster]", f"workers = {len(laws)}", "times = ["]
    return "\n".join([*head, *times, "]", ""])
