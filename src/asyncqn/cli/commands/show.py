"""`asyncqn show RUN`: show a run or a checkpoint in the terminal, as a figure, a page or a trace."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.options import ViewOptions, option
from asyncqn.cli.output import Output

if TYPE_CHECKING:
    from asyncqn.view.seen import Seen

_FOLLOW = "Active runs"
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
    follow: Annotated[
        bool,
        option(
            _FOLLOW,
            "Print a line for each new checkpoint of an active run.",
            "--follow",
            "-f",
        ),
    ] = False,
    every: Annotated[
        float, option(_FOLLOW, "Polling interval of --follow, in seconds.")
    ] = 2.0,
    once: Annotated[
        bool,
        option(_FOLLOW, "With --follow: print the current state and exit.", "--once"),
    ] = False,
) -> None:
    """Show a run: parameters, convergence, staleness, work per worker, versions."""
    if follow:
        from asyncqn.cli.watching import follow as follow_run

        follow_run(run, out, every, once)
        return
    from asyncqn.view.plots import SIMULATED, births, overview, time_axis
    from asyncqn.view.seen import look_at
    from asyncqn.view.trace import (
        MICROSECONDS_PER_SECOND,
        MICROSECONDS_PER_UNIT,
        write_trace,
    )

    view.check()
    loaded = look_at(run)
    view.write(lambda: overview(loaded), {run.name or str(run): loaded}, out)
    if trace is not None:
        simulated = time_axis(loaded) == SIMULATED
        # Traces count in microseconds, and units of simulated time have no length of their own.
        scale = MICROSECONDS_PER_UNIT if simulated else MICROSECONDS_PER_SECOND
        out.say(f"trace: {write_trace(trace, loaded.schedule, scale, births(loaded))}")
    if out.json:
        out.result(describe(loaded, run))
    else:
        out.show("\n".join(report(loaded, run)))


def describe(run: Seen, folder: Path) -> dict[str, Any]:
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
    from asyncqn.view.axes import axis_of
    from asyncqn.view.plots import SIMULATED, pick_metric, time_axis
    from asyncqn.view.terminal import bar_chart, histogram_bins, line_chart

    schedule, made = run.schedule, run.manifest
    unit = "units" if time_axis(run) == SIMULATED else "s"
    lines = [f"{folder}: {run.status}", f"  {run.message}", ""]
    problem = made["problem"]
    lines += [
        *_entry(
            "problem",
            f"{problem['name']}, dim {problem['dim']:,}, {problem['n_data']:,} data points"
            + _parameters(problem["reference"], ("kind", "dim", "n_data", "dtype")),
        ),
        *_entry(
            "algorithm",
            made["algorithm"]["kind"] + _parameters(made["algorithm"]["parameters"]),
        ),
        *_entry(
            "engine",
            made["engine"].get("kind", "?")
            + _parameters(made["engine"].get("cluster")),
        ),
        *_entry("seed", str(made["seed"])),
        "",
    ]
    numbers = run.numbers
    if not run.metrics.rows:
        return [*lines, "nothing has been evaluated yet."]
    # The same column as in figures and pages.
    metric = pick_metric(run.metrics)
    values = run.metrics[metric]
    axis = axis_of([values])
    log = axis is not None and axis.log
    ending = f"U = {run.fun:.6g}" + (
        f", error = {numbers['error']:.4g}" if "error" in numbers else ""
    )
    lines += [
        f"convergence: {metric} over time [{unit}]{', logarithmic' if log else ''}; at the end {ending}",
        *line_chart(run.metrics["time"], values, axis=axis),
        "",
    ]
    # A checkpoint of a simulation has no schedule: it is drawn again on resume.
    if schedule.worker.size:
        lines += [
            f"staleness: mean {numbers['staleness_mean']:.2f}, largest {numbers['staleness_max']} commits",
            *bar_chart(*histogram_bins(schedule.staleness_histogram())),
            "",
            f"work per worker: {schedule.workers} workers, {schedule.commits:,} commits, "
            f"{schedule.dropped:,} updates dropped; updates committed, mean staleness, mean cycle",
            *_workers(run, unit),
            "",
        ]
    else:
        lines += [
            "staleness and work per worker: known when the simulated run ends.",
            "",
        ]
    if run.counters:
        accepted, rejected, refused = (
            run.counters.get(name, 0)
            for name in ("pairs_accepted", "pairs_rejected", "updates_rejected")
        )
        lines.append(
            f"pairs      {accepted:,} accepted, {rejected:,} rejected; {refused:,} updates rejected"
        )
    return [
        *lines,
        *_entry("versions", _parameters(made["versions"]).removeprefix(": ")),
    ]


def _entry(name: str, text: str) -> list[str]:
    """Return a name and its text, in lines that fit a terminal."""
    return wrap(
        text, WIDTH, initial_indent=f"{name:<11}", subsequent_indent=" " * 11
    ) or [name]


def _parameters(values: dict[str, Any] | None, leave: tuple[str, ...] = ()) -> str:
    # Empty and absent values are defaults, which would only lengthen the line.
    kept = {
        k: f"{v:g}" if isinstance(v, float) else str(v)
        for k, v in (values or {}).items()
        if k not in leave and v is not None and v not in ({}, [])
    }
    return ": " + ", ".join(f"{k}={v}" for k, v in kept.items()) if kept else ""


def _workers(run: Seen, unit: str) -> list[str]:
    from asyncqn.view.terminal import bar_chart

    # The extremes are what a reader looks for in a long list.
    rows = sorted(run.schedule.per_worker(), key=lambda row: -row.delivered)
    half = MAX_WORKER_LINES // 2
    cut = len(rows) > MAX_WORKER_LINES
    shown = [*rows[:half], *rows[-half:]] if cut else sorted(rows)
    bars = bar_chart(
        [f"worker {row.worker}" for row in shown],
        [row.delivered for row in shown],
        width=24,
    )
    width = max(map(len, bars), default=0)
    lines = [
        f"{text:<{width}}  {row.staleness:6.1f}  {row.cycle:.4g} {unit}"
        for text, row in zip(bars, shown, strict=True)
    ]
    if cut:
        lines.insert(half, f"{'...':>8}  {len(rows) - 2 * half} workers between")
    return lines
