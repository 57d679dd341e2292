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
from enum import IntEnum
from typing import Annotated, NamedTuple

import numpy as np

from asyncqn.algorithms.sampling import warm_up as tuner
from asyncqn.algorithms.sampling.chart import trajectory_in
from asyncqn.algorithms.sampling.evidence import LEAST_EVIDENCE, Place, place_at
from asyncqn.algorithms.sampling.metric import draw, marginal_scale, metric_shape
from asyncqn.algorithms.sampling.search import (
    NEGLIGIBLE,
    WORSE,
    find_start,
    finite_towards,
)
from asyncqn.algorithms.sampling.target import Target
from asyncqn.algorithms.sampling.trajectory import State, trajectory
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import Checked, parameter
from asyncqn.types import Array, Commit, Counters, Problem, Task

DrawCount = Annotated[int, parameter(ge=1, le=2**30)]
ChainCount = Annotated[int, parameter(ge=1, le=10_000)]
PerWorker = Annotated[int, parameter(ge=1, le=10_000)]
WarmUp = Annotated[int | None, parameter(ge=1, le=10_000_000)]
Acceptance = Annotated[float, parameter(gt=0.0, lt=1.0)]

BURN_IN = 51
"""Steps of a chain that do not count: the search, and 50 draws, also of a chain that joins late."""
NEAR_THE_MODE = 0.3
"""A chain begins at N(mode, 0.3^2 H); the full Laplace approximation may lie where nothing is accepted."""
MOST_LEAPFROG_STEPS = 1024
SHORT_SHARE, SHORTEST = 0.1, 0.125
"""A tenth of the trajectories has steps down to an eighth of the others', so that a chain does not stay for
long where the posterior bends too much for the usual step."""
STATISTICS = ("energy", "acceptance_rate", "step_size", "diverging")
"""Facts of a draw in ArviZ's words; the energy is that at the start of the trajectory."""
MOST_STATISTICS = 1_000_000
"""Draws whose statistics are stored."""


class Total(IntEnum):
    """Places of the master's counts."""

    DRAWS = 0
    """Draws that count."""
    ACCEPTED = 1
    """Those of them that were accepted."""
    DIVERGENT = 2
    GRADIENTS = 3
    """Gradients of the trajectories whose draws count."""
    WARM_UP_GRADIENTS = 4
    """All other gradients."""
    CHAINS_MOVED = 5
    """Chains that left their own start for one of more mass."""
    NOT_FINITE = 6
    """Divergent trajectories that met a U or a gradient that is not finite."""
    STARTS_WITHOUT_MODE = 7


class Iterate(NamedTuple):
    """The last draw that arrived, what workers are sent (`Tuning`), and what the master keeps for itself."""

    theta: Array
    metric: Array
    best: Array
    numbers: Array
    chart: Array
    file: tuner.File
    totals: Counters  # (8,): `Total`
    statistics: Array  # (draws, 4): `STATISTICS` of each draw that counts


class Facts(NamedTuple):
    """Fields of an update besides its vectors."""

    chain: int
    gradients: int
    counts: bool = False
    """Whether the draw counts: the chain has burned in, under the frozen metric."""
    stage: int = -1
    """How many times the metric that was used had been rebuilt; -1 if the update is a start, and no draw."""
    step: float = 0.0
    acceptance: float = 0.0
    energy: float = 0.0
    accepted: bool = False
    divergent: bool = False
    finite: bool = True
    """Whether U and its gradient were finite along the trajectory."""
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
    metric: Array  # (m, rows, d): at the start
    evidence: Array  # (m,): of the start
    at_mode: Counters  # (m,): 1 where the start is a mode
    begun: Counters  # (m,): 1 where the chain has a start


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

    def warm_up_commits(self, dim: int) -> int:
        """Return the planned number of commits of the warm-up; late divergences lengthen it once."""
        default = 500 + 50 * self.chains + min(10 * dim, 2000)
        return default if self.warm_up is None else self.warm_up

    def finished(self, iterate: Iterate) -> str | None:
        """Return the reason to end the run before its last commit, or None to continue."""
        draws = int(iterate.totals[Total.DRAWS])
        return f"{draws} draws were made" if draws >= self.draws else None

    def temperature(self, k: int) -> float:
        """Return infinity: a chain visits any U, so that a rise of U is no sign of divergence."""
        return math.inf

    def init(self, theta0: Array) -> Iterate:
        dim = theta0.size
        tuning = tuner.new_tuning(dim, self.acceptance)
        file = tuner.new_file(dim, self.chains, self.warm_up_commits(dim))
        statistics = np.zeros((min(self.draws, MOST_STATISTICS), len(STATISTICS)))
        totals = np.zeros(len(Total), np.int64)
        return Iterate(theta0.copy(), *tuning, file, totals, statistics)

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        m, d = self.per_worker, theta0.size
        return Worker(
            origin=theta0.copy(),
            x=np.zeros((m, d)),
            g=np.zeros((m, d)),
            value=np.zeros(m),
            metric=np.zeros((m, *metric_shape(d))),
            evidence=np.zeros(m),
            at_mode=np.ones(m, np.int64),
            begun=np.zeros(m, np.int64),
        )

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        target = Target(problem, local.origin.dtype)
        i = task.stream.k % self.per_worker
        begun = bool(local.begun[i])
        place = Place(local.x[i], local.metric[i], local.evidence[i], local.at_mode[i])
        # Searches and trajectories that leave the finite numbers turn back.
        with np.errstate(all="ignore"):
            # Once the metric was learned from its draws, a chain stays: leaving by what it saw would bias it.
            early = view.numbers[tuner.STAGE] == 0
            if not begun or (early and _is_hopeless(place, view)):
                return self._begin(view, local, target, task, i)
            return self._move(view, local, target, task, i)

    def _begin(
        self, view: Iterate, local: Worker, target: Target, task: Task, i: int
    ) -> Update:
        """Place a chain near the start that its search finds, or near the best start of all."""
        rng = task.stream.generator()
        origin = local.origin
        chain = task.worker * self.per_worker + i
        moved = bool(local.begun[i])
        if not moved:
            start = find_start(target, origin, rng, chain, self.chains)
            moved = _is_hopeless(start, view)
        if moved:
            start = place_at(
                target, view.best, at_mode=bool(view.numbers[tuner.AT_MODE])
            )
            # It will not move again, whatever it found.
            start = start._replace(evidence=float(view.numbers[tuner.BEST]))
        away = NEAR_THE_MODE * draw(start.metric, rng.standard_normal(origin.size))
        local.x[i] = finite_towards(target, start.x, away)
        local.value[i] = target.value_and_grad(local.x[i], local.g[i])
        if not math.isfinite(local.value[i]):
            # The chain waits at theta0, where U is finite, until another has a start.
            start = Place(origin.copy(), start.metric, LEAST_EVIDENCE)
            local.x[i] = origin
            local.value[i] = target.value_and_grad(local.x[i], local.g[i])
        local.metric[i] = start.metric
        local.evidence[i] = start.evidence
        local.at_mode[i] = start.at_mode
        local.begun[i] = 1
        facts = Facts(
            chain,
            target.gradients,
            at_mode=start.at_mode,
            evidence=start.evidence,
            moved=moved,
        )
        return Update(start.x.astype(origin.dtype), marginal_scale(start.metric), facts)

    def _move(
        self, view: Iterate, local: Worker, target: Target, task: Task, i: int
    ) -> Update:
        """Move a chain by one trajectory and its Metropolis test."""
        rng = task.stream.generator()
        stage = int(view.numbers[tuner.STAGE])
        longest = float(view.numbers[tuner.STEP])
        # `random` instead of `uniform`, which gives the same bits in four times the time.
        length = float(view.numbers[tuner.LENGTH]) * (0.75 + 0.5 * rng.random())
        # n and h are drawn before the trajectory and do not depend on x: the kernel stays reversible, and the
        # time of a step says nothing about the place.
        n = min(math.ceil(length / longest), MOST_LEAPFROG_STEPS)
        h = min(length / n, longest)
        if rng.random() < SHORT_SHARE:
            h *= SHORTEST ** rng.random()
        z = task.stream.normals(np.empty(local.origin.size))
        start = State(local.x[i], local.g[i], float(local.value[i]))
        if stage == 0:
            end = trajectory(target, start, local.metric[i], h, n, z)
        else:
            end = trajectory_in(view.chart, target, start, view.metric, h, n, z)
        accepted = rng.random() < end.acceptance
        # v = F z, so that v'H^-1 v / 2 = |z|^2 / 2.
        energy = start.value + 0.5 * sum_of_squares(z)
        if accepted:
            local.x[i], local.g[i], local.value[i] = end.state
        warm_up = self.warm_up_commits(z.size)
        counts = self.counts(
            task.stream.k,
            task.read,
            tuner.end_of(warm_up, bool(view.numbers[tuner.LONGER])),
        )
        facts = Facts(
            task.worker * self.per_worker + i,
            target.gradients,
            counts,
            stage,
            step=h,
            acceptance=end.acceptance,
            energy=energy,
            accepted=accepted,
            divergent=end.divergent,
            finite=end.finite,
        )
        # After the warm-up the master learns nothing: zeros keep the message of one size.
        g = np.zeros(z.size) if counts else local.g[i].copy()
        return Update(local.x[i].astype(local.origin.dtype), g, facts)

    def counts(self, k: int, read: int, warm_up: int) -> bool:
        """Return whether the draw of a worker's k-th step counts, which read version `read`.

        warm_up: the last commit of the warm-up.
        """
        # Both conditions follow from the schedule and the warm-up, never from draws that may count: choosing
        # these by their values would bias what is left.
        return k // self.per_worker >= BURN_IN and read >= warm_up

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        warm_up = self.warm_up_commits(iterate.theta.size)
        file = iterate.file
        tuning = tuner.Tuning(
            iterate.metric, iterate.best, iterate.numbers, iterate.chart
        )
        warming = commit.version <= tuner.end_of(
            warm_up, bool(tuning.numbers[tuner.LONGER])
        )
        for x, g, facts in updates:
            iterate.theta[...] = x
            self._count(iterate, facts)
            if not warming:
                continue
            if facts.stage < 0:
                start = Place(x, g, facts.evidence, bool(facts.at_mode))
                tuner.note_start(tuning, file, facts.chain, start)
                continue
            tuner.note_pair(file, facts.chain, commit.version, x, g)
            if facts.divergent:
                tuner.note_divergence(file, commit.version, warm_up)
            # An acceptance under an older metric says nothing about the step of this one.
            if facts.stage == int(tuning.numbers[tuner.STAGE]):
                tuner.note_acceptance(file, facts.step, facts.acceptance)
        if warming:
            with np.errstate(all="ignore"):
                tuner.learn(tuning, file, commit.version, warm_up, self.acceptance)
        return iterate

    def _count(self, iterate: Iterate, facts: Facts) -> None:
        totals = iterate.totals
        spent = Total.GRADIENTS if facts.counts else Total.WARM_UP_GRADIENTS
        totals[spent] += facts.gradients
        totals[Total.CHAINS_MOVED] += facts.moved
        totals[Total.STARTS_WITHOUT_MODE] += not facts.at_mode
        if facts.counts:
            draw = int(totals[Total.DRAWS])
            if draw < len(iterate.statistics):
                row = (facts.energy, facts.acceptance, facts.step, facts.divergent)
                iterate.statistics[draw] = row
            totals[Total.DRAWS] += 1
            totals[Total.ACCEPTED] += facts.accepted
            totals[Total.DIVERGENT] += facts.divergent
            totals[Total.NOT_FINITE] += not facts.finite

    def results(self, iterate: Iterate) -> Mapping[str, Array]:
        """Return what the chains drew with, and `STATISTICS` of each draw.

        "metric" is the factor of the metric; "step" has the step, the length, the number of rebuilds of the metric, and
        1 if the warm-up was lengthened.
        """
        draws = int(iterate.totals[Total.DRAWS])
        return {
            "metric": iterate.metric,
            "chart": iterate.chart,
            "step": iterate.numbers[
                [tuner.STEP, tuner.LENGTH, tuner.STAGE, tuner.LONGER]
            ],
            "statistics": iterate.statistics[:draws].copy(),
        }

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return {total.name.lower(): int(iterate.totals[total]) for total in Total}


def _is_hopeless(start: Place, view: Iterate) -> bool:
    """Return whether a chain's start has negligible mass beside the best of all."""
    margin = NEGLIGIBLE if start.at_mode else WORSE
    return bool(start.evidence < view.numbers[tuner.BEST] - margin)
