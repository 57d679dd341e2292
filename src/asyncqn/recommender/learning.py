"""How a recommender learns: a pass in batches, then exact passes while they pay, in one run.

All answers are added up in a fixed order and nothing is stale (`StagedLBFGS` in step), so that the model is
the same, bit for bit, on any number of threads.  A warm start skips the batches, whose large steps would
forget what was learned.  What is watched comes from the passes themselves: the run evaluates nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.defaults import TOLERANCE
from asyncqn.algorithms.quasi_newton.staged_lbfgs import StagedLBFGS, in_step_algorithm
from asyncqn.core.master import CallbackFailed
from asyncqn.core.request import Request
from asyncqn.core.stopping import Ended, Stopping
from asyncqn.core.table import Table
from asyncqn.data import Ratings, as_ratings
from asyncqn.engines.threads import Threads
from asyncqn.errors import BadInput, require
from asyncqn.minimize import starting_point
from asyncqn.potentials.factorization.profiled_factorization import ProfiledFactorization
from asyncqn.recommender.model import FactorModel, Offsets, column_ridges, measure_offsets, rated_items
from asyncqn.types import Array, Progress, Rows, Standing


class Parameters(Protocol):
    """What `learn` reads of a `Recommender`."""

    rank: int
    workers: int
    seed: int
    prior: float
    alpha: float
    plain_columns: int | None
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

    potential = Observed.from_ratings(
        target(train), int(p.rank), prior=p.prior, alpha=p.alpha, dtype=p.dtype,
        columns=column_ridges(int(p.rank), p.plain_columns, train),
        test=None if held is None else target(held), seed=p.seed,
    )  # fmt: skip
    algorithm = in_step_algorithm(potential)
    if old is not None:
        algorithm = replace(algorithm, warmup=0)
    watch = Watch(p, potential, algorithm, callback)
    passes = max(1, int(p.passes) - (algorithm.warmup > 0))
    commits = algorithm.warmup + passes
    run = Threads(p.workers).minimize(
        Request(
            potential, algorithm, _start(p, potential, train, old), commits, p.seed,
            evaluate=commits, callback=watch, stopping=PassRule(watch),
        )
    )  # fmt: skip
    if run.status == "diverged":
        raise BadInput(f"the fit diverged ({run.message.rstrip('.')}): raise prior or alpha.")
    return Learned(
        _model(p, potential, offsets, train, watch.best.theta),
        Table.from_records(watch.records),
        run.nit,
        watch.reason or run.status,
        watch.best.metrics["fun"],
    )


class Observed(ProfiledFactorization):
    """The potential, which notes the squared errors of every block in passing."""

    def __init__(self, *columns: Any, **options: Any) -> None:
        super().__init__(*columns, **options)
        self.squares: dict[int, float] = {}

    def _gradient(
        self, theta: Array, rows: Rows, scale: float, out: Array, second: Array | None = None
    ) -> tuple[float, float, int]:
        found = super()._gradient(theta, rows, scale, out, second)
        if second is not None:
            self.squares[int(rows[0])] = found[0]
        return found


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
        clip=bool(p.clip), columns=potential.columns.astype(np.float64),
    )  # fmt: skip


class Watch:
    """Shows progress, keeps the best iterate, and ends a fit that gains nothing more.

    The best is the lowest objective, or with early stopping the lowest held-out RMSE.
    """

    best: Progress

    def __init__(
        self,
        p: Parameters,
        potential: Observed,
        algorithm: StagedLBFGS,
        callback: Callable[[Progress], Any] | None,
    ) -> None:
        self.p, self.potential, self.callback = p, potential, callback
        self.n_ratings = len(potential.by_user.values)
        self.by_held = potential.test is not None and p.early_stopping
        self.warm_up, self.blocks = algorithm.warmup, algorithm.blocks
        self.begun = time.perf_counter()
        self.passes = self.idle = 0
        self.lowest, self.value = math.inf, math.inf
        self.reason = ""
        self.records: list[dict[str, float]] = []

    def __call__(self, progress: Progress) -> None:
        """The start, evaluated by the run; the end is known from the last pass."""
        if progress.commit == 0:
            self._note(progress, 0.0)

    def after_pass(self, standing: Standing) -> Ended | None:
        """A pass has been judged, and the run stands so; how it ends, None where it goes on."""
        self.passes += 1
        metrics = {"fun": standing.value, "rmse": self._rmse(standing), "grad_norm": standing.grad_norm}
        if self.potential.test is not None:
            metrics["test_rmse"] = self.potential.test_rmse(standing.point, self.p.workers)
        commit, passed = self.warm_up + self.passes, time.perf_counter() - self.begun
        progress = Progress(commit, passed, standing.point.copy(), metrics, 0.0, self.p.workers)
        try:
            self._note(progress, self.passes + (self.warm_up > 0))
        except StopIteration:
            return Ended("stopped", "the callback has stopped the fit")
        except BaseException as error:
            raise CallbackFailed from error
        if self.idle < self.p.patience:
            return None
        self.reason = "stopped early" if self.by_held else "converged"
        return Ended("converged", "further passes gain nothing")

    def _rmse(self, standing: Standing) -> float:
        """Of the last point kept, whose errors the blocks have noted if it is the latest one."""
        if standing.value == self.value:
            return self.records[-1]["rmse"]
        self.value = standing.value
        n = self.potential.n_data
        squares = sum(self.potential.squares[part * n // self.blocks] for part in range(self.blocks))
        return math.sqrt(squares / self.n_ratings)

    def _note(self, progress: Progress, passes: float) -> None:
        metrics = {"validation_rmse" if k == "test_rmse" else k: v for k, v in progress.metrics.items()}
        metrics |= {"commit": progress.commit, "time": progress.time, "passes": passes}
        self.records.append(metrics)
        progress = progress._replace(metrics=metrics)
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


class PassRule(Stopping):
    """Ends a run as its `Watch` says, which sees every pass."""

    watch: Watch

    def __init__(self, watch: Watch) -> None:
        super().__init__(tol=TOLERANCE)
        object.__setattr__(self, "watch", watch)

    def ends_at(self, standing: Standing) -> Ended | None:
        return self.watch.after_pass(standing) or super().ends_at(standing)


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
