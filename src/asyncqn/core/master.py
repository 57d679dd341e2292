"""The master's commit, which every engine and the replay share.

Nothing here knows of threads, sockets or clocks.  `Master` holds the iterate, commits updates in
the order it is given them, rejects updates that are not finite, and evaluates metrics.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.checkpoint import FINGERPRINT, Saved, flatten
from asyncqn.core.draws import Draws
from asyncqn.core.read_only import read_only
from asyncqn.core.stopping import TO_THE_END, Ended, Stopping
from asyncqn.core.table import Table
from asyncqn.core.worker_steps import explosion_limit
from asyncqn.errors import WorkerFailed, require
from asyncqn.kernels.vectors import inspect
from asyncqn.storage import GrowingRows, Log
from asyncqn.types import Algorithm, Array, Callback, Commit, Potential, Progress, Standing, extra

new_tuple = tuple.__new__
"""Makes a named tuple from a plain one in a third of the time: there are some at every commit."""


class Diverged(Exception):
    """The iterate exploded or updates were rejected again and again."""


class CallbackStopped(Exception):
    """The callback raised StopIteration: the run ends in good order."""


class CallbackFailed(Exception):
    """The callback raised another error, the cause of this one; the run ends in good order too."""


def potential_stopped(error: StopIteration, version: int) -> WorkerFailed:
    """A StopIteration out of the potential or the algorithm: not the callback's, so not a request to stop."""
    return WorkerFailed(
        f"the potential or the algorithm raised StopIteration on version {version} ({error}): only a "
        "callback stops a run by it."
    )


class Remembered:
    """A pure function of an array and numbers, which is called once for equal arguments in a row."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._last: tuple[tuple[Any, ...], Any] | None = None

    def __call__(self, argument: Array, *numbers: float) -> Any:
        key = (argument.tobytes(), *numbers)
        if self._last is None or self._last[0] != key:
            self._last = key, self._function(argument, *numbers)
        return self._last[1]


class Master:
    """Commits updates to the iterate and keeps what a `Run` reports of it.

    fingerprints: 32 bits of theta after every commit, by which a replay finds its first difference.
    A rejected update still takes its commit number; it just changes nothing.
    stopping: when to end by itself; whoever drives the master keeps `passes` where `max_passes` needs it.
    pause: entered around every evaluation, so that an engine's clock can stand still.
    alive: how many workers there are, for the callback's `Progress`.
    keep: every so many commits theta is kept for `Run.keep`.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        potential: Potential,
        theta0: Array,
        *,
        workers: int,
        last: int,
        evaluate: int,
        callback: Callback | None = None,
        stopping: Stopping = TO_THE_END,
        pause: Callable[[], AbstractContextManager[None]] = nullcontext,
        keep: int | None = None,
    ) -> None:
        self.stopping = stopping
        self.go_on_with(algorithm, potential)
        self.theta0 = theta0
        self.iterate = algorithm.init(theta0)
        self.version = 0
        self.last = last
        self.limit = explosion_limit(theta0)
        self.most_rejected = max(10, 2 * workers)
        self.evaluate_every = evaluate
        self.callback = callback
        self.passes = 0.0
        self.pause = pause
        self.keep = keep
        self._kept = GrowingRows(theta0.size, theta0.dtype)
        self.time = 0.0
        self.alive = workers
        self.rejected = 0
        self.rejected_in_a_row = 0
        self.fingerprints = array("I")
        self.records: list[dict[str, float]] = []
        self._columns: dict[str, None] = {}
        self._delays = self._delayed = 0
        """The sum of l_n over the updates since the callback was last called, and how many they are."""
        self._view_theta()

    def go_on_with(self, algorithm: Algorithm, potential: Potential) -> None:
        """Commit and evaluate by these from now on; `potential` stays the object that was given."""
        self.algorithm, self.potential = algorithm, potential
        self._asked = asked = read_only(potential)
        self._apply = algorithm.apply
        self._value: Callable[[Array], float] = lambda theta: float(asked.value(theta))
        self._standing: Callable[[Any], Standing | None] | None = extra(algorithm, "standing")
        made = extra(potential, "inverse_metric_from")
        self._inverse_metric_from = None if made is None else Remembered(made)
        rule = self.stopping
        by_slope = self._standing is not None and rule.tol is not None
        self._may_end = by_slope or rule.max_passes is not None or rule.max_time is not None

    def _view_theta(self) -> None:
        """Keep the views by which `inspect` reads the current theta, wherever the algorithm put it."""
        self._theta = self.iterate.theta
        self._words = self._theta.view(np.uint64 if self._theta.itemsize == 8 else np.uint32)

    def commit(self, updates: Sequence[Any | None], time: float, staleness: Sequence[int]) -> None:
        """Add one update, or the answers of a round, as the next version; `staleness` has l_n of each.

        Raises `Diverged`, `Ended`, and `CallbackStopped` or `CallbackFailed` where the callback raises.
        """
        if self.callback is not None:
            self._delays += sum(staleness)
            self._delayed += len(staleness)
        good: Sequence[Any] = updates
        if None in updates:
            kept = [(update, l_n) for update, l_n in zip(updates, staleness) if update is not None]
            good, staleness = [update for update, _ in kept], [l_n for _, l_n in kept]
            self.rejected += len(updates) - len(good)
            self.rejected_in_a_row += len(updates)
        version = self.version + 1
        if good:
            self.rejected_in_a_row = 0
            about = version, staleness, self._value, self._inverse_metric_from
            self.iterate = self._apply(self.iterate, good, new_tuple(Commit, about))
        self.version = version
        self.time = time
        if self.iterate.theta is not self._theta:
            self._view_theta()
        fingerprint, beyond = inspect(self._theta, self._words, self.limit)
        self.fingerprints.append(fingerprint)
        if beyond:
            raise Diverged(f"the iterate exploded at commit {version}")
        if self.rejected_in_a_row >= self.most_rejected:
            raise Diverged(
                f"{self.rejected_in_a_row} updates in a row were not finite, up to commit {version}"
            )
        if self.keep is not None and version % self.keep == 0:
            self._kept.append(self._theta)
        if version % self.evaluate_every == 0 or version == self.last:
            self.evaluate(time)
        if self._may_end:
            self.stop_where_due()

    def standing(self) -> Standing | None:
        """Where a method with exact gradients stands; None: it does not say."""
        return None if self._standing is None else self._standing(self.iterate)

    def stop_where_due(self) -> None:
        """Raise `Ended` where the run has what it was asked for, or may not go on."""
        rule = self.stopping
        if self._standing is not None and rule.tol is not None:
            standing = self._standing(self.iterate)
            if standing is not None and (ended := rule.ends_at(standing)) is not None:
                raise ended
        if rule.max_passes is not None and self.passes >= rule.max_passes:
            raise Ended("stopped", f"max_passes = {rule.max_passes:g} was reached")
        if rule.max_time is not None and self.time >= rule.max_time:
            raise Ended("stopped", f"max_time = {rule.max_time:g} has passed")

    def value(self, theta: Array) -> float:
        """U(theta) over all data."""
        return self._value(theta)

    def evaluate(self, time: float) -> None:
        """Add a row to the metric table and call the callback."""
        if self.records and self.records[-1]["commit"] == self.version:
            return
        with self.pause():
            self._evaluate(time)

    def _evaluate(self, time: float) -> None:
        theta = self.iterate.theta
        fun = self.value(theta)
        record: dict[str, float] = {"commit": self.version, "time": time, "fun": fun}
        optimum = extra(self.potential, "optimum")
        if optimum is not None:
            record["error"] = (fun - optimum) / abs(optimum) if optimum else fun - optimum
        metrics = extra(self._asked, "metrics")
        if metrics is not None:
            record.update({name: float(value) for name, value in metrics(theta).items()})
        if self._standing is not None and "grad_norm" not in record:
            standing = self.standing()
            record["grad_norm"] = math.nan if standing is None else standing.grad_norm
        self.records.append(record)
        self._columns.update(dict.fromkeys(record))
        if not np.isfinite(fun):
            raise Diverged(f"the objective is not finite at commit {self.version}")
        if self.callback is not None:
            delay = self._delays / max(1, self._delayed)
            self._delays = self._delayed = 0
            progress = Progress(self.version, time, theta.copy(), dict(record), delay, self.alive)
            try:
                self.callback(progress)
            except StopIteration:
                raise CallbackStopped from None
            except BaseException as error:
                raise CallbackFailed from error
        self._check_target(record)

    def _check_target(self, record: dict[str, float]) -> None:
        target, metric = self.stopping.target, self.stopping.metric
        if target is None:
            return
        require(
            metric in record,
            f"there is no metric '{metric}' to hold against the target; there are {', '.join(record)}.",
        )
        if record[metric] <= target:
            raise Ended("converged", f"{metric} is {record[metric]:.6g}, at or below the target {target:g}")

    def draws(self) -> Draws | None:
        """The iterates that were kept, where any were to be."""
        return None if self.keep is None else Draws(self.keep, self._kept.table())

    def metrics(self) -> Table:
        table = Table.from_records(self.records)
        return Table({n: c.astype(np.int64) if n == "commit" else c for n, c in table.items()})

    def save(self) -> Saved:
        """What a checkpoint keeps of the master: numbers, copies of its arrays, and what only grows."""
        document = {
            "commit": self.version,
            "last_time": self.time,
            "rejected": self.rejected,
            "rejected_in_a_row": self.rejected_in_a_row,
        }
        arrays = {**flatten("iterate", self.iterate), "theta0": self.theta0.copy()}
        columns = np.dtype([(name, "<f8") for name in self._columns])

        def metrics_between(start: int, stop: int) -> npt.NDArray[Any]:
            some = self.records[start:stop]
            return np.array([tuple(r.get(n, math.nan) for n in columns.names or ()) for r in some], columns)

        logs = {
            "fingerprints": Log(FINGERPRINT, len(self.fingerprints), self._fingerprints_between),
            "metrics": Log(columns, len(self.records), metrics_between),
        }
        return Saved(document, arrays, logs)

    def _fingerprints_between(self, start: int, stop: int) -> npt.NDArray[Any]:
        return np.array(self.fingerprints[start:stop], np.uint32).view(FINGERPRINT)

    def restore(self, saved: Saved) -> None:
        """Go on from a checkpoint."""
        document = saved.document
        self.version, self.time = saved.commit, float(document["last_time"])
        self.rejected, self.rejected_in_a_row = document["rejected"], document["rejected_in_a_row"]
        self.iterate = saved.tree("iterate", self.iterate)
        self.fingerprints = array("I", saved.arrays["fingerprints"].tolist())
        table = Table(saved.under("metrics."))
        self.records = [table.row(i) for i in range(table.rows)]
        self._columns = dict.fromkeys(table)
        self._view_theta()
