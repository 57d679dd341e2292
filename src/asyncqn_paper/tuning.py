"""Search for parameters of the paper's three methods with Optuna: the simulated time to a target.

`python -m asyncqn_paper.tuning as-lbfgs rows-alike-8 --trials 80` continues the study of that name in
a SQLite file, so an interrupted search loses at most one trial and several shells can share one search.
PROBLEM is a problem of Fig. 2 or a set of ratings.  What is searched has no unit: the step is relative to the
largest curvature L at a starting point and to the number of workers W, so a point means the same on another
problem.

The studies in `tuned/`, whose parameters Fig. 2 uses, were made by the search of commit 4cf3ee5.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from asyncqn import Cluster, Simulator, minimize, starting_point
from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.lab import largest_curvature
from asyncqn.types import Problem
from asyncqn_paper import movielens
from asyncqn_paper.measuring import commits_within
from asyncqn_paper.problems import PROBLEMS
from asyncqn_paper.settings import NAMES, PAPER, algorithm, cluster

TUNED = Path(__file__).resolve().parent / "tuned"
"""The studies that come with the package."""
SEED = 1_000_000
"""Seeds of trials start here, far from those of figures and tests."""
TOO_SLOW = math.e
"""Factor on the limit that stands for the time of a run that does not arrive."""


def tuned(name: str) -> dict[str, Any]:
    """Return the best parameters of a study that comes with the package."""
    path = TUNED / f"{name}.json"
    if not path.is_file():
        raise BadInput(f"there is no study {path.name} in {TUNED.name}.")
    parameters: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["best"][
        "parameters"
    ]
    return parameters


class Goal(NamedTuple):
    """A metric of a problem that has to fall to a target, before the simulated time `limit`."""

    problem: Problem
    cluster: Cluster
    printed: dict[str, Any]
    """The paper's parameters for the method."""
    metric: str
    target: float
    limit: float


def goal_of(kind: str, name: str, workers: int | None = None) -> Goal:
    """Return the goal that belongs to a problem of Fig. 2, or to a set of ratings."""
    require(
        kind in NAMES,
        f"there is no method '{kind}' to tune; there are {', '.join(NAMES)}.",
    )
    if name in PROBLEMS:
        machines = cluster(kind, workers or 40, 200.0)
        return Goal(
            PROBLEMS[name].model(), machines, PAPER[kind], "error", 0.05, 9000.0
        )
    problem = movielens.model(name)
    printed = movielens.parameters(movielens.size_of(name), problem.n_data)[kind]
    machines = movielens.measured_cluster(movielens.TIMINGS[kind], workers or 10)
    return Goal(problem, machines, printed, "rmse", 0.91, 0.5)


def suggest(trial: Any, kind: str, goal: Goal) -> dict[str, Any]:
    """Return the parameters of a trial; memory, batch and overlap stay those of the paper."""
    # At a starting point, because the search must not know where the minimum is.
    L = largest_curvature(goal.problem, starting_point(goal.problem, None, SEED))
    W = goal.cluster.workers
    own = dict(goal.printed)
    r = trial.suggest_float("r", 2e-3, 20.0, log=True)
    if kind == "async-sgd":
        # h L = 1.6 / W is the limit of stability under equal delays (`asyncqn.lab.delay_limit`).
        return own | {"h": r / (L * W)}
    rho = trial.suggest_float("rho", 1e-2, 1e6, log=True) / L if "rho" in own else 0.0
    own["epsilon"] = trial.suggest_float("epsilon", 1e-4, 1e2, log=True) * L
    own["cosine_floor"] = trial.suggest_categorical("cosine_floor", (0.0, 0.3, 0.5))
    own["rho"] = rho
    if kind == "mb-lbfgs":
        step = float(goal.cluster.means().mean())
        own["timeout"] = step * trial.suggest_float("timeout", 0.1, 10.0, log=True)
        own["quorum"] = trial.suggest_float("quorum", 0.1, 1.0)
        # The step is about r where pairs dominate H, and r g / L where rho does.
        return own | {"h": r / (1.0 + rho * L)}
    # Stale friction is stable up to about 1.6 / W; beyond 1 the momentum changes its sign.
    own["gamma"] = min(1.0, trial.suggest_float("gamma", 0.05, 2.0, log=True) / W)
    scale = 1.0 / L
    own["initial_scale"] = "pair"
    if trial.suggest_categorical("H0", ("fixed", "pair")) == "fixed":
        scale = L ** -trial.suggest_float("power", 0.0, 1.1)
        own["initial_scale"] = scale
    # r is of order one at the limit of stability where H0 = c I matches the bulk of the curvature.
    return own | {"h": r * own["gamma"] * scale / (2.0 * W * (rho + scale) ** 2)}


def time_to(goal: Goal, kind: str, parameters: dict[str, Any], seed: int) -> float:
    """Return the simulated time until the goal is reached; `TOO_SLOW` limits if it is not."""
    method = algorithm(kind, parameters)
    run = minimize(
        goal.problem,
        method,
        engine=Simulator(goal.cluster),
        commits=commits_within(method, goal.cluster, goal.limit),
        seed=seed,
        max_time=goal.limit,
        metric=goal.metric,
        target=goal.target,
        # A round computes W gradients, so every one is evaluated.
        evaluate=1 if method.stages[0].waits else 5,
        check=False,
        progress=False,
    )
    last = run.metrics.row(run.metrics.rows - 1)
    arrived = last[goal.metric] <= goal.target and last["time"] <= goal.limit
    return float(last["time"]) if arrived else TOO_SLOW * goal.limit


def search(
    kind: str, name: str, trials: int, storage: Path, workers: int | None = None
) -> Any:
    """Add trials to the Optuna study of a method on a problem, and return the study.

    The value of a trial is the mean logarithm of the time to the goal over three seeds, which all trials
    share; a trial whose first seeds are slower than the median of the others is pruned.
    """
    try:
        import optuna
    except ImportError:
        raise MissingExtra("optuna", "tune", "tuning") from None
    goal = goal_of(kind, name, workers)

    def value(trial: Any) -> float:
        parameters = suggest(trial, kind, goal)
        trial.set_user_attr("parameters", parameters)
        total = 0.0
        for k in range(3):
            total += math.log(time_to(goal, kind, parameters, SEED + k))
            trial.report(total / (k + 1), k)
            if trial.should_prune():
                raise optuna.TrialPruned
        return total / 3

    storage.parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name=f"{kind} {name} {goal.cluster.workers}",
        storage=f"sqlite:///{storage}",
        sampler=optuna.samplers.TPESampler(),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=12),
        load_if_exists=True,
    )
    study.optimize(value, n_trials=trials)
    return study


def main(
    kind: Annotated[
        str, typer.Argument(metavar="METHOD", help="async-sgd, mb-lbfgs or as-lbfgs.")
    ],
    problem: Annotated[
        str, typer.Argument(help="A problem of Fig. 2, or a set of ratings.")
    ],
    trials: Annotated[int, typer.Option(min=1, help="Number of trials.")] = 80,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers.  [40; with ratings 10]")
    ] = None,
    storage: Annotated[Path, typer.Option(help="SQLite file of the studies.")] = Path(
        "runs/tuned.db"
    ),
) -> None:
    """Search parameters by simulated time to a target."""
    best = search(kind, problem, trials, storage, workers).best_trial
    typer.echo(
        json.dumps(
            {"time": math.exp(best.value), "parameters": best.user_attrs["parameters"]}
        )
    )


if __name__ == "__main__":
    typer.run(main)
