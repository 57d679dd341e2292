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
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

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


Curve = list[tuple[float, float]]
"""Times and U."""


def schedules() -> list[aq.Schedule]:
    """Return the recorded schedules; every computation is a commit."""
    runs = []
    for run in range(RUNS):
        with np.load(FOLDER / f"run{run}.npz") as data:
            commits = np.arange(1, len(data["worker"]) + 1)
            runs.append(
                aq.Schedule(data["worker"], data["read"], commits, data["time"])
            )
    return runs


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


def run_on(engine: Any, algorithm: Any, evaluate: int, **limits: Any) -> Curve:
    """Run an algorithm of the library."""
    run = aq.minimize(
        PROBLEM,
        algorithm,
        engine=engine,
        theta0=THETA0.copy(),
        evaluate=evaluate,
        check=False,
        progress=False,
        **limits,
    )
    columns = (run.metrics["time"].tolist(), run.metrics["fun"].tolist())
    return list(zip(*columns, strict=True))


def recorded(algorithm: aq.types.Algorithm, schedule: aq.Schedule) -> Curve:
    """Run an algorithm of the library on a schedule."""
    commits = schedule.commits
    every = max(1, commits // POINTS)
    return run_on(aq.Recorded(schedule), algorithm, every, commits=commits)


def sgd(share: float, schedule: aq.Schedule) -> Curve:
    return recorded(aq.AsyncSGD(share / TOP, BATCH), schedule)


def ringmaster(share: float, schedule: aq.Schedule) -> Curve:
    algorithm = aq.Ringmaster(share / TOP, BATCH, MAX_DELAY)
    if (schedule.staleness == 0).all():
        return recorded(algorithm, schedule)
    return recorded(algorithm, without_old(schedule))


def as_lbfgs(share: float, schedule: aq.Schedule) -> Curve:
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


def table(share: float, schedule: aq.Schedule) -> Curve:
    """Run the table, which chooses its own steps."""
    algorithm = table_algorithm(PROBLEM, WORKERS)
    return recorded(algorithm, with_parts(schedule, algorithm.stages[0].parts))


def value_at(time: float, theta: np.ndarray) -> tuple[float, float]:
    return time, float(PROBLEM.value(theta))


def dave(share: float, schedule: aq.Schedule) -> Curve:
    """Run DAve-QN; `share` scales its first matrix."""
    with np.errstate(all="ignore"):
        path = dave_qn(Shards(PROBLEM, WORKERS), schedule, THETA0, TOP / share)
        return [value_at(*point) for point in islice(path, 0, None, COMMITS // POINTS)]


def worker_times(schedule: aq.Schedule) -> list[np.ndarray]:
    """Return the recorded times of each worker from one commit to its next."""
    return [np.diff(schedule.time[schedule.worker == w]) for w in range(WORKERS)]


def mindflayer(share: float, schedule: aq.Schedule) -> Curve:
    """Run MindFlayer with one trial a round; its rounds draw from the recorded times."""
    times = worker_times(schedule)
    method = MindFlayer.of_times(share / TOP, 1, times)
    rng = np.random.default_rng(0)
    theta = THETA0.copy()
    now = 0.0
    path = [value_at(0.0, theta)]

    def gradient(rng: np.random.Generator) -> np.ndarray:
        out = np.empty_like(theta)
        PROBLEM.grad(theta, rng.integers(0, PROBLEM.n_data, BATCH), out)
        return out

    while now < schedule.time[-1]:
        spent, g = method.round(times, gradient, rng)
        now += spent
        theta = theta - method.h * g
        path.append(value_at(now, theta))
    return path[:: max(1, len(path) // POINTS)]


def mb_lbfgs(share: float, schedule: aq.Schedule) -> Curve:
    """Run mb-L-BFGS in rounds of all workers, on a cluster with the recorded times."""
    engine = aq.Simulator(aq.Cluster.from_schedule(schedule))
    algorithm = aq.MBLBFGS(share, 3, BATCH, BATCH // 3, quorum=1.0)
    longest = float(schedule.time[-1])
    return run_on(engine, algorithm, 5, commits=COMMITS, max_time=longest)


METHODS: dict[str, Callable[[float, aq.Schedule], Curve]] = {
    "a-SGD": sgd,
    "Ringmaster": ringmaster,
    "as-L-BFGS": as_lbfgs,
    "DAve-QN": dave,
    "table": table,
    "mb-L-BFGS": mb_lbfgs,
    "MindFlayer": mindflayer,
}
CASES = [(name, "recorded") for name in METHODS]
# Rounds have no reads of their own.
CASES += [
    (name, "fresh") for name in METHODS if name not in ("mb-L-BFGS", "MindFlayer")
]


def excess(fun: float) -> float:
    """Return (U - U*) / U*; infinite after a divergence."""
    return (fun - OPTIMUM) / OPTIMUM if np.isfinite(fun) else np.inf


def measure() -> None:
    """Tune every method on the first schedule, measure it on the others, and write the tables."""
    first, *others = schedules()
    rows: list[dict[str, Any]] = []
    for name, reads in CASES:
        method = METHODS[name]
        turn = fresh if reads == "fresh" else replace
        shares = STEPS if name != "table" else (1.0,)
        ends = {share: excess(method(share, turn(first))[-1][1]) for share in shares}
        share = min(ends, key=lambda one: ends[one])
        for run, schedule in enumerate(others, 1):
            for time, fun in method(share, turn(schedule)):
                row = {"method": name, "reads": reads, "run": run, "share": share}
                rows.append(row | {"time": time, "excess": excess(fun)})
        end = rows[-1]["excess"]
        print(f"{name:12} {reads:9} share {share:.2g}, ends at {end:.3g}", flush=True)
    write("schedules/curves", rows, digits=4)


def curves() -> dict[tuple[str, str], dict[str, Curve]]:
    """Return times and excess by method, reads and run, from the table."""
    table: dict[tuple[str, str], dict[str, Curve]] = {}
    for row in read("schedules/curves"):
        runs = table.setdefault((row["method"], row["reads"]), {})
        point = (float(row["time"]), float(row["excess"]))
        runs.setdefault(row["run"], []).append(point)
    return table


def draw() -> None:
    """Draw U - U* over time, recorded and fresh, from the table alone."""
    from asyncqn_paper.drawing import STYLES, panels, save_figure, style

    looks = (*STYLES, {"color": "#777777", "linestyle": "--"})
    with style():
        figure, axes = panels(1, 2, width=3.8, height=3.1, sharey=True)
        columns = dict(zip(("recorded", "fresh"), axes[0], strict=True))
        for (name, reads), runs in curves().items():
            look = {**looks[list(METHODS).index(name)], "markevery": 8}
            for k, points in enumerate(runs.values()):
                x, y = np.array(points).T
                label = None if k else name
                columns[reads].plot(x, np.maximum(y, 1e-8), label=label, **look)
        for reads, axis in columns.items():
            axis.set(yscale="log", xlabel="time (s)", title=f"{reads} reads")
        axes[0][0].set(ylabel="(U − U*)/U*", ylim=(1e-7, 3.0))
        axes[0][0].legend(fontsize=6.5)
        save_figure(figure, FOLDER.parent / "figures" / "schedules")


def first_below(points: Curve, goal: float) -> str:
    times = [time for time, value in points if value <= goal]
    return f"{times[0]:.1f}" if times else "–"


def summary() -> list[str]:
    """Return the table of the page: seconds to 10 % and 1 % above U*, and the end, of both measured runs."""
    lines = ["| | reads | s to 10 % | s to 1 % | ends at |", "|---|---|---|---|---|"]
    for (name, reads), runs in curves().items():
        quick = ", ".join(first_below(run, 0.1) for run in runs.values())
        late = ", ".join(first_below(run, 0.01) for run in runs.values())
        ends = [100.0 * run[-1][1] for run in runs.values()]
        words = [f"{end:.2g} %" if end > 1e-6 else "below 1e-6 %" for end in ends]
        last = ", ".join(words)
        lines.append(f"| {name} | {reads} | {quick} | {late} | {last} |")
    return lines


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        measure()
    draw()
    print("\n".join(summary()))
