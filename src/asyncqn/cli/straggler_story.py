"""The first act of `asyncqn demo`: a simulated cluster with stragglers, and four algorithms on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable

if TYPE_CHECKING:
    from asyncqn.cli.output import Output
    from asyncqn.core.run import Run

FAST, SLOW = 17, 3
"""Workers that need about 10 units for six rows, and stragglers that need 100."""
GOAL = 0.05
"""The relative error (U - U*) / U* that ends a run."""
PAPER = {"async-sgd": 6_000, "mb-lbfgs": 600, "as-lbfgs": 6_000}
"""The paper's three, with the most commits each may have."""
OURS = "default"


def race_with_stragglers(out: Output, seed: int) -> dict[str, Run]:
    """The paper's three with parameters that suit the problem, and the default, which has none to set."""
    from asyncqn.algorithms import make_algorithm
    from asyncqn.cli.jobfile import DEFAULT_PARAMETERS
    from asyncqn.core.cluster import Cluster
    from asyncqn.engines.simulator import Simulator
    from asyncqn.minimize import minimize
    from asyncqn.potentials.linear_gaussian import LinearGaussian

    problem = LinearGaussian.random(dim=100, n_data=600, noise_var=10.0, seed=0)
    means = [10.0] * FAST + [100.0] * SLOW
    cluster = Cluster(
        FAST + SLOW, means, [0.3 * mean for mean in means], message=5.0, master=0.2, rows=6
    )  # times are those of six rows: an algorithm that asks for more waits longer
    runs: dict[str, Run] = {}
    for name in (*PAPER, OURS):
        chosen = make_algorithm(name, DEFAULT_PARAMETERS[name]) if name in PAPER else None
        goal: dict[str, Any] = {"target": GOAL, "metric": "error", "evaluate": 10} if chosen else {}
        with out.progress(f"{name:<12}", 1) as advance:
            runs[name] = minimize(
                problem, chosen, engine=Simulator(cluster), commits=PAPER.get(name), seed=seed, **goal
            )
            advance(1, runs[name].status)
    return runs


def row_of(run: Run) -> dict[str, Any]:
    """What the story tells of a run."""
    error, time, staleness = run.metrics["error"], run.metrics["time"], run.schedule.staleness
    reached = error <= GOAL
    return {
        "time": float(time[reached.argmax()]) if reached.any() else None,
        "commits": run.schedule.commits,
        "staleness_mean": float(staleness.mean()),
        "staleness_max": int(staleness.max()),
    }


def table_of(rows: dict[str, dict[str, Any]]) -> RichTable:
    """The story as a table for the terminal."""
    table = RichTable("algorithm", f"time to an error of {GOAL:g}", "commits", "mean staleness", "largest")
    for name, row in rows.items():
        time = "not reached" if row["time"] is None else f"{row['time']:,.0f}"
        table.add_row(
            name, time, f"{row['commits']:,}", f"{row['staleness_mean']:.1f}", f"{row['staleness_max']:,}"
        )
    return table
