"""The report of the demo: one page without external resources, readable on a phone and in dark mode."""

from __future__ import annotations

import base64
import html
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from asyncqn import Run
    from asyncqn_recommender.model import Recommendation

PAPER = ("async-sgd", "mb-lbfgs", "as-lbfgs")
Rows = dict[str, dict[str, Any]]


class Story(NamedTuple):
    """The content of the report, in its order."""

    simulated: dict[str, Run]
    simulated_rows: Rows
    """By algorithm: time, commits, rows per update, staleness."""
    runs: dict[str, Run]
    rows: Rows
    """By algorithm: commits, staleness, seconds to the target, last RMSE."""
    again: Run
    """The replay."""
    same: bool
    """Whether the replay equals the run in every bit."""
    ratings: str
    target: float
    """The RMSE to reach."""
    user: Any
    items: list[Recommendation]
    told: dict[str, Any]
    """Numbers by their names in demo.html."""


def write_report(folder: Path, story: Story) -> tuple[Path, Path]:
    """Write report.html and the figure of the race; return their paths."""
    from asyncqn.cli import convergence, save_picture
    from asyncqn.storage import write_whole

    tables = {name: run.metrics for name, run in story.simulated.items()}
    cluster = convergence(tables, metric="error")
    # The algorithms differ by orders of magnitude in time.
    cluster.axes[0].set_xscale("log", nonpositive="mask")
    cluster.axes[0].set_title(
        "20 simulated workers, three of them stragglers", fontsize="medium", loc="left"
    )
    race = _race(story)
    picture = save_picture(race, folder / "convergence.png")
    template = files("asyncqn_recommender").joinpath("demo.html").read_text("utf-8")
    versions = next(iter(story.runs.values())).manifest["versions"]
    every = [*story.simulated.values(), *story.runs.values()]
    ratings = story.ratings.removeprefix("Ratings(").removesuffix(")")
    page = template.format(
        **story.told,
        cluster_picture=_picture(
            cluster, "relative error over simulated time, one line per algorithm"
        ),
        cluster_rows=_cluster_cells(story.simulated_rows),
        stalest=max(row["staleness_max"] for row in story.simulated_rows.values()),
        why=why_last(story.simulated_rows),
        replayed_commits=story.again.schedule.commits,
        same="every bit is the same"
        if story.same
        else "NOT the same bits, which is an error to report",
        race_picture=_picture(
            race, "held-out RMSE over seconds, one line per algorithm"
        ),
        rows=_cells(
            {name: list(map(words, row.values())) for name, row in story.rows.items()}
        ),
        ratings=html.escape(ratings),
        target=story.target,
        user=html.escape(str(story.user)),
        items=_cells_of_items(story.items),
        parameters="".join(
            f"<li><code>{html.escape(str(run.algorithm))}</code></li>" for run in every
        ),
        versions=", ".join(
            f"{name} {versions[name]}" for name in ("asyncqn", "numpy", "numba")
        ),
    )
    return write_whole(folder / "report.html", page), picture


def why_last(rows: Rows) -> str:
    """Return sentences on why as-L-BFGS is the last of the paper's three on the cluster, if it is.

    The numbers are those of the runs.  That nearly all directions have one curvature is a property of the
    problem: of its 100 eigenvalues, 95 lie between 95 and 100.
    """
    times = {name: rows[name]["time"] for name in PAPER if name in rows}
    mine = times.get("as-lbfgs", 0.0)
    if mine is not None and any(
        time is None or time > mine for n, time in times.items() if n != "as-lbfgs"
    ):
        return ""
    stale, plain = rows["as-lbfgs"], rows["async-sgd"]
    return (
        f"<p><b>Why as-lbfgs is last here:</b> an update of it computes {stale['rows']:,.0f} rows, where one "
        f"of async-sgd computes {plain['rows']:,.0f}, because differences of gradients from fewer rows are "
        f"mostly noise; so its {stale['commits']:,} commits take longer than async-sgd's "
        f"{plain['commits']:,}. And there is little for it to learn: nearly all directions of this problem "
        "have the same curvature, which a well-chosen step size already fits.</p>"
    )


def words(value: float | None) -> str:
    """Return a number as a table shows it."""
    if value is None:
        return "not reached"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if value < 0.1 else f"{value:.3f}"


def _cluster_cells(rows: Rows) -> str:
    return _cells(
        {
            name: [
                "not reached" if row["time"] is None else f"{row['time']:,.0f}",
                f"{row['commits']:,}",
                f"{row['rows']:,.0f}",
                f"{row['staleness_mean']:.1f}",
            ]
            for name, row in rows.items()
        }
    )


def _cells(rows: dict[str, list[str]]) -> str:
    return "".join(
        f"<tr><td>{html.escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
        for name, row in rows.items()
    )


def _cells_of_items(items: list[Recommendation]) -> str:
    return "".join(
        f"<tr><td>{html.escape(item.title or '')}</td><td>{html.escape(str(item.id))}</td>"
        f"<td>{item.score:.2f}</td></tr>"
        for item in items
    )


def _picture(figure: Any, alternative: str) -> str:
    """Return a figure for the page, with a second version for dark mode."""
    from asyncqn.cli import darken, render

    light = base64.b64encode(render(figure, "png")).decode()
    # `darken` changes the figure, so that the light version is rendered first.
    dark = base64.b64encode(render(darken(figure), "png")).decode()
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">'
        f'<img alt="{html.escape(alternative)}" src="data:image/png;base64,{light}"></picture>'
    )


def _race(story: Story) -> Any:
    """Draw the held-out RMSE over seconds on a logarithmic axis, with the target."""
    from asyncqn.cli import convergence

    runs, target = story.runs, story.target
    figure = convergence(
        {n: r.metrics for n, r in runs.items()}, metric="test_rmse", x_label="time [s]"
    )
    axes = figure.axes[0]
    axes.axhline(target, color="#1b1b1b", linewidth=0.8, alpha=0.5)
    label = f"{target:.3f}: 1 % above the lowest"
    # In this transform x is a share of the axis and y a value of the data.
    axes.text(
        0.01,
        target,
        label,
        transform=axes.get_yaxis_transform(),
        va="bottom",
        fontsize="small",
    )
    # The times differ by orders of magnitude. The start, at time 0, is left of the axis.
    axes.set_xscale("log", nonpositive="mask")
    shown = [
        run.metrics["test_rmse"][run.metrics["time"] > 0.0] for run in runs.values()
    ]
    low, high = min(float(y.min()) for y in shown), max(float(y.max()) for y in shown)
    axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    axes.set_ylabel("RMSE on held-out ratings")
    axes.set_title(f"{story.told['workers']} threads", fontsize="medium", loc="left")
    return figure
