"""`asyncqn recommender demo`: a simulated cluster with stragglers, real threads replayed, a recommender."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from asyncqn.cli import Output
from asyncqn_recommender.commands.recommend import table as recommendations
from asyncqn_recommender.demo_report import Story, words, write_report

if TYPE_CHECKING:
    from asyncqn import Run
    from asyncqn.types import Progress
    from asyncqn_recommender.data import Ratings
    from asyncqn_recommender.estimator import Recommender

FAST, SLOW = 17, 3
"""Simulated workers that need about 10 units for six rows, and stragglers that need 100."""
GOAL = 0.05
"""The relative error (U - U*) / U* that ends a simulated run."""
PAPER = {"async-sgd": 6_000, "mb-lbfgs": 600, "as-lbfgs": 6_000}
"""The paper's three algorithms, with their largest number of commits on the simulated cluster."""
RATINGS, RANK, WORKERS, SEED = "synthetic-100k", 5, 2, 0
PRIOR, ALPHA = 3.0, 0.04
BUDGET = 4.0
"""Seconds that an algorithm may take on its own clock; on a busy machine, rounds of threads wait long."""
MAX_STALENESS = 10
"""Updates with more staleness are dropped: a thread that the system suspends would send very old ones."""
REPLAY_ALGORITHM = "as-lbfgs"
"""The run on threads that is computed again from its file."""
EVALUATIONS = 60
"""Number of evaluations of a run, which its clock excludes."""
TARGET = 1.01
"""The held-out RMSE to reach, as a multiple of the lowest of all runs."""


def demo(
    out: Output,
    output: Annotated[
        Path,
        typer.Option(
            help="Folder for the figure, the model, the runs and the report.",
            metavar="DIR",
        ),
    ] = Path("demo-output"),
) -> None:
    """Run a cluster with stragglers, replay real threads bit for bit, fit a recommender; write
    report.html."""
    import numpy as np

    from asyncqn import replay
    from asyncqn.cli import new_figure
    from asyncqn.errors import require
    from asyncqn.storage import check_place
    from asyncqn_recommender.data import PRESETS, synthetic_ratings

    require(
        not output.exists() or output.is_dir(),
        f"{output} is a file: give a folder with --output.",
    )
    check_place(
        output / "report.html"
    )  # before minutes of work, whose result could not be written
    new_figure()  # raises at once if matplotlib is missing
    out.say(
        f"a simulated cluster of {FAST} workers and {SLOW} stragglers, ten times as slow; "
        "the first run of each kernel compiles it"
    )
    simulated = _race_with_stragglers(out)
    cluster_rows = {name: _cluster_row(run) for name, run in simulated.items()}
    shown = RichTable(
        "algorithm",
        f"time to an error of {GOAL:g}",
        "commits",
        "mean staleness",
        "largest",
    )
    for name, row in cluster_rows.items():
        time = "not reached" if row["time"] is None else f"{row['time']:,.0f}"
        mean, largest = f"{row['staleness_mean']:.1f}", f"{row['staleness_max']:,}"
        shown.add_row(name, time, f"{row['commits']:,}", mean, largest)
    out.show(shown)
    ratings = synthetic_ratings(*PRESETS[RATINGS])
    out.say(f"now on {WORKERS} real threads: {RATINGS}: {ratings}")
    train, test = ratings.split(0.1, SEED)
    model = _fit(train, out)
    runs = _race(train, test, out)
    lowest = min(float(run.metrics["test_rmse"].min()) for run in runs.values())
    rows = {name: _row(run, TARGET * lowest) for name, run in runs.items()}
    model.save(output / "model")
    pages = _save(output, simulated, runs)
    again = replay(output / "runs" / REPLAY_ALGORITHM)
    same = bool((again.theta == runs[REPLAY_ALGORITHM].theta).all())
    counts = np.bincount(train.users, minlength=train.n_users)
    user = train.user_ids[
        int(np.argsort(counts, kind="stable")[len(counts) // 2])
    ].item()  # median count
    best = model.recommend(user, 10)
    facts = {
        "train_rmse": model.rmse(train),
        "test_rmse": model.rmse(test),
        "seconds": model.seconds_,
    }
    told = {
        "fast": FAST,
        "slow": SLOW,
        "goal": GOAL,
        "workers": WORKERS,
        "seed": SEED,
        **facts,
    }
    story = Story(
        simulated,
        cluster_rows,
        runs,
        rows,
        again,
        same,
        str(ratings),
        TARGET * lowest,
        user,
        best,
        told,
    )
    report, picture = write_report(output, story)
    race = RichTable(
        "algorithm",
        "commits",
        "mean staleness",
        f"s to RMSE {TARGET * lowest:.3f}",
        "RMSE",
    )
    for name, row in rows.items():
        race.add_row(name, *map(words, row.values()))
    out.show(race)
    out.show(
        f"replay of {REPLAY_ALGORITHM}: {again.schedule.commits:,} commits of two threads computed again, "
        f"{'every bit the same' if same else 'NOT the same bits'}"
    )
    out.show(
        f"\nrecommender: RMSE {facts['test_rmse']:.4f} on held-out ratings, "
        f"{facts['seconds']:.1f} s; for user {user}:"
    )
    out.show(recommendations(best))
    out.show(
        f"\nreport:  {report}\nruns:    {pages}\npicture: {picture}\n"
        f"more:    asyncqn recommender recommend {output}/model --user {user}\n"
        f"         asyncqn replay {output}/runs/as-lbfgs"
    )
    out.result(
        {
            "report": str(report),
            "picture": str(picture),
            "model": str(output / "model"),
            **facts,
            "cluster": cluster_rows,
            "replayed": same,
            "runs": rows,
            "user": user,
            "items": [item._asdict() for item in best],
        }
    )


def _race_with_stragglers(out: Output) -> dict[str, Run]:
    """Run the paper's three with parameters that suit the problem, and the default, which needs none."""
    from asyncqn import (
        ASLBFGS,
        MBLBFGS,
        AsyncSGD,
        Cluster,
        LinearGaussian,
        Simulator,
        minimize,
    )

    problem = LinearGaussian.random(dim=100, n_data=600, noise_var=10.0, seed=0)
    means = [10.0] * FAST + [100.0] * SLOW
    # Times are those of six rows: an algorithm that asks for more waits longer.
    cluster = Cluster(
        FAST + SLOW, means, [0.3 * m for m in means], message=5.0, master=0.2, rows=6
    )
    both: dict[str, Any] = {"memory": 3}
    entries = {
        "async-sgd": AsyncSGD(h=5e-5, batch=6),
        "mb-lbfgs": MBLBFGS(
            h=0.2, batch=6, overlap=2, timeout=20.0, quorum=0.75, **both
        ),
        "as-lbfgs": ASLBFGS(
            h=4e-4,
            gamma=0.03,
            beta=500.0,
            batch=60,
            overlap=40,
            initial_scale=0.02,
            cosine_floor=0.4,
            **both,
        ),
        "default": None,
    }
    # In the order of the table and of the figure.
    runs: dict[str, Run] = {}
    for name, chosen in entries.items():
        goal: dict[str, Any] = (
            {"target": GOAL, "metric": "error", "evaluate": 10} if chosen else {}
        )
        with out.progress(f"{name:<12}", 1) as advance:
            goal |= {"commits": PAPER.get(name), "seed": SEED, "progress": False}
            runs[name] = minimize(problem, chosen, engine=Simulator(cluster), **goal)
            advance(1, runs[name].status)
    return runs


def _cluster_row(run: Run) -> dict[str, Any]:
    staleness = run.schedule.staleness
    return {
        "time": _time_to(run, "error", GOAL),
        "commits": run.schedule.commits,
        "rows": run.passes
        * run.manifest["problem"]["n_data"]
        / max(1, len(run.schedule)),
        "staleness_mean": float(staleness.mean()),
        "staleness_max": int(staleness.max()),
    }


def _row(run: Run, target: float) -> dict[str, Any]:
    return {
        "commits": run.schedule.commits,
        "staleness_mean": float(run.schedule.staleness.mean()),
        "time_to_target": _time_to(run, "test_rmse", target),
        "rmse": float(run.metrics["test_rmse"][-1]),
    }


def _time_to(run: Run, metric: str, target: float) -> float | None:
    reached = run.metrics[metric] <= target
    return float(run.metrics["time"][reached.argmax()]) if reached.any() else None


def _save(output: Path, simulated: dict[str, Run], runs: dict[str, Run]) -> Path:
    """Save all runs, and write the page that shows them."""
    from asyncqn.cli import look_at, write_page

    seen = {}
    for told, folder, some in (
        ("cluster", "cluster", simulated),
        ("threads", "runs", runs),
    ):
        for name, run in some.items():
            seen[f"{told}: {name}"] = look_at(run.save(output / folder / name))
    return write_page(output / "runs.html", seen)


def _fit(train: Ratings, out: Output) -> Recommender:
    from asyncqn_recommender.estimator import Recommender

    model = Recommender(RANK, workers=WORKERS, seed=SEED, prior=PRIOR, alpha=ALPHA)
    with out.progress("recommender ", model.passes) as advance:
        Recommender(RANK, workers=WORKERS, passes=2).fit(
            train
        )  # compiles before the clock starts
        model.fit(
            train,
            callback=lambda progress: advance(
                int(progress.metrics["passes"]), f"RMSE {progress.metrics['rmse']:.4f}"
            ),
        )
        advance(model.passes, "done")
    return model


def _race(train: Ratings, test: Ratings, out: Output) -> dict[str, Run]:
    """Run the paper's three on U(F, G) and ours on V(F) = min over G, with the same ratings and threads.

    The step sizes of the three come from six to ten trials each on this very problem.
    """
    from asyncqn import ASLBFGS, MBLBFGS, AsyncSGD, StagedLBFGS, default_algorithm
    from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
    from asyncqn_recommender.problems.profiled_factorization import (
        ProfiledFactorization,
    )

    options: dict[str, Any] = {
        "prior": PRIOR,
        "alpha": ALPHA,
        "dtype": "float32",
        "test": test,
    }
    # A saved run rebuilds the ratings from this source, so `asyncqn replay` works on the demo's runs.
    options["source"] = {"ratings": RATINGS, "test_fraction": 0.1, "seed": SEED}
    joint = MatrixFactorization.from_ratings(train, RANK, **options)
    profiled = ProfiledFactorization.from_ratings(train, RANK, **options)
    # What `minimize` would choose; it is made here to know how many commits twelve passes take.
    ours = default_algorithm(profiled, WORKERS)
    assert isinstance(ours, StagedLBFGS)
    batch = joint.n_data // 100
    sgd = AsyncSGD(h=2e-4, batch=batch, sampling="shuffled")
    both: dict[str, Any] = {"memory": 3, "cosine_floor": 0.1}
    central = MBLBFGS(
        h=0.1, batch=4 * batch, overlap=2 * batch, initial_scale=3e-3, **both
    )
    stale = ASLBFGS(
        h=3e-3,
        gamma=0.1,
        beta=1e6,
        batch=2 * batch,
        overlap=batch,
        initial_scale=1e-2,
        **both,
    )
    entries = {
        "async-sgd": (joint, sgd, 6_000),
        "mb-lbfgs": (joint, central, 2_000),
        "as-lbfgs": (joint, stale, 4_000),
        "staged-lbfgs": (profiled, ours, ours.commits_for(12)),
    }
    return {name: _run(name, *entry, out) for name, entry in entries.items()}


def _run(name: str, problem: Any, algorithm: Any, commits: int, out: Output) -> Run:
    from asyncqn import Threads, minimize

    engine = Threads(WORKERS, max_staleness=MAX_STALENESS)
    go = partial(minimize, problem, algorithm, engine=engine, seed=SEED, progress=False)
    with out.progress(f"{name:<12}", commits) as advance:

        def look(progress: Progress) -> None:
            advance(progress.commit, f"RMSE {progress.metrics['test_rmse']:.4f}")
            if progress.time > BUDGET:
                raise StopIteration

        # A few commits beforehand, beyond any warm-up, compile the kernels that this machine has not run
        # before.
        go(commits=getattr(algorithm, "warmup", 0) + 4, evaluate=1)
        run = go(
            commits=commits, evaluate=max(1, commits // EVALUATIONS), callback=look
        )
    if run.nit < commits:
        why = (
            f"its {BUDGET:g} seconds had passed"
            if run.status == "stopped"
            else run.message.rstrip(".")
        )
        out.say(f"{name}: ended at commit {run.nit:,} of {commits:,}: {why}.")
    return run
