"""`asyncqn show RUN`: show a run or checkpoint as text, figure, page or trace."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.options import Section, ViewOptions
from asyncqn.cli.output import Output

if TYPE_CHECKING:
    from asyncqn.view.seen import Seen

WIDTH = 100
"""Width of a line in characters; longer text continues in the next line."""
MAX_WORKER_LINES = 12
"""With more workers, only the busiest and the idlest are shown."""


def show(
    run: Annotated[
        Path, typer.Argument(help="Folder of a saved run, or of checkpoints.")
    ],
    view: ViewOptions,
    out: Output,
    trace: Annotated[
        Path | None,
        typer.Option(help="Also write a trace for ui.perfetto.dev.", metavar="FILE"),
    ] = None,
) -> None:
    """Show a run: parameters, convergence, staleness, work per worker, versions."""
    from asyncqn.view.plots import births, is_simulated, overview
    from asyncqn.view.seen import look_at
    from asyncqn.view.trace import (
        MICROSECONDS_PER_SECOND,
        MICROSECONDS_PER_UNIT,
        write_trace,
    )

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
        return
    for line in report(seen, run):
        out.show(line)


def describe(run: Seen, folder: Path) -> Section:
    """Return everything that `show` shows, for scripts."""
    return {
        **run.numbers,
        "run": str(folder),
        "workers": run.schedule.workers,
        "dropped": run.schedule.dropped,
        "staleness_histogram": run.schedule.staleness_histogram(),
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
        accepted, rejected, refused = (run.counters.get(name, 0) for name in names)
        pairs = f"{accepted:,} accepted, {rejected:,} rejected"
        lines += _entry("pairs", f"{pairs}; {refused:,} updates rejected")
    versions = _parameters(run.manifest["versions"]).removeprefix(": ")
    return [*lines, *_entry("versions", versions)]


def _objects(run: Seen) -> list[str]:
    """Return the lines about problem, algorithm, engine and seed."""
    made = run.manifest
    problem, algorithm, engine = made["problem"], made["algorithm"], made["engine"]
    sizes = f"dim {problem['dim']:,}, {problem['n_data']:,} data points"
    rest = _parameters(problem["reference"], ("kind", "dim", "n_data", "dtype"))
    parameters = _parameters(algorithm["parameters"])
    cluster = _parameters(engine.get("cluster"))
    return [
        *_entry("problem", f"{problem['name']}, {sizes}{rest}"),
        *_entry("algorithm", f"{algorithm['kind']}{parameters}"),
        *_entry("engine", f"{engine.get('kind', '?')}{cluster}"),
        *_entry("seed", str(made["seed"])),
    ]


def _convergence(run: Seen) -> list[str]:
    """Return the curve of the metric over time."""
    from asyncqn.view.axes import curves_of
    from asyncqn.view.terminal import line_chart

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
    from asyncqn.view.terminal import bar_chart, histogram_bins

    schedule = run.schedule
    # A checkpoint of a simulation has no schedule: it is drawn again on resume.
    if not schedule.worker.size:
        return ["staleness and work per worker: known when the simulated run ends."]
    mean, largest = run.numbers["staleness_mean"], run.numbers["staleness_max"]
    counts = f"{schedule.commits:,} commits, {schedule.dropped:,} updates dropped"
    return [
        f"staleness: mean {mean:.2f}, largest {largest} commits",
        *bar_chart(*histogram_bins(schedule.staleness_histogram())),
        "",
        f"work per worker: {schedule.workers} workers, {counts}; updates committed, mean staleness, "
        "mean cycle",
        *_workers(run),
    ]


def _unit(run: Seen) -> str:
    from asyncqn.view.plots import is_simulated

    return "units" if is_simulated(run) else "s"


def _entry(name: str, text: str) -> list[str]:
    """Return a name and its text, in lines that fit a terminal."""
    indent = " " * 11
    lines = wrap(text, WIDTH, initial_indent=f"{name:<11}", subsequent_indent=indent)
    return lines or [name]


def _parameters(values: Section | None, leave: tuple[str, ...] = ()) -> str:
    # Empty and absent values are defaults, which would only lengthen the line.
    texts = [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in (values or {}).items()
        if name not in leave and value is not None and value not in ({}, [])
    ]
    return ": " + ", ".join(texts) if texts else ""


def _workers(run: Seen) -> list[str]:
    from asyncqn.view.terminal import bar_chart

    # The extremes are what a reader looks for in a long list.
    rows = sorted(run.schedule.per_worker(), key=lambda row: -row.delivered)
    half = MAX_WORKER_LINES // 2
    cut = len(rows) > MAX_WORKER_LINES
    shown: list[Any] = [*rows[:half], *rows[-half:]] if cut else sorted(rows)
    labels = [f"worker {row.worker}" for row in shown]
    bars = bar_chart(labels, [row.delivered for row in shown], width=24)
    width = max(map(len, bars), default=0)
    unit = _unit(run)
    lines = [
        f"{text:<{width}}  {row.staleness:6.1f}  {row.cycle:.4g} {unit}"
        for text, row in zip(bars, shown, strict=True)
    ]
    if cut:
        lines.insert(half, f"{'...':>8}  {len(rows) - 2 * half} workers between")
    return lines
