"""`asyncqn show RUN`: show a run or checkpoint as text, figure, page or trace."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

from asyncqn.cli.options import Section, ViewOptions
from asyncqn.cli.output import Output
from asyncqn.view.axes import curves_of
from asyncqn.view.plots import births, is_simulated, overview
from asyncqn.view.seen import Seen, look_at
from asyncqn.view.terminal import bar_chart, histogram_bins, line_chart
from asyncqn.view.trace import (
    MICROSECONDS_PER_SECOND,
    MICROSECONDS_PER_UNIT,
    write_trace,
)

WIDTH = 100
"""Width of a line in characters; longer text continues in the next line."""
MAX_WORKERS = 12
"""With more workers, only the busiest are shown."""


def show(
    run: Path,
    view: ViewOptions,
    out: Output,
    trace: Path | None = None,
) -> None:
    """Show a run: parameters, convergence, staleness, work per worker, versions.

    Parameters
    ----------
    run : Path
        Folder of a saved run, or of checkpoints.
    trace : Path, optional
        Also write a trace for ui.perfetto.dev.
    """
    view.check()
    seen = look_at(run)
    view.write(lambda: overview(seen), {run.name or str(run): seen}, out)
    if trace is not None:
        # Traces count in microseconds, and units of simulated time have no length of their own.
        simulated = is_simulated(seen)
        scale = MICROSECONDS_PER_UNIT if simulated else MICROSECONDS_PER_SECOND
        out.say(f"trace: {write_trace(trace, seen.schedule, scale, births(seen))}")
    if out.json:
        out.result(describe(seen, run))
    else:
        out.show("\n".join(report(seen, run)))


def describe(run: Seen, folder: Path) -> Section:
    """Return everything that `show` shows, for scripts."""
    import numpy as np

    return {
        **run.numbers,
        "run": str(folder),
        "workers": run.schedule.workers,
        "dropped": run.schedule.dropped,
        "staleness_histogram": np.bincount(run.schedule.staleness),
        "per_worker": [summary._asdict() for summary in run.schedule.per_worker()],
        "metrics": dict(run.metrics),
        "manifest": run.manifest,
    }


def report(run: Seen, folder: Path) -> list[str]:
    """Return the summary as lines of text."""
    lines = [f"{folder}: {run.status}", f"  {run.message}", "", *_objects(run), ""]
    if not run.metrics.rows:
        return [*lines, "nothing has been evaluated yet."]
    lines += [*_convergence(run), "", *_staleness(run), ""]
    if run.counters:
        names = ("pairs_accepted", "pairs_rejected", "updates_rejected")
        counters = {name: run.counters.get(name, 0) for name in names}
        lines += _entry("pairs", counters)
    return [*lines, *_entry("versions", run.manifest["versions"])]


def _objects(run: Seen) -> list[str]:
    """Return the lines about problem, algorithm, engine and seed."""
    about = run.manifest
    problem, algorithm, engine = about["problem"], about["algorithm"], about["engine"]
    sizes = {"dim": problem["dim"], "n_data": problem["n_data"]}
    return [
        *_entry(
            "problem", {**sizes, **(problem["reference"] or {})}, f"{problem['name']}: "
        ),
        *_entry("algorithm", algorithm["parameters"], f"{algorithm['kind']}: "),
        *_entry("engine", engine.get("cluster"), f"{engine.get('kind', '?')}: "),
        *_entry("seed", {}, str(about["seed"])),
    ]


def _entry(name: str, values: Section | None, text: str = "") -> list[str]:
    """Return a name, a text and some values, in lines that fit a terminal."""
    # Empty and absent values are defaults, which would only lengthen the line.
    text += ", ".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in (values or {}).items()
        if value is not None and value not in ({}, [])
    )
    indent = " " * 11
    text = text.removesuffix(": ")
    return wrap(text, WIDTH, initial_indent=f"{name:<11}", subsequent_indent=indent)


def _convergence(run: Seen) -> list[str]:
    """Return the curve of the metric over time."""
    # The same values and axis as in figures and pages.
    (values,), title, axis, _ = curves_of([run.metrics])
    scale = ", logarithmic" if axis is not None and axis.log else ""
    ending = f"U = {run.fun:.6g}"
    if "error" in run.numbers:
        ending += f", error = {run.numbers['error']:.4g}"
    return [
        f"convergence: {title} over time [{_unit(run)}]{scale}; at the end {ending}",
        *line_chart(run.metrics["time"], values, axis=axis),
    ]


def _staleness(run: Seen) -> list[str]:
    """Return the histogram of staleness and the work of each worker."""
    import numpy as np

    schedule = run.schedule
    # A checkpoint of a simulation has no schedule: it is drawn again on resume.
    if not schedule.worker.size:
        return ["staleness and work per worker: known when the simulated run ends."]
    mean, largest = run.numbers["staleness_mean"], run.numbers["staleness_max"]
    counts = f"{schedule.commits:,} commits, {schedule.dropped:,} updates dropped or under way at the end"
    busiest = sorted(schedule.per_worker(), key=lambda row: -row.delivered)
    shown = busiest[:MAX_WORKERS]
    labels = [f"worker {row.worker}" for row in shown]
    bars = bar_chart(labels, [row.delivered for row in shown], width=24)
    width = max(map(len, bars), default=0)
    return [
        f"staleness: mean {mean:.2f}, largest {largest} commits",
        *bar_chart(*histogram_bins(np.bincount(schedule.staleness))),
        "",
        f"work per worker: {schedule.workers} workers, {counts}; updates committed, mean staleness, "
        "mean cycle",
        *(
            f"{bar:<{width}}  {row.staleness:6.1f}  {row.cycle:.4g} {_unit(run)}"
            for bar, row in zip(bars, shown, strict=True)
        ),
        *(["..."] if len(busiest) > MAX_WORKERS else []),
    ]


def _unit(run: Seen) -> str:
    return "units" if is_simulated(run) else "s"
