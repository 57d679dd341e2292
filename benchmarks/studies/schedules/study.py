"""One schedule, every algorithm: `python -m schedules.study` writes docs/results/schedules/, the figure and a table.

Each algorithm runs under exactly the delays of a recorded schedule, and under the same with fresh reads: every
update is computed at the newest iterate, and is committed by the same worker at the same time.  The step of
each is the best of eight on the first schedule, by U at its end; the others are measured with it.  DAve-QN
and the table give every worker rows of its own, the others draw rows.  MindFlayer and mb-L-BFGS work in rounds,
which an asynchronous schedule has not: their rounds draw from the recorded times of each worker.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from tables import read, write

import asyncqn as aq
from asyncqn.algorithms.table.choice import table_algorithm
from asyncqn.lab import largest_curvature
from schedules.record import FOLDER, WORKERS, model
from schedules.rivals import MindFlayer, Shards, dave_qn

BATCH = 400
STEPS = tuple(4.0 ** (1 - k) for k in range(8))
"""Steps that are tried, as shares of 1 / L at the start; as-L-BFGS, whose H acts twice, a 64th of them."""
MAX_DELAY = WORKERS
RUNS = 3
COMMITS = 3000
POINTS = 40
PROBLEM = model()
THETA0 = np.zeros(PROBLEM.dim)
TOP = largest_curvature(PROBLEM, THETA0)
OPTIMUM = aq.minimize(PROBLEM, progress=False).fun


class Point(NamedTuple):
    """Time and U."""

    time: float
    fun: float


def schedules() -> list[aq.Schedule]:
    """Return the recorded schedules; every computation is a commit."""
    found = []
    for run in range(RUNS):
        with np.load(FOLDER / f"run{run}.npz") as data:
            rows = data["worker"], data["read"], data["time"]
        commits = np.arange(1, len(rows[0]) + 1)
        found.append(aq.Schedule(rows[0], rows[1], commits, rows[2]))
    return found


def fresh(schedule: aq.Schedule) -> aq.Schedule:
    """Return the schedule with reads of the newest version."""
    return replace(schedule, read=np.asarray(schedule.commit) - 1)


def without_old(schedule: aq.Schedule) -> aq.Schedule:
    """Return the schedule of Ringmaster: updates that are older than `MAX_DELAY` commits are dropped."""
    version = 0
    begun = dict.fromkeys(range(schedule.workers), 0)
    read = []
    commit = []
    for worker in schedule.worker.tolist():
        read.append(begun[worker])
        kept = version - begun[worker] <= MAX_DELAY
        version += kept
        commit.append(version if kept else 0)
        begun[worker] = version
    return replace(schedule, read=np.array(read), commit=np.array(commit))


def with_parts(schedule: aq.Schedule, parts: int) -> aq.Schedule:
    """Return the schedule with a part for every computation: the one that has waited longest."""
    waiting = deque(range(parts))
    held = {worker: waiting.popleft() for worker in range(schedule.workers)}
    column = []
    for worker in schedule.worker.tolist():
        column.append(held[worker])
        waiting.append(held[worker])
        held[worker] = waiting.popleft()
    return replace(schedule, part=np.array(column))


def recorded(algorithm: aq.types.Algorithm, schedule: aq.Schedule) -> list[Point]:
    """Run an algorithm of the library on a schedule."""
    run = aq.minimize(
        PROBLEM,
        algorithm,
        engine=aq.Recorded(schedule),
        theta0=THETA0.copy(),
        commits=schedule.commits,
        evaluate=max(1, schedule.commits // POINTS),
        check=False,
        progress=False,
    )
    times = run.metrics["time"].tolist()
    return [
        Point(*pair) for pair in zip(times, run.metrics["fun"].tolist(), strict=True)
    ]


def sgd(share: float, schedule: aq.Schedule) -> list[Point]:
    return recorded(aq.AsyncSGD(share / TOP, BATCH), schedule)


def ringmaster(share: float, schedule: aq.Schedule) -> list[Point]:
    algorithm = aq.Ringmaster(share / TOP, BATCH, MAX_DELAY)
    if (schedule.staleness == 0).all():
        return recorded(algorithm, schedule)
    return recorded(algorithm, without_old(schedule))


def as_lbfgs(share: float, schedule: aq.Schedule) -> list[Point]:
    """Run as-L-BFGS; H0 = I / L, so that H = H0 with h' = share gamma L has the drift of a-SGD's step.

    The friction and the cautious constant were chosen on the first schedule, of three and two values.
    """
    gamma = 0.2 / WORKERS
    algorithm = aq.ASLBFGS(
        share / 64.0 * gamma * TOP,
        gamma,
        np.inf,
        3,
        BATCH * 3 // 4,
        BATCH // 4,
        initial_scale=1.0 / TOP,
        epsilon=30.0,
    )
    return recorded(algorithm, schedule)


def table(share: float, schedule: aq.Schedule) -> list[Point]:
    """Run the table, which chooses its own steps."""
    algorithm = table_algorithm(PROBLEM, WORKERS)
    return recorded(algorithm, with_parts(schedule, algorithm.stages[0].parts))


def thinned(points: Iterator[tuple[float, np.ndarray]]) -> list[Point]:
    """Return every so many points with U."""
    every = COMMITS // POINTS
    return [
        Point(time, float(PROBLEM.value(theta)))
        for k, (time, theta) in enumerate(points)
        if k % every == 0
    ]


def dave(share: float, schedule: aq.Schedule) -> list[Point]:
    """Run DAve-QN; `share` scales its first matrix."""
    with np.errstate(all="ignore"):
        shards = Shards(PROBLEM, WORKERS)
        return thinned(dave_qn(shards, schedule, THETA0, TOP / share))


def worker_times(schedule: aq.Schedule) -> list[np.ndarray]:
    """Return the recorded times of each worker from one commit to its next."""
    return [np.diff(schedule.time[schedule.worker == w]) for w in range(WORKERS)]


def mindflayer(share: float, schedule: aq.Schedule) -> list[Point]:
    """Run MindFlayer with one trial a round; its rounds draw from the recorded times."""
    times = worker_times(schedule)
    method = MindFlayer.of_times(share / TOP, 1, times)
    rng = np.random.default_rng(0)
    theta = THETA0.copy()
    now = 0.0
    found = [Point(0.0, float(PROBLEM.value(theta)))]

    def gradient(rng: np.random.Generator) -> np.ndarray:
        out = np.empty_like(theta)
        PROBLEM.grad(theta, rng.integers(0, PROBLEM.n_data, BATCH), out)
        return out

    while now < schedule.time[-1]:
        spent, g = method.round(times, gradient, rng)
        now += spent
        theta = theta - method.h * g
        found.append(Point(now, float(PROBLEM.value(theta))))
    return found[:: max(1, len(found) // POINTS)]


def mb_lbfgs(share: float, schedule: aq.Schedule) -> list[Point]:
    """Run mb-L-BFGS in rounds of all workers, on a cluster with the recorded times."""
    run = aq.minimize(
        PROBLEM,
        aq.MBLBFGS(share, 3, BATCH, BATCH // 3, quorum=1.0),
        engine=aq.Simulator(aq.Cluster.from_schedule(schedule)),
        theta0=THETA0.copy(),
        max_time=float(schedule.time[-1]),
        commits=COMMITS,
        evaluate=5,
        check=False,
        progress=False,
    )
    times = run.metrics["time"].tolist()
    return [
        Point(*pair) for pair in zip(times, run.metrics["fun"].tolist(), strict=True)
    ]


METHODS: dict[str, Callable[[float, aq.Schedule], list[Point]]] = {
    "a-SGD": sgd,
    "Ringmaster": ringmaster,
    "as-L-BFGS": as_lbfgs,
    "DAve-QN": dave,
    "table": table,
    "mb-L-BFGS": mb_lbfgs,
    "MindFlayer": mindflayer,
}
ROUNDS = ("mb-L-BFGS", "MindFlayer")


def excess(points: list[Point]) -> float:
    """Return the last (U - U*) / U*; infinite after a divergence."""
    last = points[-1].fun
    return (last - OPTIMUM) / OPTIMUM if np.isfinite(last) else np.inf


def measure() -> None:
    """Tune every method on the first schedule, measure it on the others, and write the tables."""
    first, *others = schedules()
    rows: list[dict[str, Any]] = []
    for name, method in METHODS.items():
        for reads in ("recorded", "fresh"):
            if reads == "fresh" and name in ROUNDS:
                continue
            turn = fresh if reads == "fresh" else replace
            tried = STEPS if name != "table" else (1.0,)
            results = {share: excess(method(share, turn(first))) for share in tried}
            share = min(results, key=lambda one: results[one])
            for run, schedule in enumerate(others, 1):
                for time, fun in method(share, turn(schedule)):
                    rows.append(
                        {
                            "method": name,
                            "reads": reads,
                            "run": run,
                            "share": share,
                            "time": time,
                            "excess": (fun - OPTIMUM) / OPTIMUM,
                        }
                    )
            last = [
                r["excess"] for r in rows if (r["method"], r["reads"]) == (name, reads)
            ]
            print(
                f"{name:12} {reads:9} share {share:.2g}, ends at {last[-1]:.3g}",
                flush=True,
            )
    write("schedules/curves", rows, digits=4)


def draw() -> None:
    """Draw U - U* over time, recorded and fresh, from the table alone."""
    from asyncqn_paper.drawing import STYLES, panels, save_figure, style

    rows = read("schedules/curves")
    with style():
        figure, axes = panels(1, 2, width=3.8, height=3.1, sharey=True)
        for axis, reads in zip(axes[0], ("recorded", "fresh"), strict=True):
            looks = (*STYLES, {"color": "#777777", "linestyle": "--"})
            for name, look in zip(METHODS, looks, strict=False):
                mine = [r for r in rows if (r["method"], r["reads"]) == (name, reads)]
                for run in dict.fromkeys(r["run"] for r in mine):
                    one = [r for r in mine if r["run"] == run]
                    label = name if run == mine[0]["run"] else None
                    x = [float(r["time"]) for r in one]
                    y = [max(1e-8, float(r["excess"])) for r in one]
                    axis.plot(x, y, label=label, **{**look, "markevery": 8})
            axis.set(yscale="log", xlabel="time (s)", title=f"{reads} reads")
        axes[0][0].set(ylabel="(U − U*)/U*", ylim=(1e-7, 3.0))
        axes[0][0].legend(fontsize=6.5)
        save_figure(figure, FOLDER.parent / "figures" / "schedules")


def summary() -> list[str]:
    """Return the table of the page: seconds to 10 % and 1 % above U*, and the end, of both measured runs."""
    rows = read("schedules/curves")
    lines = ["| | reads | s to 10 % | s to 1 % | ends at |", "|---|---|---|---|---|"]
    for name in METHODS:
        for reads in ("recorded", "fresh"):
            mine = [r for r in rows if (r["method"], r["reads"]) == (name, reads)]
            runs = list(dict.fromkeys(r["run"] for r in mine))
            cells: list[list[str]] = [[], [], []]
            for run in runs:
                one = [r for r in mine if r["run"] == run]
                for cell, goal in zip(cells, (0.1, 0.01), strict=False):
                    times = [
                        float(r["time"]) for r in one if float(r["excess"]) <= goal
                    ]
                    cell.append(f"{times[0]:.1f}" if times else "–")
                end = 100.0 * float(one[-1]["excess"])
                cells[2].append(f"{end:.2g} %" if end > 1e-6 else "below 1e-6 %")
            if runs:
                words = " | ".join(", ".join(cell) for cell in cells)
                lines.append(f"| {name} | {reads} | {words} |")
    return lines


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        measure()
    draw()
    print("\n".join(summary()))
