"""A tour: a figure of the paper on simulated workers, threads replayed bit for bit, a recommender.

    python examples/demo.py [FOLDER]

FOLDER, demo-output by default, receives report.html, the runs with their page, and a model.
"""

from __future__ import annotations

import argparse
import base64
import html
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.cli import (
    ALGORITHM_STYLES,
    convergence,
    look_at,
    new_figure,
    render,
    write_page,
)
from asyncqn_paper.figures.fig2 import STATED
from asyncqn_paper.problems import AlikeRows
from asyncqn_paper.settings import cluster
from asyncqn_recommender import Ratings, Recommender, synthetic_ratings
from asyncqn_recommender.data import PRESETS
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
from asyncqn_recommender.problems.profiled_factorization import ProfiledFactorization

TEMPLATE = Path(__file__).with_name("demo.html")
GOAL = 0.05
"""The relative error (U - U*) / U* that ends a simulated run."""
VARIANCES = (0.0, 200.0, 500.0, 900.0)
"""Values of sigma_w^2, the variance of the workers' mean times; 0: all are equally fast."""
DRAWS = 4
"""Draws of the problem, of the cluster and of the start."""
SIMULATED_WORKERS = 40
PAPER = {
    "async-sgd": aq.AsyncSGD.from_paper("linear-gaussian"),
    "mb-lbfgs": replace(
        aq.MBLBFGS.from_paper("linear-gaussian"), initial_scale="pair", quorum=1.0
    ),
    "as-lbfgs": replace(
        aq.ASLBFGS.from_paper("linear-gaussian"), initial_scale="pair", epsilon=1e-4
    ),
}
"""The paper's algorithms with the numbers of its table.

It does not name H0, the quorum and the cautious constant: these choices are ours.
"""
MOST_COMMITS = 10_000
DEFAULT = "default of asyncqn"
RATINGS = "synthetic-100k"
RANK = 5
WORKERS = 2
SEED = 0
RIDGE: dict[str, Any] = {"prior": 3.0, "alpha": 0.04}
BUDGET = 4.0
"""Seconds that an algorithm may take on threads, which wait long on a busy machine."""
MAX_STALENESS = 10
"""Updates with more staleness are dropped: a suspended thread would send very old ones."""
EVALUATIONS = 60
"""Evaluations of a run, which its clock excludes."""
TARGET = 1.01
"""The held-out RMSE to reach, as a multiple of the lowest of all runs."""
REPLAYED = "as-lbfgs"


def main(folder: Path) -> dict[str, Any]:
    """Run the tour, write its files to `folder`, and return its numbers."""
    begun = time.monotonic()
    if folder.exists() and not folder.is_dir():
        raise SystemExit(f"{folder} is a file: name a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    page: dict[str, Any] = {"version": aq.__version__}

    print("1. Figure 2 of the paper: 40 simulated workers (compiles on the first run)")
    times = figure_two()
    page |= show_figure_two(times)

    ratings = synthetic_ratings(*PRESETS[RATINGS])
    train, test = ratings.split(0.1, SEED)
    print(f"\n2. Two threads of this machine: {ratings}")
    runs = race(train, test)
    page |= show_race(runs, str(ratings))
    page_of_runs(runs, folder)

    again = aq.replay(folder / "runs" / REPLAYED)
    same = bool((again.theta == runs[REPLAYED].theta).all())
    verdict = "every bit is the same" if same else "NOT the same bits: please report it"
    print(f"\n3. Replay of {again.nit:,} commits of {REPLAYED}: {verdict}")
    page |= {"replayed_commits": again.nit, "same": verdict}

    print("\n4. A recommender with its defaults")
    model = Recommender(RANK, workers=WORKERS, seed=SEED, **RIDGE).fit(train)
    model.save(folder / "model")
    user = median_user(train)
    page |= show_recommender(model, train, test, user)

    report = folder / "report.html"
    report.write_text(TEMPLATE.read_text("utf-8").format(**page), "utf-8")
    print(f"\n{time.monotonic() - begun:.0f} seconds; the report: {report}")
    means = {name: rows.mean(axis=1) for name, rows in times.items()}
    return {"report": report, "times": means, "runs": runs, "same": same, "user": user}


def show_figure_two(times: dict[str, np.ndarray]) -> dict[str, Any]:
    """Print the mean times, and return what the report shows of them."""
    lines = []
    for name, rows in times.items():
        lines.append([name, *(f"{mean:,.0f}" for mean in rows.mean(axis=1))])
    print_table(["algorithm", *(f"variance {v:g}" for v in VARIANCES)], lines)
    return {
        "goal": GOAL,
        "simulated_workers": SIMULATED_WORKERS,
        "draws": DRAWS,
        "paper_picture": picture(draw_figure_two(times), "time over the variance"),
        "paper_rows": cells(lines),
        "variances": "".join(f"<th>σ² = {v:g}</th>" for v in VARIANCES),
    }


def show_race(runs: dict[str, aq.Run], ratings: str) -> dict[str, Any]:
    """Print where each run stands, and return what the report shows of them."""
    lowest = min(float(run.metrics["test_rmse"].min()) for run in runs.values())
    target = TARGET * lowest
    standings = [standing(name, run, target) for name, run in runs.items()]
    header = ["algorithm", "commits", "staleness", f"s to {target:.3f}", "RMSE"]
    print_table(header, standings)
    return {
        "race_picture": picture(draw_race(runs, target), "RMSE over seconds"),
        "rows": cells(standings),
        "ratings": html.escape(ratings),
        "target": target,
        "workers": WORKERS,
    }


def page_of_runs(runs: dict[str, aq.Run], folder: Path) -> None:
    """Save the runs, and write the page that shows them."""
    shown = {}
    for name, run in runs.items():
        shown[name] = look_at(run.save(folder / "runs" / name))
    write_page(folder / "runs.html", shown)


def show_recommender(
    model: Recommender, train: Ratings, test: Ratings, user: Any
) -> dict[str, Any]:
    """Print errors and the list of one user, and return what the report shows of them."""
    test_rmse = model.rmse(test)
    print(f"RMSE {test_rmse:.4f} on held-out ratings; for user {user}:")
    items = model.recommend(user, 10)
    lines = [[item.title, item.id, f"{item.score:.2f}"] for item in items]
    print_table(["title", "item", "score"], lines)
    return {
        "train_rmse": model.rmse(train),
        "test_rmse": test_rmse,
        "user": html.escape(str(user)),
        "items": cells(lines),
    }


def figure_two() -> dict[str, np.ndarray]:
    """Return the simulated times until the goal, by algorithm: variances by draws.

    This is the setting in which docs/results/reproduction.md finds the paper's Figure 2.  Rows of
    the data are nearly alike, so that few of them measure the curvature of all; the master sends
    by a tree.
    """
    times = {}
    for name in (*PAPER, DEFAULT):
        algorithm = PAPER.get(name)
        kind = name if algorithm else "async-sgd"
        print(f"   {name} ...", flush=True)
        rows = [
            [simulated_time(algorithm, kind, variance, draw) for draw in range(DRAWS)]
            for variance in VARIANCES
        ]
        times[name] = np.array(rows)
    return times


def simulated_time(
    algorithm: aq.Algorithm | None, kind: str, variance: float, draw: int
) -> float:
    """Return the time that one run needs to reach the goal."""
    problem = AlikeRows(STATED.top, draw=draw).model()
    machines = cluster(kind, SIMULATED_WORKERS, variance, payer=STATED.payer)
    if algorithm is None:
        # Times are those of six rows; the default asks for more and waits longer.
        machines = replace(machines, rows=6)
    run = aq.minimize(
        problem,
        algorithm,
        engine=aq.Simulator(machines),
        theta0=np.random.default_rng(draw).standard_normal(problem.dim),
        commits=MOST_COMMITS if algorithm else None,
        target=GOAL,
        metric="error",
        evaluate=1,
        seed=draw,
        progress=False,
    )
    return run.time


def race(train: Ratings, test: Ratings) -> dict[str, aq.Run]:
    """Run the paper's three on U(F, G), and ours on V(F) = min over G, on threads.

    The step sizes of the three come from six to ten trials each on this very problem.
    """
    # A saved run rebuilds the ratings from `source`, so that it can be replayed.
    source = {"ratings": RATINGS, "test_fraction": 0.1, "seed": SEED}
    options = {**RIDGE, "dtype": "float32", "test": test, "source": source}
    joint = MatrixFactorization.from_ratings(train, RANK, **options)
    profiled = ProfiledFactorization.from_ratings(train, RANK, **options)
    batch = joint.n_data // 100
    sgd = aq.AsyncSGD(h=2e-4, batch=batch, sampling="shuffled")
    central = aq.MBLBFGS(
        h=0.1,
        batch=4 * batch,
        overlap=2 * batch,
        memory=3,
        cosine_floor=0.1,
        initial_scale=3e-3,
    )
    stale = aq.ASLBFGS(
        h=3e-3,
        gamma=0.1,
        beta=1e6,
        batch=2 * batch,
        overlap=batch,
        memory=3,
        cosine_floor=0.1,
        initial_scale=1e-2,
    )
    ours = aq.default_algorithm(profiled, WORKERS)
    return {
        "async-sgd": on_threads("async-sgd", joint, sgd, 6_000),
        "mb-lbfgs": on_threads("mb-lbfgs", joint, central, 2_000),
        "as-lbfgs": on_threads("as-lbfgs", joint, stale, 4_000),
        "staged-lbfgs": on_threads(
            "staged-lbfgs", profiled, ours, ours.commits_for(12)
        ),
    }


def on_threads(name: str, problem: Any, algorithm: Any, commits: int) -> aq.Run:
    """Run one algorithm on threads, after a short run that compiles its kernels."""

    def within_budget(progress: aq.types.Progress) -> None:
        if progress.time > BUDGET:
            raise StopIteration

    print(f"   {name} ...", flush=True)
    options: dict[str, Any] = {
        "engine": aq.Threads(WORKERS, max_staleness=MAX_STALENESS),
        "seed": SEED,
        "progress": False,
    }
    # A staged method compiles its second stage only after its warm-up.
    first = getattr(algorithm, "warmup", 0) + 4
    aq.minimize(problem, algorithm, commits=first, evaluate=1, **options)
    every = max(1, commits // EVALUATIONS)
    return aq.minimize(
        problem,
        algorithm,
        commits=commits,
        evaluate=every,
        callback=within_budget,
        **options,
    )


def standing(name: str, run: aq.Run, target: float) -> list[str]:
    """Return commits, mean staleness, seconds to the target and last RMSE of a run."""
    rmse = run.metrics["test_rmse"]
    reached = rmse <= target
    seconds = "not reached"
    if reached.any():
        seconds = f"{run.metrics['time'][reached.argmax()]:.3f}"
    staleness = run.schedule.staleness.mean()
    commits = f"{run.schedule.commits:,}"
    return [name, commits, f"{staleness:.2f}", seconds, f"{rmse[-1]:.3f}"]


def median_user(train: Ratings) -> Any:
    """Return the id of the user whose number of ratings is the median."""
    counts = np.bincount(train.users, minlength=train.n_users)
    order = np.argsort(counts, kind="stable")
    return train.user_ids[order[len(counts) // 2]].item()


def draw_figure_two(times: dict[str, np.ndarray]) -> Any:
    """Draw the means over the variance, with shades of one standard deviation."""
    figure = new_figure(7.0, 3.6)
    axes = figure.add_subplot()
    for name, rows in times.items():
        look = ALGORITHM_STYLES.get(name, {"color": "#777777", "linestyle": ":"})
        mean = rows.mean(axis=1)
        spread = rows.std(axis=1)
        axes.plot(VARIANCES, mean, label=name, **look)
        low, high = mean - spread, mean + spread
        axes.fill_between(VARIANCES, low, high, color=look["color"], alpha=0.15)
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(r"$\sigma_w^2$: variance of the workers' mean times")
    axes.set_ylabel(f"simulated time to an error of {GOAL:g}")
    axes.legend(ncols=2, fontsize="small")
    return figure


def draw_race(runs: dict[str, aq.Run], target: float) -> Any:
    """Draw the held-out RMSE over seconds on a logarithmic axis, with the target."""
    tables = {name: run.metrics for name, run in runs.items()}
    figure = convergence(tables, metric="test_rmse", x_label="time [s]")
    axes = figure.axes[0]
    axes.axhline(target, color="#1b1b1b", linewidth=0.8, alpha=0.5)
    # The times differ by orders of magnitude; the start, at time 0, is left of the axis.
    axes.set_xscale("log", nonpositive="mask")
    shown = [table["test_rmse"][table["time"] > 0.0] for table in tables.values()]
    values = np.concatenate(shown)
    margin = 0.05 * (values.max() - values.min())
    axes.set_ylim(values.min() - margin, values.max() + margin)
    axes.set_ylabel("RMSE on held-out ratings")
    return figure


def picture(figure: Any, alternative: str) -> str:
    """Return a figure as an element of the page, which needs no file beside it."""
    data = base64.b64encode(render(figure, "png")).decode()
    return f'<img alt="{alternative}" src="data:image/png;base64,{data}">'


def cells(rows: Iterable[Sequence[Any]]) -> str:
    """Return the rows of a table of the page."""
    lines = []
    for row in rows:
        inside = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row)
        lines.append(f"<tr>{inside}</tr>")
    return "".join(lines)


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, the first column to the left and the others to the right."""
    lines = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        first = line[0].ljust(widths[0])
        others = [cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True)]
        print("   " + "  ".join([first, *others]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("demo-output"))
    main(parser.parse_args().folder)
