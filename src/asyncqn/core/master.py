"""The master's commit, which every engine and the replay share.

`Master` holds the iterate, commits updates in the order in which it receives them, rejects updates that are
not finite, and evaluates metrics.  Nothing here knows of threads, sockets or clocks: that is what makes one
class serve the simulator, the real engines and the replay, with the same bits.

Read `commit` first, then `stop_where_due` and `evaluate`.  `_note_standing` is the one complication: a method
with exact gradients knows U at most versions without an evaluation, and these rows are collected cheaply.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, cast

import numpy as np

from asyncqn.core.algorithm import Commit, Standing, extra
from asyncqn.core.assignment import new_tuple
from asyncqn.core.outcome import Outcome
from asyncqn.core.problem import Array, read_only
from asyncqn.core.request import Progress, Request
from asyncqn.core.stages import Arrival
from asyncqn.core.stopping import Best, Ended, EndedByCallback
from asyncqn.core.worker import explosion_limit
from asyncqn.errors import WorkerFailed, require
from asyncqn.kernels.vectors import inspect


def problem_stopped(error: StopIteration, version: int) -> WorkerFailed:
    """Return the error for a StopIteration that the problem or the algorithm raised, not the callback."""
    return WorkerFailed(
        f"the problem or the algorithm raised StopIteration on version {version} ({error}): only a "
        "callback stops a run by it."
    )


# The key is the argument's bytes and not its identity, because algorithms overwrite their arrays in place.
class Remembered:
    """Cache the last result of a pure function of an array and numbers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._last: tuple[tuple[Any, ...], Any] | None = None

    def __call__(self, argument: Array, *numbers: float) -> Any:
        key = (argument.tobytes(), *numbers)
        if self._last is None or self._last[0] != key:
            self._last = key, self._function(argument, *numbers)
        return self._last[1]


class KeptRows(Protocol):
    """The destination of the iterates that a run keeps."""

    def append(self, row: Array, /) -> None:
        """Add a copy of a row."""


class Master:
    """Commits updates to the iterate and collects what a `Run` reports.

    Attributes
    ----------
    fingerprints : array of uint32
        A 32-bit checksum of theta after every commit, by which a replay finds its first difference.
    rejected : int
        Updates that were not finite.  Such an update keeps its commit number, but changes nothing.
    rows : int
        Rows in the updates so far; counted where the stopping rule needs it (`count`).
    pause : callable
        Context manager entered around every evaluation, so that an engine's clock can exclude it.
    alive, lost : int
        Number of active workers and of lost ones, for the callback's `Progress`.
    best : Best, optional
        The best row so far, where the request has patience.
    kept : KeptRows, optional
        Receives every `request.keep`-th iterate.
    """

    def __init__(
        self,
        request: Request,
        workers: int,
        pause: Callable[[], AbstractContextManager[None]] = nullcontext,
        kept: KeptRows | None = None,
    ) -> None:
        self.theta0 = request.theta0
        self.stopping = request.stopping
        self.callback = request.callback
        self._stop = request.stop
        algorithm = self.algorithm = request.algorithm
        problem = self.problem = request.problem
        self._asked = asked = read_only(problem)
        self.value: Callable[[Array], float] = lambda theta: float(asked.value(theta))
        """U over all data."""
        self._apply = algorithm.apply
        self._finished: Callable[[Any], str | None] | None = extra(
            algorithm, "finished"
        )
        self._standing: Callable[[Any], Standing | None] | None = extra(
            algorithm, "standing"
        )
        self._stood: tuple[Standing | None] | None = None
        """The standing of this version, once it was asked for."""
        self._knows_u = self._standing is not None and extra(problem, "metrics") is None
        """Whether the method knows all of a row without an evaluation."""
        # Cached: a safeguard may ask for the same metric again after a failed trial.
        inverse_metric_from = extra(problem, "inverse_metric_from")
        self._inverse_metric_from = (
            None if inverse_metric_from is None else Remembered(inverse_metric_from)
        )
        # Computed here, so that `commit` skips the test where no rule can apply.
        rule = self.stopping
        by_slope = rule.tol is not None or self._stop is not None
        self._may_end = (
            (self._standing is not None and by_slope)
            or rule.max_passes is not None
            or rule.max_time is not None
            or self._finished is not None
        )
        self.iterate = algorithm.init(self.theta0)
        self.limit = explosion_limit(self.theta0)
        # Every worker has then been rejected about twice in a row, the second time with an emptied memory.
        self.most_rejected = max(10, 2 * workers)
        self.evaluates = request.evaluate is not None
        # An interval that no run reaches stands for "never": `commit` then needs no separate test.
        self._every = request.evaluate or sys.maxsize
        self.commits = request.commits
        self._last = request.commits if self.evaluates else 0
        self.pause = pause
        self.workers = workers
        self.alive = workers
        self.lost = 0
        self.best = (
            None if self.stopping.patience is None else Best(self.stopping.patience)
        )
        # max_passes is a limit for exact methods, but the whole task of a stochastic run without `commits`.
        self._ends_by_passes = (
            Outcome.COMPLETED
            if request.open_ended and self._standing is None
            else Outcome.STOPPED
        )
        self.kept, self.keep = kept, request.keep or 0
        self.version, self.time = 0, 0.0
        self.rows = 0
        self.rejected = self.rejected_in_a_row = 0
        self.fingerprints = array("I")
        self.records: list[dict[str, float]] = []
        self.columns: dict[str, None] = {}
        """The names in `records`, in the order in which they first came."""
        self.delays = self.delayed = 0
        """The sum of l_n over the updates since the callback was last called, and how many they are."""
        self._every_version = request.every_version
        self._silent = request.every_version and not self.evaluates
        """Whether all rows are those that the method knows by itself, without an evaluation."""
        self._view_theta()

    def _view_theta(self) -> None:
        """Renew the two views of theta that `inspect` reads, after the algorithm has replaced theta."""
        self._theta = self.iterate.theta
        self._words = self._theta.view(
            np.uint64 if self._theta.itemsize == 8 else np.uint32
        )

    def commit(
        self, updates: Sequence[Any | None], time: float, staleness: Sequence[int]
    ) -> None:
        """Apply one update, or the updates of a round, as the next version; `staleness` has l_n of each.

        The method raises `Ended` if the run ends with this commit.
        """
        if self.callback is not None:
            self.delays += sum(staleness)
            self.delayed += len(staleness)
        # None stands for an update that its worker found not finite. A rejected update keeps its commit
        # number, so that the schedule, which knows nothing of numbers, stays valid.
        good: Sequence[Any] = updates
        if None in updates:
            kept = [
                (update, l_n)
                for update, l_n in zip(updates, staleness)
                if update is not None
            ]
            good, staleness = [update for update, _ in kept], [l_n for _, l_n in kept]
            self.rejected += len(updates) - len(good)
            self.rejected_in_a_row += len(updates)
        # Even if nothing is left to apply, this commit makes a version.
        version = self.version + 1
        if good:
            # Any finite update shows that the run can still recover.
            self.rejected_in_a_row = 0
            fields = version, staleness, self.value, self._inverse_metric_from
            self.iterate = self._apply(self.iterate, good, new_tuple(Commit, fields))
        self.version = version
        self.time = time
        self._stood = None
        # Most algorithms update theta in place; only a new array needs new views.
        if self.iterate.theta is not self._theta:
            self._view_theta()
        # One pass over theta computes the checksum for replays and tests the bound.
        fingerprint, beyond = inspect(self._theta, self._words, self.limit)
        self.fingerprints.append(fingerprint)
        # NaN counts as beyond the limit as well.
        if beyond:
            raise Ended(Outcome.DIVERGED, f"the iterate exploded at commit {version}")
        if self.rejected_in_a_row >= self.most_rejected:
            many = self.rejected_in_a_row
            raise Ended(
                Outcome.DIVERGED,
                f"{many} updates in a row were not finite, up to commit {version}",
            )
        if self.kept is not None and version % self.keep == 0:
            self.kept.append(self._theta)
        known = self._every_version and self._knows_u and self._note_standing()
        # The last version always has a row, so that a run reports U of the point where it ends.
        if not known and (version % self._every == 0 or version == self._last):
            self.evaluate(time)
        if self._may_end:
            self.stop_where_due()

    def count(self, ended: Sequence[Arrival]) -> None:
        """Count the rows of updates that make a commit, where `max_passes` asks for it."""
        if self.stopping.max_passes is None:
            return
        # Duplicates of backups and late updates depend on timing; a budget that counted them would, too.
        used = [arrival for arrival in ended if arrival.counts]
        parts = [-1 if arrival.part is None else arrival.part for arrival in used]
        part, read = np.array(parts, np.int32), [arrival.read for arrival in used]
        algorithm, n_data = cast(Any, self.algorithm), self.problem.n_data
        # Rows are counted, and not passes: a sum of fractions may fall short of `max_passes` by rounding.
        rows = algorithm.rows_of(n_data, np.array(read, np.int32), part)
        self.rows += int(rows.sum())

    @property
    def passes(self) -> float:
        """Passes over the data so far."""
        return self.rows / self.problem.n_data

    def standing(self) -> Standing | None:
        """Return the report of a method with exact gradients, or None if it has none."""
        if self._standing is None:
            return None
        if self._stood is None:
            # Computed at most once per version; the tuple tells "asked, and None" from "not asked yet".
            self._stood = (self._standing(self.iterate),)
        return self._stood[0]

    def stop_at_once(self) -> None:
        """Raise `Ended` where a run that was restored from its end has met a stopping rule already."""
        if self._has_row:
            self._stop_at(self.records[-1])
        self.stop_where_due()

    def stop_where_due(self) -> None:
        """Raise `Ended` where the run has met a stopping rule."""
        rule = self.stopping
        standing = self.standing()
        if standing is not None:
            if self._stop is not None:
                reason = self._ask("stopping rule", self._stop, standing)
                if reason is not None:
                    raise self._ended(Outcome.CONVERGED, str(reason))
            if (ended := rule.ends_at(standing)) is not None:
                raise self._ended(ended.outcome, str(ended))
        if (
            self._finished is not None
            and (why := self._finished(self.iterate)) is not None
        ):
            raise self._ended(Outcome.COMPLETED, why)
        if rule.max_passes is not None and self.passes >= rule.max_passes:
            raise self._ended(
                self._ends_by_passes, f"used its budget of {rule.max_passes:g} passes"
            )
        if rule.max_time is not None and self.time >= rule.max_time:
            raise self._ended(
                Outcome.STOPPED, f"max_time = {rule.max_time:g} has passed"
            )

    def _ask(self, name: str, function: Callable[[Any], Any], argument: Any) -> Any:
        """Call a function of the user; raise `EndedByCallback` where it stops the run or fails."""
        try:
            return function(argument)
        except StopIteration:
            sentence = f"the {name} stopped the run after commit {self.version}."
            raise EndedByCallback(Outcome.STOPPED, sentence) from None
        except BaseException as error:
            sentence = f"the {name} failed after commit {self.version}."
            raise EndedByCallback(Outcome.STOPPED, sentence) from error

    def _ended(self, outcome: Outcome, reason: str) -> Ended:
        return Ended(outcome, f"{reason}, after {self.version} commits.")

    def evaluate(self, time: float) -> None:
        """Add a row to the metric table and call the callback."""
        # This version was evaluated already, for instance just before a resume.
        if self._silent or self._has_row:
            return
        theta = self.iterate.theta
        with self.pause():
            row = self._row(self.version, time, self.value(theta))
            metrics = extra(self._asked, "metrics")
            if metrics is not None:
                columns = metrics(theta)
                require(
                    isinstance(columns, Mapping),
                    f"problem.metrics must return a dict of numbers, not {type(columns).__name__}.",
                )
                for name, value in columns.items():
                    row[name] = float(value)
            if self._standing is not None and "grad_norm" not in row:
                standing = self.standing()
                row["grad_norm"] = math.nan if standing is None else standing.grad_norm
        self._add(row, theta)

    @property
    def _has_row(self) -> bool:
        """True if the last row is that of this version."""
        return bool(self.records) and self.records[-1]["commit"] == self.version

    def _row(self, commit: int, time: float, fun: float) -> dict[str, float]:
        """Return what every row of the metric table has."""
        record: dict[str, float] = {"commit": commit, "time": time, "fun": fun}
        optimum = extra(self.problem, "optimum")
        if optimum is not None:
            # Relative to |U*|, and absolute where U* is zero.
            record["error"] = (
                (fun - optimum) / abs(optimum) if optimum else fun - optimum
            )
        return record

    def _note_standing(self) -> bool:
        """Add the row of what an exact method knows at this version; return whether it knew anything.

        The row describes the last accepted point, and costs no evaluation.
        """
        standing = self.standing()
        if standing is None:
            return False
        row = self._row(self.version, self.time, standing.value)
        row["grad_norm"] = standing.grad_norm
        self._add(row, standing.point)
        return True

    def _add(self, row: dict[str, float], point: Array) -> None:
        """Add a row to the metric table, call the callback, and raise `Ended` where the row ends the run."""
        self.records.append(row)
        self.columns.update(dict.fromkeys(row))
        # Elsewhere theta is a trial, from which a method with exact gradients turns back by itself.
        unguarded = self._standing is None or self.version == 0
        if unguarded and not math.isfinite(row["fun"]):
            sentence = f"the objective is not finite at commit {self.version}"
            raise Ended(Outcome.DIVERGED, sentence)
        # A replay has no callback but must end at the same commit, so patience is judged first.
        impatient = False
        if self.best is not None:
            self._require_metric(self.best.rule.metric, "to watch", row)
            impatient = self.best.sees(row, point)
        self._call_back(point, row)
        self._stop_at(row)
        if impatient and self.best is not None:
            raise self._ended(Outcome.COMPLETED, self.best.sentence)

    def _stop_at(self, record: dict[str, float]) -> None:
        """Raise `Ended` where a row has reached the target."""
        rule = self.stopping
        if self.at_target(record):
            raise self._ended(
                Outcome.CONVERGED,
                f"{rule.metric} is {record[rule.metric]:.6g}, at or below the target {rule.target:g}",
            )

    def _call_back(self, theta: Array, record: dict[str, float]) -> None:
        """Show the callback the point of a row, where there is one."""
        if self.callback is None:
            return
        delay = self.delays / max(1, self.delayed)
        self.delays = self.delayed = 0
        row, workers = dict(record), (self.alive, self.lost)
        # Copies: the callback may keep or change what it gets.
        progress = Progress(
            self.version, record["time"], theta.copy(), row, delay, *workers
        )
        with self.pause():
            self._ask("callback", self.callback, progress)

    def at_target(self, record: dict[str, float]) -> bool:
        """Return whether a row of the metric table has reached the target."""
        target, metric = self.stopping.target, self.stopping.metric
        if target is None:
            return False
        self._require_metric(metric, "to compare with the target", record)
        return record[metric] <= target

    @staticmethod
    def _require_metric(metric: str, purpose: str, record: dict[str, float]) -> None:
        require(
            metric in record,
            f"there is no metric '{metric}' {purpose}; there are {', '.join(record)}.",
        )

    def restore(
        self,
        iterate: Any,
        *,
        version: int,
        time: float,
        fingerprints: Sequence[int],
        records: list[dict[str, float]],
        best: Best | None = None,
    ) -> None:
        """Continue from the state of another master, whose counts of rows and rejections are set after."""
        self.best = best
        self.iterate = iterate
        self.version = version
        self.time = time
        self.fingerprints = array("I", fingerprints)
        self.records = records
        self.columns = dict.fromkeys(name for record in records for name in record)
        self._stood = None
        self._view_theta()
