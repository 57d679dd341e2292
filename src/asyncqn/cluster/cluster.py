"""Cluster: a timing model of workers, messages and a master, in one unit of time that the user chooses.

The class holds parameters and checks them; `cluster.simulate` draws a schedule from it, and `cluster.fit`
finds the parameters of a recorded run.  It says nothing about numbers: those follow from the schedule.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from asyncqn.cluster.laws import (
    Constant,
    Law,
    LogNormal,
    Scaled,
    TimeLaw,
    draw_times,
    law_to_json,
    mean_of,
)
from asyncqn.core.schedule import Schedule
from asyncqn.errors import require
from asyncqn.parameters import (
    Checked,
    Kind,
    Refused,
    Workers,
    brief,
    checked,
    parameter,
)
from asyncqn.published import SETTINGS, VARIANCE, PaperName, timing
from asyncqn.storage.serialise import Json, to_json

Duration = Annotated[float, parameter(ge=0.0)]
PerWorker = Duration | Sequence[Duration]
Worker = Annotated[int, parameter(ge=0)]
Moments = Mapping[Worker, Duration]
_ONE_OR_EACH = "one finite number of at least 0, or one per worker"


def _run(value: Any) -> Any:
    """Validate a `Run` by its attributes: its class lives in a higher room, which this one may not import."""
    if not (hasattr(value, "manifest") and hasattr(value, "schedule")) or isinstance(
        value, type
    ):
        raise Refused
    return value


RUN = Kind(("a Run",), _run, in_files=False)


@dataclass(frozen=True)
class Cluster(Checked):
    """A timing model of workers, messages and a master.

    Times have no fixed unit: choose one, such as milliseconds, and use it for all parameters.

    Parameters
    ----------
    workers : int
        Number of workers, W.
    worker_mean : float or sequence of float, default 1.0
        mu_w: mean time of one computation, for all workers or for each. With `worker_std` it describes
        log-normal times.
    worker_std : float or sequence of float, default 0.0
        sigma_w: standard deviation of that time, for all workers or for each.
    message : float, default 0.0
        tau: time of a message to the master and back together; each way takes half of it.
    master : float, default 0.0
        mu_m: time that the master takes for one commit.
    deaths : mapping from int to float, default {}
        Time of death, by worker number; workers that are not named never die.
    joins : mapping from int to float, default {}
        Time at which a worker joins, by worker number; workers that are not named are there from the start.
    times : TimeLaw or sequence of TimeLaw, optional
        Law of the computation times, for all workers or for each, instead of `worker_mean` and
        `worker_std`: `LogNormal`, `Exponential`, `Pareto`, `Constant`, `Trace`, or a `TimeLaw` of your own.
    recoveries : mapping from int to float, default {}
        Time at which a worker that died comes back, by worker number. It receives the iterate of that time
        and keeps what it had learned; the computation that its death interrupted is lost.
    link : float, default 0.0
        Time for which one message, in either direction, occupies the master's network link. It comes on top
        of `message`, which delays one worker only.
    sending : "each", "tree" or "free", default "each"
        What the messages that the master sends cost it. "each": every message occupies the link. "tree": a
        broadcast to W workers occupies it for ceil(log2(W + 1)) messages, because workers that have the
        data pass them on; a reply to one worker costs one message. "free": only received messages occupy
        it.
    rows : float, optional
        Number of rows that the computation times refer to; the simulator, and a real engine that has this
        cluster as its timing model, scale them by the rows that the algorithm uses. Without it, every
        computation takes the drawn time, whatever its rows.
    fixed : float, default 0.0
        Time that every computation takes on top, however few its rows.

    Notes
    -----
    The master does one thing at a time, in the order of arrival: receiving an update takes `link`, the
    commit that it completes takes `master`, and every message that the master then sends takes `link`. An
    asynchronous exchange therefore occupies the master for 2 link + master.

    Examples
    --------
    >>> import asyncqn as aq
    >>> cluster = aq.Cluster(workers=40, worker_mean=70.0, worker_std=14.0, message=10.0, deaths={3: 500.0})
    >>> cluster.compute_times(seed=0, worker=0, count=2).shape
    (2,)
    >>> crowded = aq.Cluster(workers=40, times=aq.times.Pareto(mean=40.0, shape=1.5), message=8.0, link=1.0)
    """

    workers: Workers
    worker_mean: Annotated[PerWorker, parameter(words=_ONE_OR_EACH)] = 1.0
    worker_std: Annotated[PerWorker, parameter(words=_ONE_OR_EACH)] = 0.0
    message: Duration = 0.0
    master: Duration = 0.0
    deaths: Mapping[Worker, Annotated[float, parameter(ge=0.0, infinite=True)]] = field(
        default_factory=dict
    )
    joins: Moments = field(default_factory=dict)
    times: Law | Sequence[Law] | None = None
    recoveries: Moments = field(default_factory=dict)
    link: Duration = 0.0
    sending: Literal["each", "tree", "free"] = "each"
    rows: Annotated[float | None, parameter(gt=0.0)] = None
    fixed: Duration = 0.0

    @classmethod
    @checked
    def from_paper(
        cls,
        name: PaperName = "linear-gaussian",
        algorithm: Literal["as-lbfgs", "mb-lbfgs", "async-sgd"] = "as-lbfgs",
        *,
        workers: Annotated[int | None, parameter(ge=1, le=1_000_000)] = None,
        variance: Annotated[float, parameter(ge=0.0)] = VARIANCE,
    ) -> Cluster:
        """Return the simulated cluster of the paper.

        Parameters
        ----------
        name : "linear-gaussian"
            The experiment; those on MovieLens ran on real machines, whose times are not printed.
        algorithm : "as-lbfgs", "mb-lbfgs" or "async-sgd", default "as-lbfgs"
            Whose row of the table: the paper charges each algorithm its own times.
        workers : int, optional
            W; None: 40, as in the paper.
        variance : float, default 200.0
            sigma_w^2, which Fig. 2 varies and Fig. 3 sets to 200.

        Returns
        -------
        Cluster
            With mu_w, sigma_w, tau and mu_m of the table.

        Examples
        --------
        >>> import asyncqn as aq
        >>> cluster = aq.Cluster.from_paper("linear-gaussian", "as-lbfgs", variance=100.0)
        >>> cluster.workers, cluster.worker_mean, cluster.worker_std, cluster.message, cluster.master
        (40, 70.0, 10.0, 10.0, 0.0)
        """
        times: dict[str, Any] = timing(name, algorithm)
        return cls(
            workers or SETTINGS[name].workers, worker_std=math.sqrt(variance), **times
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        W = self.workers
        for name in ("worker_mean", "worker_std", "times"):
            given = getattr(self, name)
            what = "law" if name == "times" else "number"
            require(
                not isinstance(given, tuple) or len(given) == W,
                f"{name} must be one {what} or one per worker ({W}), not {brief(given)}.",
            )
        mean, std = self._per_worker("worker_mean"), self._per_worker("worker_std")
        require(
            self.times is None or bool((mean == 1.0).all() and (std == 0.0).all()),
            "give either times, or worker_mean and worker_std, not both.",
        )
        require(
            bool(((mean > 0) | (std == 0)).all()),
            "worker_mean must be positive where worker_std is: a log-normal time has a positive mean.",
        )
        require(
            bool(mean.min() + self.message + self.master + self.link > 0),
            "an update must take some time: worker_mean, message and master are all zero for some worker.",
        )
        for name in ("deaths", "joins", "recoveries"):
            for worker in getattr(self, name):
                require(
                    worker < W,
                    f"{name} names worker {worker}, but workers are numbered 0 to {W - 1}.",
                )
        for worker, time in self.recoveries.items():
            require(
                self.deaths.get(worker, math.inf) < time,
                f"recoveries: worker {worker} must die before it comes back at {time:g}.",
            )
        require(
            any(self.joins.get(w, 0.0) == 0.0 for w in range(W)),
            "every worker has a join time after 0: let at least one be there from the start.",
        )

    @classmethod
    @checked
    def from_run(
        cls,
        run: Annotated[Any, RUN],
        *,
        workers: Workers | None = None,
        per_worker: bool = False,
    ) -> Cluster:
        """Fit a cluster to a run.

        Parameters
        ----------
        run : Run
            A run on a real engine.  For a simulated run the result is the cluster that was simulated.
        workers : int, optional
            Number of workers of the cluster; by default that of the run.
        per_worker : bool, default False
            Whether every worker has its own law of computation times, fitted to its own measurements.

        Returns
        -------
        Cluster
            In the run's unit of time.

        Notes
        -----
        Computation times are log-normal with the measured mean and spread.  `master` and `link` are the
        measured times that the master spends on commits and on other updates.  `message` is chosen so that
        the simulated cluster makes the same number of commits per unit of time as the run; it is 0 if the
        cluster is slower even without messages.  `rows` is taken from the run's algorithm if it states its
        rows.  `fixed` can be estimated only where computations had different sizes, as with growing samples;
        otherwise it is 0.

        Examples
        --------
        >>> import asyncqn as aq
        >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
        >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=aq.Threads(2), commits=300)
        >>> cluster = aq.Cluster.from_run(run, workers=8)
        >>> cluster.workers, cluster.rows
        (8, 20.0)
        """
        from asyncqn.cluster.fit import fit

        return fit(run, workers, per_worker)

    @classmethod
    @checked
    def from_schedule(
        cls,
        schedule: Schedule,
        *,
        workers: Workers | None = None,
        per_worker: bool = True,
    ) -> Cluster:
        """Make a cluster whose workers take the times of a schedule, such as the log of another system.

        Parameters
        ----------
        schedule : Schedule
            The recorded times; `Schedule.from_table` reads a log.
        workers : int, optional
            Number of workers of the cluster; by default that of the schedule.
        per_worker : bool, default True
            Whether every worker repeats its own times; otherwise all share one law.

        Returns
        -------
        Cluster
            In the schedule's unit of time.  Messages are part of the computation times, because a log does not tell
            them apart.

        Examples
        --------
        >>> import asyncqn as aq
        >>> log = {"worker": ["a", "b", "a"], "start": [0.0, 0.0, 2.0], "end": [2.0, 3.0, 4.0]}
        >>> cluster = aq.Cluster.from_schedule(aq.Schedule.from_table(log))
        >>> cluster.workers, cluster.laws()[1].mean
        (2, 3.0)
        """
        from asyncqn.cluster.fit import of_schedule

        return of_schedule(schedule, workers, per_worker)

    def __json__(self) -> Json:
        """Return plain data, without what is at its default: equal clusters give equal manifests."""
        default = Cluster(self.workers)
        plain: Json = {"workers": self.workers}
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if each.name != "times" and value != getattr(default, each.name):
                plain[each.name] = to_json(value)
        times: Any = self.times
        if isinstance(times, tuple):
            plain["times"] = [law_to_json(law) for law in times]
        elif times is not None:
            plain["times"] = law_to_json(times)
        return plain

    def laws(self) -> tuple[TimeLaw, ...]:
        """Return the law of every worker's computation times."""
        return self._laws

    @cached_property
    def _laws(self) -> tuple[TimeLaw, ...]:
        if isinstance(self.times, tuple):
            return self.times
        if self.times is not None:
            return (self.times,) * self.workers  # type: ignore[return-value]
        means, stds = self._per_worker("worker_mean"), self._per_worker("worker_std")
        return tuple(
            LogNormal(mean, std) if std > 0.0 else Constant(mean)
            for mean, std in zip(means.tolist(), stds.tolist())
        )

    def scaled(self, by: float) -> Cluster:
        """Return the cluster with computation times multiplied by `by`."""
        laws = tuple(Scaled(law, by) for law in self.laws())
        return dataclasses.replace(self, worker_mean=1.0, worker_std=0.0, times=laws)

    def _per_worker(self, name: str) -> npt.NDArray[np.float64]:
        one_or_each = np.asarray(getattr(self, name), np.float64)
        return np.broadcast_to(one_or_each, (self.workers,))

    def means(self) -> npt.NDArray[np.float64]:
        """Return mu_w of every worker."""
        return np.array([mean_of(law) for law in self.laws()])

    def compute_times(
        self, seed: int, worker: int, count: int
    ) -> npt.NDArray[np.float64]:
        """Return the times of a worker's first `count` computations, a function of the seed and the
        worker."""
        return draw_times(self.laws()[worker], seed, worker, count)
