"""SharedMetricHMC: asynchronous Hamiltonian chains under one metric that the master learns from all of them.

Every worker runs its own chains and sends each draw with its gradient.  During the warm-up the master files
them and sends back a metric, a step and a length (`warm_up`); then it freezes all three.  A kernel with a
fixed metric leaves exp(-U) invariant whatever the metric is, so that stale messages delay what is learned and
bias nothing.  docs/explanation/sampling.md has the proof and its assumptions about timing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from asyncqn.algorithms.sampling.chart import Charted, has_edges
from asyncqn.algorithms.sampling.metric import Shape, draw, marginal_scale, metric_shape
from asyncqn.algorithms.sampling.search import (
    NEGLIGIBLE,
    WORSE,
    find_start,
    nearest_start,
    overdispersed,
)
from asyncqn.algorithms.sampling.target import Target
from asyncqn.algorithms.sampling.trajectory import trajectory
from asyncqn.algorithms.sampling.warm_up import (
    BEST,
    LENGTH,
    LONGER,
    STAGE,
    STEP,
    File,
    Tuning,
    end_of,
    learn,
    new_file,
    new_tuning,
    note_acceptance,
    note_divergence,
    note_pair,
    note_start,
)
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import Checked, parameter
from asyncqn.types import Array, Commit, Counters, Problem, Task

DrawCount = Annotated[int, parameter(ge=1, le=2**30)]
ChainCount = Annotated[int, parameter(ge=1, le=10_000)]
PerWorker = Annotated[int, parameter(ge=1, le=10_000)]
WarmUp = Annotated[int | None, parameter(ge=1, le=10_000_000)]
Acceptance = Annotated[float, parameter(gt=0.0, lt=1.0)]

PREPARATIONS, BURN_IN = 2, 50
"""Steps of a chain before its first draw, one for its start and one for its search; and draws that do not
count, also of a chain that joins late."""
NEAR_THE_MODE = 0.3
"""A chain begins at N(mode, 0.3^2 H); the full Laplace approximation may lie where nothing is accepted."""
MOST_LEAPFROG_STEPS = 1024
SHORT_SHARE, SHORTEST = 0.1, 0.125
"""A tenth of the trajectories has steps down to an eighth of the others', so that a chain does not stay for
long where the posterior bends too much for the usual step."""

NEW, PLACED, SEARCHED, MOVING = range(4)
"""States of a chain: new, with a point to search from, with a mode, moving."""

TOTALS = (
    "draws",
    "accepted",
    "divergent",
    "gradients",
    "warm_up_gradients",
    "chains_moved",
    "not_finite",
    "starts_without_mode",
)
"""Draws that count; how many of these were accepted, and how many were divergent; gradients of the
trajectories whose draws count, and all others; searches given up for a start of more mass; divergent
trajectories that met a U or a gradient that is not finite; searches that found no mode."""
DRAWS = 0
ACCEPTED = 1
DIVERGENT = 2
GRADIENTS = 3
WARM_UP_GRADIENTS = 4
CHAINS_MOVED = 5
NOT_FINITE = 6
WITHOUT_MODE = 7


STATISTICS = ("energy", "acceptance_rate", "step_size", "diverging")
"""Facts of a draw in ArviZ's words.  The energy is that at the start of the trajectory; NaN under a metric of low rank,
where it would cost more than the trajectory."""
MOST_STATISTICS = 1_000_000
"""Draws whose statistics are stored."""


class Iterate(NamedTuple):
    """The last draw that arrived, what workers are sent (`Tuning`), and what the master keeps for itself."""

    theta: Array
    metric: Array
    best: Array
    numbers: Array
    chart: Array
    file: File
    totals: Counters  # (8,): `TOTALS`
    statistics: Array  # (draws, 4): `STATISTICS` of each draw that counts


class Facts(NamedTuple):
    """Fields of an update besides its vectors."""

    state: int
    """What the chain had done before this step."""
    chain: int
    gradients: int
    counts: bool = False
    """Whether the draw counts: the chain has burned in, under the frozen metric."""
    stage: int = -1
    """How many times the metric that was used had been rebuilt."""
    step: float = 0.0
    acceptance: float = 0.0
    energy: float = 0.0
    accepted: bool = False
    divergent: bool = False
    finite: bool = True
    """Whether U and its gradient were finite along the trajectory."""
    start: bool = False
    """Whether the update is the end of a search: where the chain begins and the standard deviations there."""
    at_mode: bool = True
    """False where the search found no mode."""
    evidence: float = 0.0
    moved: bool = False


class Update(NamedTuple):
    """A chain's point and its gradient; after a search its start and the standard deviations there."""

    x: Array
    g: Array
    facts: Facts


class Worker(NamedTuple):
    """The chains of a worker, row by row."""

    origin: Array  # (d,): theta0
    x: Array  # (m, d)
    g: Array  # (m, d)
    value: Array  # (m,): U(x)
    start: Array  # (m, d): a mode, or where the search found none, the best place on its path
    at_mode: Counters  # (m,): 1 where it is a mode
    evidence: Array  # (m,): of the start
    metric: Array  # (m, rows, d): there
    state: Counters  # (m,)


@dataclass(frozen=True)
class SharedMetricHMC(Checked):
    """Hamiltonian Monte Carlo on asynchronous workers, right at beta = 1 at any staleness.

    Parameters
    ----------
    draws : int
        Draws that count, of all chains together; the run ends with the last of them.
    chains : int, default 8
        Chains of all workers together.
    per_worker : int, default 1
        Chains of each worker, which it moves in turn.
    warm_up : int or None, default None
        Commits, of all chains together, before metric, step and length are frozen; by default
        500 + 50 per chain + 10 per coordinate (at most 2,000 for these).
    acceptance : float, default 0.8
        The mean acceptance at which the step is set.

    Notes
    -----
    A step of a chain, with the metric H, the step eps and the length T that its worker received, is

        T' ~ T U(0.75, 1.25),  n = ceil(T' / eps),  n leapfrog steps T'/n from v ~ N(0, H),  Metropolis.

    n does not depend on the state of the chain.  `aq.sample` is the door to this method; it adds
    diagnostics.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=5, n_data=50, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=4))
    >>> run = aq.minimize(problem, aq.SharedMetricHMC(draws=500, chains=4), engine=engine, commits=2000)
    >>> run.status, run.counters["draws"]
    ('completed', 500)
    """

    draws: DrawCount
    chains: ChainCount = 8
    per_worker: PerWorker = 1
    warm_up: WarmUp = None
    acceptance: Acceptance = 0.8

    stages = ASYNCHRONOUS
    sent = ("metric", "best", "numbers", "chart")

    @classmethod
    def example(cls, problem: Problem) -> SharedMetricHMC:
        """Small parameters that run on any problem, for tests."""
        return cls(draws=10_000, chains=3, warm_up=20)

    def check(self, problem: Problem) -> None:
        pass

    def warm_up_commits(self, dim: int) -> int:
        """Return the planned number of commits of the warm-up; late divergences lengthen it once."""
        default = 500 + 50 * self.chains + min(10 * dim, 2000)
        return default if self.warm_up is None else self.warm_up

    def counts(self, k: int, read: int, warm_up: int) -> bool:
        """Return whether the draw of a worker's k-th step counts, which read version `read`.

        warm_up: the last commit of the warm-up.
        """
        # Both conditions follow from the schedule and the warm-up, never from draws that may count: choosing
        # these by their values would bias what is left.
        settled = k // self.per_worker >= PREPARATIONS + BURN_IN
        return settled and read >= warm_up

    def finished(self, iterate: Iterate) -> str | None:
        """Return the reason to end the run before its last commit, or None to continue."""
        draws = int(iterate.totals[DRAWS])
        return f"{draws} draws were made" if draws >= self.draws else None

    def temperature(self, k: int) -> float:
        """Return infinity: a chain visits any U, so that a rise of U is no sign of divergence."""
        return math.inf

    def init(self, theta0: Array) -> Iterate:
        dim = theta0.size
        tuning = new_tuning(dim, self.acceptance)
        file = new_file(dim, self.chains, self.warm_up_commits(dim))
        statistics = np.zeros((min(self.draws, MOST_STATISTICS), len(STATISTICS)))
        totals = np.zeros(len(TOTALS), np.int64)
        return Iterate(theta0.copy(), *tuning, file, totals, statistics)

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        m, d = self.per_worker, theta0.size
        return Worker(
            origin=theta0.copy(),
            x=np.zeros((m, d)),
            g=np.zeros((m, d)),
            value=np.zeros(m),
            start=np.zeros((m, d)),
            at_mode=np.ones(m, np.int64),
            evidence=np.zeros(m),
            metric=np.zeros((m, *metric_shape(d))),
            state=np.zeros(m, np.int64),
        )

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        with np.errstate(
            all="ignore"
        ):  # searches and trajectories that leave the finite numbers turn back
            return self._step(view, local, problem, task)

    def _step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        i = task.stream.k % self.per_worker
        chain, state = task.worker * self.per_worker + i, int(local.state[i])
        target, rng = Target(problem, local.origin.dtype), task.stream.generator()
        if state == NEW:
            local.x[i] = overdispersed(target, local.origin, rng)
            local.state[i] = PLACED
            facts = Facts(state, chain, target.gradients)
        elif state == PLACED or self._hopeless(view, local, i):
            facts = self._search(view, local, i, target, rng, chain)
            x = local.start[i].astype(local.origin.dtype)
            return Update(x, marginal_scale(local.metric[i]), facts)
        else:
            if state == SEARCHED:
                self._begin(local, i, target, rng)
            facts = self._move(view, local, i, target, task, rng, state, chain)
        # After the warm-up the master learns nothing: zeros keep the message of one size.
        g = np.zeros(local.origin.size) if facts.counts else local.g[i].copy()
        return Update(local.x[i].astype(local.origin.dtype), g, facts)

    def _hopeless(self, view: Iterate, local: Worker, i: int) -> bool:
        """Return whether a chain's start has negligible mass, while it may still go to a better one."""
        # Once the metric was learned from its draws, a chain stays: leaving by what it saw would bias it.
        early = int(local.state[i]) == SEARCHED or view.numbers[STAGE] == 0
        margin = NEGLIGIBLE if local.at_mode[i] else WORSE
        return early and bool(local.evidence[i] < view.numbers[BEST] - margin)

    def _search(
        self,
        view: Iterate,
        local: Worker,
        i: int,
        target: Target,
        rng: np.random.Generator,
        chain: int,
    ) -> Facts:
        """Find the chain's start; one that has left its own looks at the best of all."""
        shape = Shape(*local.metric.shape[1:])
        state = int(local.state[i])
        moved = state != PLACED
        start = view.best.copy() if moved else local.x[i].copy()
        if moved:
            place = nearest_start(target, start, shape)
        else:
            place = find_start(target, start, rng, shape, chain, self.chains)
        local.start[i] = place.x
        local.metric[i] = place.metric
        local.at_mode[i] = place.at_mode
        local.evidence[i] = place.evidence
        if moved:  # it will not look again, whatever it found
            local.evidence[i] = max(place.evidence, float(view.numbers[BEST]))
        local.state[i] = SEARCHED
        return Facts(
            state,
            chain,
            target.gradients,
            start=True,
            at_mode=place.at_mode,
            evidence=place.evidence,
            moved=moved,
        )

    def _begin(
        self, local: Worker, i: int, target: Target, rng: np.random.Generator
    ) -> None:
        """Place the chain near its start, where U is finite."""
        shape = Shape(*local.metric.shape[1:])
        away = NEAR_THE_MODE * draw(local.metric[i], rng.standard_normal(shape.normals))
        for _ in range(30):
            local.x[i] = local.start[i] + away
            local.value[i] = target.value_and_grad(local.x[i], local.g[i])
            if math.isfinite(local.value[i]):
                break
            away *= 0.5
        local.state[i] = MOVING

    def _move(
        self,
        view: Iterate,
        local: Worker,
        i: int,
        target: Target,
        task: Task,
        rng: np.random.Generator,
        state: int,
        chain: int,
    ) -> Facts:
        """One trajectory and its Metropolis test."""
        stage = int(view.numbers[STAGE])
        planned = self.warm_up_commits(local.origin.size)
        warm_up = end_of(planned, bool(view.numbers[LONGER]))
        metric = local.metric[i] if stage == 0 else view.metric
        # `random` instead of `uniform`, which gives the same bits in four times the time.
        length = float(view.numbers[LENGTH]) * (0.75 + 0.5 * rng.random())
        # n and h are drawn before the trajectory and do not depend on x: the kernel stays reversible, and the
        # time of a step says nothing about the place.
        n = min(math.ceil(length / float(view.numbers[STEP])), MOST_LEAPFROG_STEPS)
        h = min(length / n, float(view.numbers[STEP]))
        if rng.random() < SHORT_SHARE:
            h *= SHORTEST ** rng.random()
        z = task.stream.normals(np.empty(Shape(*metric.shape).normals))
        x, g = local.x[i], local.g[i]
        value = float(local.value[i])
        chart = Charted(target, view.chart, x) if has_edges(view.chart) else None
        if stage == 0 or chart is None:
            end = trajectory(target, x, g, value, metric, h, n, z)
        else:
            end = chart.trajectory(g, value, metric, h, n, z)
        # Under a dense metric v = F z, so that v'H^-1 v / 2 = |z|^2 / 2.
        energy = float(local.value[i]) + 0.5 * sum_of_squares(z)
        accepted = rng.random() < end.acceptance
        if accepted:
            local.x[i], local.g[i], local.value[i] = end.x, end.g, end.value
        return Facts(
            state,
            chain,
            target.gradients,
            self.counts(task.stream.k, task.read, warm_up),
            stage,
            step=h,
            acceptance=end.acceptance,
            energy=energy,
            accepted=accepted,
            divergent=end.divergent,
            finite=end.finite,
        )

    def learn(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Worker:
        return local

    def forget(self, local: Worker) -> Worker:
        return local

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        warm_up = self.warm_up_commits(iterate.theta.size)
        tuning = Tuning(iterate.metric, iterate.best, iterate.numbers, iterate.chart)
        for x, g, facts in updates:
            iterate.theta[...] = x
            self._count(iterate, facts)
            longer = bool(tuning.numbers[LONGER])
            if commit.version > end_of(warm_up, longer):
                continue
            if facts.start:
                at_mode = facts.at_mode
                note_start(
                    tuning, iterate.file, facts.chain, x, g, facts.evidence, at_mode
                )
            elif facts.state >= SEARCHED:
                note_pair(iterate.file, facts.chain, commit.version, x, g)
                if facts.divergent:
                    note_divergence(iterate.file, commit.version, warm_up)
                # An acceptance under an older metric says nothing about the step of this one.
                if facts.stage == int(tuning.numbers[STAGE]):
                    note_acceptance(iterate.file, facts.step, facts.acceptance)
        if commit.version <= end_of(warm_up, bool(tuning.numbers[LONGER])):
            with np.errstate(all="ignore"):
                learn(tuning, iterate.file, commit.version, warm_up, self.acceptance)
        return iterate

    def _count(self, iterate: Iterate, facts: Facts) -> None:
        totals = iterate.totals
        totals[GRADIENTS if facts.counts else WARM_UP_GRADIENTS] += facts.gradients
        totals[CHAINS_MOVED] += facts.moved
        totals[WITHOUT_MODE] += not facts.at_mode
        if facts.counts:
            draw = int(totals[DRAWS])
            if draw < len(iterate.statistics):
                row = (facts.energy, facts.acceptance, facts.step, facts.divergent)
                iterate.statistics[draw] = row
            totals[DRAWS] += 1
            totals[ACCEPTED] += facts.accepted
            totals[DIVERGENT] += facts.divergent
            totals[NOT_FINITE] += not facts.finite

    def results(self, iterate: Iterate) -> Mapping[str, Array]:
        """Return what the chains drew with, and `STATISTICS` of each draw.

        "metric" is the factor of the metric; "step" has the step, the length, the number of rebuilds of the metric, and
        1 if the warm-up was lengthened.
        """
        return {
            "metric": iterate.metric,
            "chart": iterate.chart,
            "step": iterate.numbers[[STEP, LENGTH, STAGE, LONGER]],
            "statistics": iterate.statistics[: int(iterate.totals[DRAWS])].copy(),
        }

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return dict(zip(TOTALS, iterate.totals.tolist()))
