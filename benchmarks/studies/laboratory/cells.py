"""The cells of the laboratory: a problem on a simulated cluster of uneven workers, and one run in it.

A run has `PASSES` passes, counted in rows whose gradients were used.  The gradient of a row takes 1 on
average, a message 10 there and back, a commit 0.1; a worker's speed is fixed, and its times scatter by 0.3 of
their mean.  `uneven` spreads the speeds over a factor of 4, `speeds` over 100; in `die` every second worker
is gone after 0.3 passes; `pareto` times have no variance.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.table.choice import table_algorithm
from asyncqn.types import extra
from benchmarks.studies.laboratory.problems import Start, problem
from benchmarks.studies.laboratory.rivals import rivals, serial_rivals

WORKERS = (2, 16, 40)
LAWS = ("lognormal", "speeds", "die", "pareto")
"""The clusters of the safety study."""
PASSES = 10
LOOKS = 2
"""Evaluations of U per pass."""
MESSAGE, MASTER, SPREAD = 10.0, 0.1, 0.3
SLOWEST = {"uneven": 4.0, "speeds": 100.0}
"""The mean time of the slowest worker over that of the fastest; elsewhere all are alike."""


class Cell(NamedTuple):
    """A problem and a number of workers."""

    problem: str
    workers: int


def stored(file: Path) -> list[dict[str, Any]]:
    """Return the lines of the runs made so far."""
    if not file.exists():
        return []
    return [json.loads(text) for text in file.read_text().splitlines()]


def add(file: Path, line: dict[str, Any]) -> None:
    """Add the line of a run."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps(line) + "\n")


def cluster(kind: str, workers: int, n_data: int) -> aq.Cluster:
    """Return a cluster on which the gradient of a row takes 1 on average."""
    if kind == "pareto":
        pareto = aq.times.Pareto(mean=1.0, shape=1.5)
        return aq.Cluster(workers, times=pareto, message=MESSAGE, master=MASTER, rows=1)
    slowness = np.geomspace(1.0, SLOWEST.get(kind, 1.0), workers)
    # The workers' mean rate is 1, whatever their spread.
    means = slowness * np.mean(1.0 / slowness)
    half = range(1, workers, 2) if kind == "die" else ()
    return aq.Cluster(
        workers,
        means.tolist(),
        (SPREAD * means).tolist(),
        MESSAGE,
        MASTER,
        dict.fromkeys(half, 0.3 * n_data / workers),
        rows=1,
    )


def methods(cell: Cell, start: Start) -> dict[str, Any]:
    """Return all methods of a cell by name; serial rivals stand beside two workers alone."""
    table = table_algorithm(start.model, cell.workers, MESSAGE, MASTER)
    found = {"table": table, **rivals(*start, cell.workers, PASSES)}
    if cell.workers == 2:
        found |= serial_rivals(start.model, PASSES)
    return found


def measure(cell: Cell, method: str, seed: int) -> dict[str, Any]:
    """Return the line of a run: U at the start, at every half pass, the highest one, and at the end."""
    start = problem(cell.problem)
    algorithm = methods(cell, start)[method]
    n = int(start.model.n_data)
    workers = 1 if method.startswith("serial") else cell.workers
    parts = algorithm.stages[0].parts
    rows = n / parts if parts else float(algorithm.batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = aq.minimize(
            start.model,
            algorithm,
            engine=aq.Simulator(cluster("uneven", workers, n)),
            theta0=start.theta0,
            seed=seed,
            max_passes=PASSES,
            evaluate=max(1, round(n / rows / LOOKS)),
            tol=None if extra(algorithm, "standing") is None else 1e-8,
            check=False,
        )
    passes = np.asarray(run.metrics["commit"]) * rows / n
    values = np.asarray(run.metrics["fun"])
    looks = np.arange(1, PASSES * LOOKS + 1) / LOOKS
    places = np.searchsorted(passes, looks + 0.01, side="right") - 1
    return {
        **cell._asdict(),
        "method": method,
        "seed": seed,
        "start": float(values[0]),
        "values": [float(f"{values[place]:.7g}") for place in places],
        "highest": float(f"{np.nanmax(values):.7g}"),
        "end": float(run.fun),
        "status": run.status,
    }
