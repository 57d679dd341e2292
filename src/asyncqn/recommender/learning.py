"""How a recommender learns: a stochastic warm-up by asynchronous workers, then exact passes while they pay.

The warm-up is one run and the passes are another, because a commit of the first is a small part of a
pass and a commit of the second is a whole one: only the second is worth an evaluation each.  A warm
start skips the first, whose large steps would forget what was learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.quasi_newton.staged_lbfgs import default_factorization_algorithm
from asyncqn.core.run import Run
from asyncqn.core.table import Table
from asyncqn.data import Ratings, as_ratings
from asyncqn.engines.threads import Threads
from asyncqn.errors import BadInput, require
from asyncqn.minimize import minimize, starting_point
from asyncqn.potentials.factorization.profiled_factorization import ProfiledFactorization
from asyncqn.recommender.model import FactorModel, Offsets, measure_offsets, rated_items
from asyncqn.types import Array, Progress

WARM_UP_LOOKS = 4
"""Evaluations in the warm-up, which are there to be watched and stop nothing."""


class Parameters(Protocol):
    """What `learn` reads of a `Recommender`."""

    rank: int
    workers: int
    seed: int
    prior: float
    alpha: float
    offsets: bool
    trust: float
    clip: bool
    passes: int
    tol: float
    early_stopping: bool
    patience: int
    dtype: str
    verbose: bool


class Learned(NamedTuple):
    """The model, the table of metrics, commits, why it ended, and the objective."""

    model: FactorModel
    history: Table
    commits: int
    status: str
    fun: float


def learn(
    p: Parameters,
    train: Ratings,
    held: Ratings | None,
    old: FactorModel | None,
    callback: Callable[[Progress], Any] | None,
) -> Learned:
    """Fit factors to `train`, watching `held`, from the start or from the model `old`."""
    offsets = measure_offsets(train)

    def target(part: Ratings) -> Ratings:
        if not p.offsets:
            return part
        return replace(part, values=(part.values - offsets.at(part.users, part.items)).astype(np.float32))

    potential = ProfiledFactorization.from_ratings(
        target(train), int(p.rank), prior=p.prior, alpha=p.alpha, dtype=p.dtype,
        test=None if held is None else target(held), seed=p.seed,
    )  # fmt: skip
    watch = Watch(p, len(train), held is not None, callback)
    algorithm = default_factorization_algorithm(potential, p.workers)
    theta = _start(p, potential, train, old)
    runs: list[Run] = []
    stages = [(replace(algorithm, warmup=0), int(p.passes), 1)]
    if old is None and algorithm.warmup:
        stages[0] = (stages[0][0], max(1, int(p.passes) - 1), 1)
        stages.insert(0, (algorithm, algorithm.warmup, -(-algorithm.warmup // WARM_UP_LOOKS)))
    for method, commits, evaluate in stages:
        watch.begin(runs, method.batches if method.warmup else 1)
        run = minimize(
            potential, method, engine=Threads(p.workers), theta0=theta, commits=commits, seed=p.seed,
            evaluate=evaluate, callback=watch,
        )  # fmt: skip
        if run.status == "diverged":
            raise BadInput(f"the fit diverged ({run.message.rstrip('.')}): raise prior or alpha.")
        theta = run.theta
        runs.append(run)
        if run.status != "completed":
            break
    best = watch.best
    return Learned(
        _model(p, potential, offsets, train, best.theta),
        Table.from_records(watch.records),
        sum(run.nit for run in runs),
        watch.reason or runs[-1].status,
        best.metrics["fun"],
    )


def _start(p: Parameters, potential: ProfiledFactorization, train: Ratings, old: FactorModel | None) -> Array:
    """The potential's own start, or what was learned before, row by row where the item was known."""
    theta = starting_point(potential, None, p.seed)
    if old is not None:
        require(
            old.item_factors.shape[1] == p.rank and old.residual == bool(p.offsets),
            "A warm start needs the rank and the offsets of the fit before: set warm_start=False.",
        )
        place = old.item_index(train.item_ids)
        # A row that was never rated has shrunk to 0, from where new ratings had better not start.
        known = (place >= 0) & ((old.offsets.item_counts[place] > 0) | (potential.item_counts == 0))
        theta.reshape(-1, potential.rank)[known] = old.item_factors[place[known]]
    return theta


def _model(
    p: Parameters, potential: ProfiledFactorization, offsets: Offsets, train: Ratings, theta: Array
) -> FactorModel:
    return FactorModel(
        item_factors=theta.reshape(-1, potential.rank),
        user_factors=potential.user_factors(theta, p.workers),
        offsets=offsets, user_ids=train.user_ids, item_ids=train.item_ids, titles=train.titles,
        seen=rated_items(train),
        lowest=float(train.values.min()), highest=float(train.values.max()),
        prior=float(p.prior), alpha=float(p.alpha), residual=bool(p.offsets), trust=float(p.trust),
        clip=bool(p.clip),
    )  # fmt: skip


class Watch:
    """Shows progress, keeps the best iterate, and ends a fit that gains nothing more.

    The best is the lowest objective, or with early stopping the lowest held-out RMSE: the last
    iterate may be a trial step that was about to be taken back.
    """

    best: Progress

    def __init__(
        self, p: Parameters, n_ratings: int, held: bool, callback: Callable[[Progress], Any] | None
    ) -> None:
        self.p, self.callback = p, callback
        self.n_ratings, self.by_held = n_ratings, held and p.early_stopping
        self.lowest = math.inf
        self.reason = ""
        self.records: list[dict[str, float]] = []

    def begin(self, before: list[Run], batches: int) -> None:
        """A run begins, after those `before`; `batches` commits of it are a pass."""
        self.commit, self.time = sum(run.nit for run in before), sum(run.time for run in before)
        self.passes = self.records[-1]["passes"] if self.records else 0.0
        self.batches, self.idle = batches, 0

    def __call__(self, progress: Progress) -> None:
        metrics = {"validation_rmse" if k == "test_rmse" else k: v for k, v in progress.metrics.items()}
        metrics["commit"], metrics["time"] = self.commit + progress.commit, self.time + progress.time
        metrics["passes"] = self.passes + progress.commit / self.batches
        if self.records and metrics["commit"] == self.records[-1]["commit"]:
            return  # the second run begins where the first has ended
        self.records.append(metrics)
        progress = progress._replace(
            commit=self.commit + progress.commit, time=metrics["time"], metrics=metrics
        )
        # sqrt(2 U / n) is the RMSE with its penalty: it falls where the RMSE alone may rise.
        level = (
            metrics["validation_rmse"] if self.by_held else math.sqrt(2.0 * metrics["fun"] / self.n_ratings)
        )
        self.idle = 0 if self.lowest - level >= self.p.tol else self.idle + 1
        if level < self.lowest:
            self.lowest, self.best = level, progress
        if self.p.verbose:
            rmses = (f"{name} {metrics[name]:.4f}" for name in ("rmse", "validation_rmse") if name in metrics)
            print(f"commit {progress.commit}: {', '.join(rmses)}", flush=True)
        if self.callback is not None:
            self.callback(progress)
        if self.batches == 1 and self.idle >= self.p.patience:
            self.reason = "stopped early" if self.by_held else "converged"
            raise StopIteration


def pairs(table: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Users and items out of an n x 2 array."""
    table = np.asarray(table)
    require(
        table.ndim == 2 and table.shape[1] == 2,
        f"pairs must be an n x 2 array of users and items, not of shape {table.shape}.",
    )
    return table[:, 0], table[:, 1]


def rating_table(ratings: Any, y: Any = None, duplicates: str | None = None) -> Ratings:
    """Ratings in any form `as_ratings` takes, or pairs with their ratings `y`; at least one."""
    rows = ratings if y is None else (*pairs(ratings), y)
    found = as_ratings(rows, duplicates=duplicates)
    require(len(found) > 0, "there are no ratings: give at least one.")
    return found


def matched(ratings: Ratings, train: Ratings) -> Ratings:
    """`ratings` in the tables of `train`, less those of unknown users and items."""
    users = train.user_index(ratings.user_ids)[ratings.users]
    items = train.item_index(ratings.item_ids)[ratings.items]
    keep = (users >= 0) & (items >= 0)
    require(bool(keep.any()), "no validation rating is of a user and an item of the training ratings.")
    columns = users[keep].astype(np.int32), items[keep].astype(np.int32), ratings.values[keep]
    return Ratings(*columns, train.user_ids, train.item_ids, train.titles)
