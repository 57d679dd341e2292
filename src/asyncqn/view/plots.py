"""Figures from saved tables and schedules: convergence, staleness, who computed when.

Every function returns a matplotlib `Figure`, made without pyplot, so nothing global is touched.
Lines differ in brightness, dashes and markers, so that greyscale prints can be read.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncqn.columns import Table
from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.storage import write_whole
from asyncqn.view.axes import curves_of
from asyncqn.view.styles import styles_of_runs
from asyncqn.view.trace import starts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from asyncqn.runs.run import Run
    from asyncqn.view.seen import Seen

INK, GREY = "#1b1b1b", "#7d93a8"
ORANGE = "#c4661f"
SIMULATED = "simulated time [units]"
SECONDS = "time [s]"
LOG_AXIS_RATIO = 50
"""A histogram whose bars differ by more than this factor has a logarithmic axis."""
STRAGGLER_RATIO = 2.0
"""A computation that takes this many times the median is marked in a timeline."""
MAX_TIMELINE_BOXES = 1_000
"""Boxes beyond this number would be smaller than a pixel, so the later part of a timeline is left out."""


def new_figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """Return an empty figure; raise `MissingExtra` where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "Drawing a figure") from None
    return Figure(figsize=(width, height), layout="constrained")


def is_simulated(run: Run | Seen) -> bool:
    """Return whether the run's time is simulated, and not in seconds."""
    return bool(run.manifest["engine"].get("kind") == "simulator")


def time_axis(run: Run | Seen) -> str:
    """Return the label of the time axis."""
    return SIMULATED if is_simulated(run) else SECONDS


def convergence(
    tables: Mapping[str, Table], *, metric: str | None = None, x_label: str = SIMULATED
) -> Figure:
    """Draw a metric of one or several runs, by name, over time; by default U minus the best value."""
    require(bool(tables), "there is no run to draw: pass at least one.")
    figure = new_figure()
    _convergence(figure.add_subplot(), tables, metric, x_label)
    return figure


def overview(run: Run | Seen) -> Figure:
    """Draw convergence, staleness and the beginning of the timeline of one run in one figure."""
    figure = new_figure(9.0, 8.0)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.0, 1.25))
    left = figure.add_subplot(grid[0, 0])
    _convergence(left, {_name(run): run.metrics}, None, time_axis(run))
    draw_staleness(figure.add_subplot(grid[0, 1]), run.schedule)
    below = figure.add_subplot(grid[1, :])
    draw_timeline(below, run.schedule, time_axis(run), births(run))
    # The status is in the title, so that a figure of a failed run is not mistaken for a result.
    figure.suptitle(
        f"{_name(run)}: {run.status} after {run.schedule.commits:,} commits, {run.schedule.workers} workers"
    )
    return figure


def draw_log(schedule: Schedule) -> Figure:
    """Draw staleness and the beginning of the timeline of a log, whose times are in seconds."""
    figure = new_figure(9.0, 7.0)
    above, below = figure.subplots(2, 1)
    draw_staleness(above, schedule)
    draw_timeline(below, schedule, SECONDS, {})
    return figure


def comparison(
    runs: Mapping[str, Run | Seen],
    metric: str | None,
    target: float | None,
    x_label: str,
) -> Figure:
    """Draw a metric of several runs over time, with the target, and the staleness of their updates."""
    figure = new_figure(9.0, 4.2)
    grid = figure.add_gridspec(1, 2, width_ratios=(1.6, 1.0))
    left = figure.add_subplot(grid[0, 0])
    right = figure.add_subplot(grid[0, 1])
    kinds = {name: _name(run) for name, run in runs.items()}
    styles = styles_of_runs(kinds)
    tables = {name: run.metrics for name, run in runs.items()}
    base = _convergence(left, tables, metric, x_label, kinds)
    if target is not None and target > base:
        left.axhline(target - base, color=INK, linewidth=0.8, alpha=0.5)
    for name, run in runs.items():
        counts = np.bincount(run.schedule.staleness)
        # Cumulative shares can be compared between runs of different lengths; counts cannot.
        total = max(int(counts.sum()), 1)
        share = np.cumsum(counts) / total
        (line,) = right.step(range(share.size), share, where="post", linewidth=1.5)
        line.set_color(styles[name]["color"])
        line.set_linestyle(styles[name]["linestyle"])
    right.set_ylim(0.0, 1.02)
    right.grid(alpha=0.25, linewidth=0.6)
    share_label = "share of computations with at most this staleness"
    _finish(right, "staleness", "commits", share_label)
    return figure


def births(run: Run | Seen) -> dict[int, float]:
    """Return the joining times of the workers of a simulated run that joined late."""
    # JSON has made the worker numbers texts.
    cluster = run.manifest["engine"].get("cluster") or {}
    joins = cluster.get("joins")
    # A forged file may hold anything.
    if not isinstance(joins, dict):
        return {}
    return {int(worker): float(time) for worker, time in joins.items()}


def save_picture(figure: Figure, path: str | Path) -> Path:
    """Write a PNG or SVG, by the suffix of `path`, completely or not at all; equal figures give equal
    bytes."""
    path = Path(path)
    check_ending(path)
    kind = path.suffix.lower().removeprefix(".")
    return write_whole(path, render(figure, kind))


def check_ending(path: str | Path) -> None:
    """Raise `BadInput` early for a suffix that `save_picture` cannot write."""
    if Path(path).suffix.lower() not in (".png", ".svg"):
        raise BadInput(
            f"a figure is saved as .png or .svg, and '{path}' has neither suffix: add one."
        )


def render(figure: Figure, kind: str) -> bytes:
    """Return the bytes of the picture, without a date, so that equal figures give equal files."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # matplotlib derives the identifiers in an SVG from this salt; by default they are random.
    with rc_context({"svg.hashsalt": "asyncqn"}):
        # PNG files carry no date.
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _name(run: Run | Seen) -> str:
    return str(run.manifest["algorithm"]["kind"])


def _finish(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize="medium", loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


def _convergence(
    axes: Any,
    tables: Mapping[str, Table],
    metric: str | None,
    x_label: str,
    kinds: Mapping[str, str] | None = None,
) -> float:
    """Draw the curves; return what was subtracted from the metric."""
    styles = styles_of_runs(kinds or {name: name for name in tables})
    for name, table in tables.items():
        if metric is not None and metric not in table:
            columns = ", ".join(table.columns)
            raise BadInput(f"run '{name}' has no column '{metric}'; it has {columns}.")
    curves, label, axis, base = curves_of(list(tables.values()), metric)
    for number, (name, table) in enumerate(tables.items()):
        # Each line's markers start elsewhere, so that those of close lines do not hide each other.
        every = max(1, table.rows // 9)
        marks = {"markersize": 4.5, "markevery": (number * every // 3, every)}
        values = curves[number] if axis is None else axis.clip(curves[number])
        axes.plot(
            table["time"], values, label=name, linewidth=1.5, **marks, **styles[name]
        )
    if axis is not None and axis.log:
        axes.set_yscale("log")
    axes.grid(alpha=0.25, which="both", linewidth=0.6)
    axes.margins(x=0.01)
    if len(tables) > 1:
        axes.legend(frameon=False)
    cut = ""
    if axis is not None and axis.cut:
        cut = f"; values above {axis.high:.3g} are drawn at the edge"
    _finish(axes, f"convergence{cut}", x_label, label)
    return base


def draw_staleness(axes: Any, schedule: Schedule) -> None:
    """Draw the histogram of staleness, with its mean and its 99 % quantile."""
    counts = np.bincount(schedule.staleness)
    title = "staleness"
    # At most about 80 bars: bins of equal whole width.
    width = max(1, -(-counts.size // 80))
    lefts = np.arange(0, counts.size, width)
    heights = np.add.reduceat(counts, lefts) if counts.size else counts
    align = "edge" if width > 1 else "center"
    axes.bar(lefts, heights, width=width * 0.9, align=align, color=GREY)
    if counts.size:
        mean = float(schedule.staleness.mean())
        # The largest staleness is a single event; the quantile says what to expect.
        late = float(np.quantile(schedule.staleness, 0.99))
        axes.axvline(mean, color=INK, linestyle="--", linewidth=1.2)
        axes.axvline(late, color=ORANGE, linestyle=":", linewidth=1.4)
        # In the title: a legend would cover the tail.
        title += f": mean {mean:.1f}, 99 % ≤ {late:.0f}, largest {counts.size - 1}"
    filled = counts[counts > 0]
    if filled.size and counts.max() > LOG_AXIS_RATIO * filled.min():
        axes.set_yscale("log")  # otherwise the rare large ones would be invisible
    # Leave room for an axis where no update is stale.
    axes.set_xlim(-0.6, max(counts.size, 5) - 0.4)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.margins(y=0.18)
    axes.grid(axis="y", alpha=0.25, linewidth=0.6)
    _finish(axes, title, "staleness [commits]", "computations")


def draw_timeline(
    axes: Any, schedule: Schedule, x_label: str, births: Mapping[int, float]
) -> None:
    """Draw a lane per worker and a box per computation; long ones are orange, dropped ones hatched."""
    workers = schedule.worker[:MAX_TIMELINE_BOXES]
    ends = schedule.time[:MAX_TIMELINE_BOXES]
    dropped = schedule.commit[:MAX_TIMELINE_BOXES] == DROPPED
    begins = np.array(starts(workers.tolist(), ends.tolist(), births))
    lengths = ends - begins
    typical = float(np.median(lengths)) if lengths.size else np.inf
    long = lengths > STRAGGLER_RATIO * typical
    looks: tuple[tuple[Any, dict[str, Any]], ...] = (
        (~dropped & ~long, {"color": GREY}),
        (~dropped & long, {"color": ORANGE}),
        (dropped, {"color": "#f0e2d8", "edgecolor": INK, "hatch": "////"}),
    )
    for chosen, look in looks:
        look = {"edgecolor": "white", "linewidth": 0.6, "height": 0.8, **look}
        axes.barh(workers[chosen], lengths[chosen], left=begins[chosen], **look)
    # The axis points downwards, with worker 0 at the top, as in the tables.
    axes.set_ylim(schedule.workers - 0.4, -0.6)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.margins(x=0.0)
    title = "computations"
    if len(schedule) > MAX_TIMELINE_BOXES:
        title += f" (the first {MAX_TIMELINE_BOXES:,} of {len(schedule):,})"
    if dropped.any():
        title += "; hatched: dropped"
    if long.any():
        title += f"; orange: over {STRAGGLER_RATIO:g} times the median"
    _finish(axes, title, x_label, "worker")
