"""The fit of a recommender: a pass in batches, then exact passes while they pay, in one run.

All updates are added in a fixed order and nothing is stale (`StagedLBFGS` in step), so the model is the same,
bit for bit, on any number of threads.  A warm start skips the batches, whose large steps would destroy what
was learned.  All metrics come from the passes themselves, so the run evaluates nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asyncqn import Threads, minimize, starting_point
from asyncqn.errors import BadInput, require
from asyncqn.types import Array, Progress, Standing, Table
from asyncqn_recommender.data import Ratings, as_ratings
from asyncqn_recommender.feedback import FEEDBACKS, Feedback, Noting
from asyncqn_recommender.model import FactorModel
from asyncqn_recommender.staged import StagedLBFGS, in_step_algorithm

if TYPE_CHECKING:
    from asyncqn_recommender.estimator import Recommender

SHOWN = ("rmse", "validation_rmse", "validation_ndcg")
"""The metrics that are shown during a fit, where they are known."""


def learn(
    p: Recommender,
    train: Ratings,
    held: Ratings | None,
    old: FactorModel | None,
    callback: Callable[[Progress], Any] | None,
) -> tuple[FactorModel, Table, int, str, float]:
    """Fit factors to `train`, watching `held`, from the start or from the model `old`.

    Returns the model, the table of metrics, the commits, the status, and the objective.
    """
    task = FEEDBACKS[p.feedback](p, train, held)
    problem = task.problem
    problem.threads = int(p.workers)
    algorithm = in_step_algorithm(problem, len(train) / train.n_items)
    if old is not None:
        # The large steps of the warm-up would undo what was learned.
        algorithm = replace(algorithm, warmup=0)
    watch = Watch(p, task, held is not None, algorithm, callback)
    # The warm-up is a pass over the ratings as well.
    passes = max(1, int(p.passes) - (algorithm.warmup > 0))
    commits = algorithm.warmup + passes
    run = minimize(
        problem,
        algorithm,
        engine=Threads(p.workers),
        theta0=_start(p, problem, train, old),
        commits=commits,
        seed=p.seed,
        evaluate=0,  # every metric comes from a pass
        callback=watch,
        stop=watch.after_pass,
        check=False,
        progress=False,
    )
    if run.status == "diverged":
        raise BadInput(
            f"the fit diverged ({run.message.rstrip('.')}): increase prior or alpha."
        )
    model = task.model(watch.best.theta)
    history = Table.from_records(watch.records)
    return (
        model,
        history,
        run.nit,
        watch.reason or run.status,
        watch.best.metrics["fun"],
    )


def _start(
    p: Recommender, problem: Noting, train: Ratings, old: FactorModel | None
) -> Array:
    """Return the problem's own start, with the old rows of items that were known before."""
    theta = starting_point(problem, None, p.seed)
    if old is not None:
        require(
            old.item_factors.shape[1] == p.rank
            and old.residual == bool(p.offsets)
            and (old.confidence is None) == (p.feedback == "explicit"),
            "a warm start needs the rank, the offsets and feedback of the last fit: set warm_start=False.",
        )
        # Items may have other indices than in the last fit, so that rows are found by their ids.
        place = old.item_index(train.item_ids)
        # A row that was never rated has shrunk to 0, which is a bad start for new ratings.
        known = (place >= 0) & (
            (old.offsets.item_counts[place] > 0) | (problem.item_counts == 0)
        )
        theta.reshape(-1, problem.rank)[known] = old.item_factors[place[known]]
    return theta


class Watch:
    """Shows progress, keeps the best iterate, and ends a fit that no longer improves.

    The best iterate has the lowest objective or, with early stopping, the best metric on held-out data.
    """

    best: Progress

    def __init__(
        self,
        p: Recommender,
        task: Feedback,
        holds: bool,
        algorithm: StagedLBFGS,
        callback: Callable[[Progress], Any] | None,
    ) -> None:
        self.p = p
        self.task = task
        self.problem = task.problem
        self.callback = callback
        # Ratings and clicks have objectives of different scales, so that each has its own default.
        self.tol = task.default_tol if p.tol is None else p.tol
        self.n_ratings = len(self.problem.by_user.values)
        self.holds = holds
        self.by_held = holds and p.early_stopping
        self.warm_up = algorithm.warmup
        self.blocks = algorithm.blocks
        self.begun = time.perf_counter()
        # `idle` counts the successive passes without a gain.
        self.passes = self.idle = 0
        self.lowest = math.inf
        self.value = math.inf
        self.errors: dict[str, float] = {}
        self.reason = ""
        self.records: list[dict[str, float]] = []

    def __call__(self, progress: Progress) -> None:
        """Record the start, which is all that the run evaluates; the end is known from the last pass."""
        self._note(progress, 0.0)

    def after_pass(self, standing: Standing) -> str | None:
        """Record a pass; return why the run ends, or None to continue."""
        self.passes += 1
        shown = self._shown(standing)
        metrics = {"fun": standing.value, **shown, "grad_norm": standing.grad_norm}
        commit = self.warm_up + self.passes
        passed = time.perf_counter() - self.begun
        # A copy, because the run overwrites the point in its next step.
        progress = Progress(
            commit, passed, standing.point.copy(), metrics, 0.0, self.p.workers
        )
        # The warm-up counts as one pass, because its batches cover the ratings once.
        self._note(progress, self.passes + (self.warm_up > 0))
        if self.idle < self.p.patience:
            return None
        self.reason = "stopped early" if self.by_held else "converged"
        return "further passes gain nothing"

    def _shown(self, standing: Standing) -> dict[str, float]:
        """Return the errors at the last accepted point, computed again when its value has changed."""
        problem = self.problem
        if standing.value != self.value:
            self.value = standing.value
            n = problem.n_data
            first_rows = [part * n // self.blocks for part in range(self.blocks)]
            self.errors = problem.errors(standing.point, first_rows)
        return self.errors

    def _note(self, progress: Progress, passes: float) -> None:
        metrics = dict(progress.metrics)
        if self.holds:
            metrics[self.task.held_name] = self.task.held(progress.theta)
        metrics |= {"commit": progress.commit, "time": progress.time, "passes": passes}
        self.records.append(metrics)
        progress = progress._replace(metrics=metrics)
        # sqrt(2 U / n) is the RMSE with its penalty: it decreases where the RMSE alone may rise.
        level = math.sqrt(2.0 * metrics["fun"] / self.n_ratings)
        if self.by_held:
            level = self.task.loss(metrics[self.task.held_name])
        # The first point has nothing to improve on: inf - level is a gain.
        self.idle = 0 if self.lowest - level >= self.tol else self.idle + 1
        if level < self.lowest:
            self.lowest = level
            self.best = progress
        if self.p.verbose:
            shown = (f"{name} {metrics[name]:.4f}" for name in SHOWN if name in metrics)
            print(
                f"commit {progress.commit}: {', '.join(shown) or f'objective {level:.4f}'}",
                flush=True,
            )
        if self.callback is not None:
            self.callback(progress)


def pairs(table: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return users and items of an n x 2 array."""
    table = np.asarray(table)
    require(
        table.ndim == 2 and table.shape[1] == 2,
        f"pairs must be an n x 2 array of users and items, not of shape {table.shape}.",
    )
    return table[:, 0], table[:, 1]


def rating_table(
    ratings: Any,
    y: Any = None,
    duplicates: str | None = None,
    *,
    clicks: bool = False,
    **names: str | None,
) -> Ratings:
    """Return ratings in any form that `as_ratings` takes, or from pairs with ratings `y`; at least one.

    With `clicks`, pairs need no `y`.  `names` are columns by their roles user, item, rating and time.
    """
    if y is not None:
        # scikit-learn's cross-validation passes X as pairs and y as ratings.
        ratings = (*pairs(ratings), y)
    elif clicks and isinstance(ratings, np.ndarray):
        ratings = pairs(ratings)
    found = as_ratings(ratings, duplicates=duplicates, clicks=clicks, **names)
    require(len(found) > 0, "there are no ratings: give at least one.")
    return found


def matched(ratings: Ratings, train: Ratings) -> Ratings:
    """Return `ratings` in the tables of `train`, without those of unknown users and items."""
    users = train.user_index(ratings.user_ids)[ratings.users]
    items = train.item_index(ratings.item_ids)[ratings.items]
    # Factors say nothing about the others, and the baseline that predicts them does not change in a fit.
    keep = (users >= 0) & (items >= 0)
    require(
        bool(keep.any()),
        "no validation rating is of a user and an item of the training ratings: give some that are.",
    )
    columns = (
        users[keep].astype(np.int32),
        items[keep].astype(np.int32),
        ratings.values[keep],
    )
    return Ratings(*columns, train.user_ids, train.item_ids, train.titles)
