"""`asyncqn import FILE`: read the log of another system: its staleness, its workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from asyncqn.cli.options import Generated, Section
from asyncqn.cli.output import Output
from asyncqn.core.schedule import Schedule
from asyncqn.errors import BadInput

COLUMNS = ("worker", "start", "end", "version", "commit")


def import_(
    file: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with one row per update.")
    ],
    columns: Annotated[Section, Generated(Schedule.from_table, COLUMNS)],
    out: Output,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw staleness and workers to this .png or .svg file.", metavar="FILE"
        ),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option(
            help="Write the workers' times as a job file for simulate and plan.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Read a log with a row per update (worker, start, end), and show what its stragglers do.

    In Python, Schedule.from_table reads the same log, and Recorded(schedule) runs any algorithm under exactly
    its delays.
    """
    from asyncqn.models.data_file import read_table
    from asyncqn.storage import check_output, write_whole
    from asyncqn.view.plots import check_ending, draw_log, save_picture
    from asyncqn.view.terminal import bar_chart, histogram_bins

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
    histogram = schedule.staleness_histogram()
    out.show(f"{schedule}")
    for line in bar_chart(*histogram_bins(histogram)):
        out.show(line)
    # The slowest workers first, because they are what a reader looks for.
    slowest = sorted(workers, key=lambda one: -one.cycle)
    rows = [
        [
            f"{one.worker}",
            f"{one.delivered:,}",
            f"{one.staleness:.1f}",
            f"{one.cycle:.4g}",
        ]
        for one in slowest[:12]
    ]
    out.table(["worker", "updates", "mean staleness", "mean cycle"], rows)
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
    from asyncqn.cluster.cluster import Cluster

    laws: Any = Cluster.from_schedule(schedule).laws()
    times = [
        f'  {{kind = "trace", recorded = {list(map(float, law.recorded))}}},'
        for law in laws
    ]
    head = ["[cluster]", f"workers = {len(laws)}", "times = ["]
    return "\n".join([*head, *times, "]", ""])
