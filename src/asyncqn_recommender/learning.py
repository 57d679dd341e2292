"""The fit of a recommender: a pass in batches, then exact passes while they pay, in one run.

All updates are added in a fixed order and nothing is stale (`StagedLBFGS`), so the model is the same, bit for
bit, on any number of threads.  A warm start skips the batches, whose large steps would destroy what was
learned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncqn import Threads, minimize, starting_point
from asyncqn.errors import BadInput, require
from asyncqn.types import Array, Progress, Standing, Table
from asyncqn_recommender.data import Ratings
from asyncqn_recommender.feedback import FEEDBACKS, Feedback
from asyncqn_recommender.model import FactorModel
from asyncqn_recommender.staged import staged_algorithm

if TYPE_CHECKING:
    from asyncqn_recommender.estimator import Recommender

BLOCKS = 8
"""Blocks of a pass, whatever the number of workers: the sums then have the same order everywhere."""
SHOWN = ("loss", "validation_rmse", "validation_ndcg")
"""The metrics that are shown during a fit, where they are known."""


class Learned(NamedTuple):
    """The result of a fit."""

    model: FactorModel
    history: Table
    commits: int
    status: str
    fun: float


def learn(
    p: Recommender,
    train: Ratings,
    held: Ratings | None,
    old: FactorModel | None,
    callback: Callable[[Progress], Any] | None,
) -> Learned:
    """Fit factors to `train`, watching `held`, from the start or from the model `old`."""
    task = FEEDBACKS[p.feedback](p, train, held)
    algorithm = staged_algorithm(task.problem, BLOCKS, len(train) / train.n_items)
    if old is not None:
        # The large steps of the warm-up would undo what was learned.
        algorithm = replace(algorithm, warmup=0)
    watch = TrainingWatch(p, task, algorithm.warmup, callback)
    # The warm-up is a pass over the ratings as well.
    passes = max(1, int(p.passes) - (algorithm.warmup > 0))
    run = minimize(
        task.problem,
        algorithm,
        # Threads share the ratings; the result does not depend on their number.
        engine=Threads(p.workers),
        theta0=_start(p, task, old),
        commits=algorithm.warmup + passes,
        seed=p.seed,
        # Whatever is worth knowing comes with a pass; the run evaluates its start alone.
        evaluate=0,
        callback=watch.note_start,
        stop=watch.after_pass,
        check=False,
        progress=False,
    )
    if run.status == "diverged":
        raise BadInput(
            f"the fit diverged ({run.message.rstrip('.')}): increase prior or alpha."
        )
    best = watch.best
    history = Table.from_records(watch.records)
    status = watch.reason or run.status
    return Learned(
        task.model(best.theta), history, run.nit, status, best.metrics["fun"]
    )


def _start(p: Recommender, task: Feedback, old: FactorModel | None) -> Array:
    """Return the problem's own start, with the old rows of items that were known before."""
    theta = starting_point(task.problem, None, p.seed)
    if old is not None:
        require(
            old.item_factors.shape[1] == p.rank
            and (old.confidence is None) == (p.feedback == "explicit"),
            "a warm start needs the rank and the feedback of the last fit: set "
            "warm_start=False.",
        )
        # Items may have other indices than in the last fit, so that rows are found by their ids.
        place = old.item_index(task.train.item_ids)
        # A row that was never rated has shrunk to 0, which is a bad start for new ratings.
        rated = old.offsets.item_counts[place] > 0
        known = (place >= 0) & (rated | (task.problem.item_counts == 0))
        rows = theta.reshape(-1, task.problem.rank)
        rows[known] = old.item_factors[place[known]]
    return theta


class TrainingWatch:
    """Shows progress, keeps the best iterate, and ends a fit that no longer improves.

    The best iterate has the lowest objective or, with early stopping, the best metric on held-out data.
    """

    best: Progress

    def __init__(
        self,
        p: Recommender,
        task: Feedback,
        warm_up: int,
        callback: Callable[[Progress], Any] | None,
    ) -> None:
        self.p = p
        self.task = task
        self.warm_up = warm_up
        self.callback = callback
        # Ratings and clicks have objectives of different scales, so that each has its own default.
        self.tol = task.default_tol if p.tol is None else p.tol
        self.by_held = task.held is not None and p.early_stopping
        self.begun = time.perf_counter()
        self.passes = 0
        self.idle = 0
        """Successive passes without a gain."""
        self.lowest = math.inf
        self.reason = ""
        self.records: list[dict[str, float]] = []

    def note_start(self, progress: Progress) -> None:
        """Record the start, which is all that the run evaluates; the end is known from the last pass."""
        known = {name: progress.metrics[name] for name in ("fun", "grad_norm")}
        self._note(progress._replace(metrics=known), 0)

    def after_pass(self, standing: Standing) -> str | None:
        """Record a pass; return why the run ends, or None to continue."""
        self.passes += 1
        metrics = {"fun": standing.value, "grad_norm": standing.grad_norm}
        commit = self.warm_up + self.passes
        passed = time.perf_counter() - self.begun
        # A copy, because the run overwrites the point in its next step.
        point = standing.point.copy()
        progress = Progress(commit, passed, point, metrics, 0.0, self.p.workers)
        # The warm-up counts as one pass, because its batches cover the ratings once.
        self._note(progress, self.passes + (self.warm_up > 0))
        if self.idle < self.p.patience:
            return None
        self.reason = "stopped early" if self.by_held else "converged"
        return "further passes gain nothing"

    def _note(self, progress: Progress, passes: int) -> None:
        metrics = dict(progress.metrics)
        # The RMSE with its penalty, which decreases where the RMSE alone may rise.
        n = len(self.task.train)
        level = metrics["loss"] = math.sqrt(2.0 * metrics["fun"] / n)
        if self.task.held is not None:
            held = metrics[self.task.held_name] = self.task.held_metric(progress.theta)
            if self.by_held:
                level = self.task.held_sign * held
        metrics |= {"commit": progress.commit, "time": progress.time, "passes": passes}
        self.records.append(metrics)
        progress = progress._replace(metrics=metrics)
        # The first point has nothing to improve on: inf - level is a gain.
        self.idle = 0 if self.lowest - level >= self.tol else self.idle + 1
        if level < self.lowest:
            self.lowest = level
            self.best = progress
        if self.p.verbose:
            shown = (f"{name} {metrics[name]:.4f}" for name in SHOWN if name in metrics)
            print(f"commit {progress.commit}: {', '.join(shown)}", flush=True)
        if self.callback is not None:
            self.callback(progress)


def matched(ratings: Ratings, train: Ratings) -> Ratings:
    """Return `ratings` in the tables of `train`, without those of unknown users and items."""
    users = train.user_index(ratings.user_ids)[ratings.users]
    items = train.item_index(ratings.item_ids)[ratings.items]
    # Factors say nothing about the others, and the baseline that predicts them does not change in a fit.
    keep = (users >= 0) & (items >= 0)
    require(
        bool(keep.any()),
        "no validation rating is of a user and an item of the training ratings: give "
        "some that are.",
    )
    return Ratings(
        users[keep].astype(np.int32),
        items[keep].astype(np.int32),
        ratings.values[keep],
        train.user_ids,
        train.item_ids,
        train.titles,
    )
