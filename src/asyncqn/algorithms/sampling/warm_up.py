"""The warm-up: the master learns the metric, the chart, the step size and the length of trajectories.

The master files the (draw, gradient) pairs of all chains, rebuilds metric and chart at 20, 40 and 70 % of the
warm-up, and fits the step size to the acceptances seen under the present metric.  At the end it freezes all
of them: from then on every chain is a homogeneous Metropolis chain.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.sampling.bends import fit_chart
from asyncqn.algorithms.sampling.chart import folded, no_chart
from asyncqn.algorithms.sampling.evidence import Place
from asyncqn.algorithms.sampling.metric import from_points, metric_shape
from asyncqn.algorithms.sampling.search import SAME_MODE
from asyncqn.algorithms.sampling.step_size import first_constant, fit_constant, step_for
from asyncqn.types import Array, Counters

REBUILDS = (0.2, 0.4, 0.7)
"""Shares of the warm-up after which the metric is built anew."""
QUARTER_TURN = 0.5 * math.pi
"""The length of a trajectory: a quarter of the period of a Gaussian in its own metric."""
LENGTHENING = 1.5
"""Factor on a warm-up whose last third still had divergences: it is lengthened once."""
REBUILDS_IF_LONGER = (1.0, 1.25)
"""Further rebuilds of a warm-up that is lengthened, as shares of its planned length."""
REFIT = 10
"""Commits between two fits of the step size."""
_MOST_NUMBERS = 4_000_000
"""Numbers on file at most; of a long theta only every n-th pair is filed."""

STAGE, STEP, LENGTH, BEST, AT_MODE, CONSTANT, LONGER = range(7)
"""Places in `Tuning.numbers`."""


class Tuning(NamedTuple):
    """The message to workers: the metric, the start of most mass, and numbers.

    numbers: how often the metric was rebuilt (0: each chain uses the one of its own start), the step, the
    length of trajectories, the log evidence of `best` and whether it is a mode, c of the model of acceptance,
    and 1 if the warm-up is lengthened.
    """

    metric: Array
    best: Array
    numbers: Array  # (7,)
    chart: Array


class File(NamedTuple):
    """The master's records of the warm-up: pairs, acceptances, and the starts of the chains."""

    x: Array  # (R, d)
    g: Array  # (R, d)
    of: Counters  # (R, 2): the chain and the commit of each pair; -1 where there is none
    acceptances: Array  # (R', 2): the step and the probability to accept
    starts: Array  # (chains, d)
    at_mode: Counters  # (chains,): 1 where the start is a mode
    # (chains,): the first chain with the same start; -1 before it has one
    groups: Counters
    # (4,): pairs seen, acceptances seen, acceptances before the last rebuild, late divergences
    counts: Counters


def new_tuning(dim: int, acceptance: float) -> Tuning:
    """Return the message to workers before anything is known."""
    c = first_constant(dim)
    numbers = np.array([0.0, step_for(c, acceptance), QUARTER_TURN, -np.inf, 0, c, 0])
    return Tuning(np.zeros(metric_shape(dim)), np.zeros(dim), numbers, no_chart(dim))


def new_file(dim: int, chains: int, warm_up: int) -> File:
    """Return empty records for a warm-up that is planned for `warm_up` commits."""
    longest = end_of(warm_up, longer=True)
    rows = min(longest, max(_MOST_NUMBERS // dim, 1))
    return File(
        x=np.zeros((rows, dim)),
        g=np.zeros((rows, dim)),
        of=np.full((rows, 2), -1, np.int64),
        acceptances=np.zeros((longest, 2)),
        starts=np.zeros((chains, dim)),
        at_mode=np.ones(chains, np.int64),
        groups=np.full(chains, -1, np.int64),
        counts=np.zeros(4, np.int64),
    )


def note_start(tuning: Tuning, file: File, chain: int, start: Place) -> None:
    """Record where a chain begins; the metric of `start` is the row of a diagonal."""
    if start.evidence > tuning.numbers[BEST]:
        tuning.numbers[BEST] = start.evidence
        tuning.numbers[AT_MODE] = start.at_mode
        tuning.best[...] = start.x
    if chain >= file.groups.size:
        return  # a worker that joined beyond the planned number of chains belongs to no group
    group = chain
    for other in np.flatnonzero(file.groups >= 0):
        # Starts without a mode are places of one posterior, through which all chains will move.
        if bool(file.at_mode[other]) != start.at_mode:
            continue
        away = np.abs(start.x - file.starts[other])
        if not start.at_mode or (away <= SAME_MODE * start.metric).all():
            group = int(file.groups[other])
            break
    file.starts[chain] = start.x
    file.at_mode[chain] = start.at_mode
    file.groups[chain] = group


def note_pair(file: File, chain: int, version: int, x: Array, g: Array) -> None:
    """File a draw and its gradient, or every n-th of them where the file is too short for all.

    n has no divisor in common with the number of chains: their draws often arrive in turn.
    """
    n = -(-len(file.acceptances) // len(file.x))
    while math.gcd(n, file.groups.size) > 1:
        n += 1
    place, rest = divmod(int(file.counts[0]), n)
    file.counts[0] += 1
    if rest == 0:
        file.x[place] = x
        file.g[place] = g
        file.of[place] = chain, version


def note_acceptance(file: File, h: float, acceptance: float) -> None:
    """Record the probability to accept a trajectory of steps h under the present metric."""
    file.acceptances[file.counts[1]] = h, acceptance
    file.counts[1] += 1


def note_divergence(file: File, version: int, warm_up: int) -> None:
    """Count a divergent trajectory of the last third of the planned warm-up."""
    if 3 * version >= 2 * warm_up and version <= warm_up:
        file.counts[3] += 1


def end_of(warm_up: int, longer: bool) -> int:
    """Return the last commit of a warm-up that was planned for `warm_up` commits."""
    return math.ceil(LENGTHENING * warm_up) if longer else warm_up


def learn(
    tuning: Tuning, file: File, version: int, warm_up: int, acceptance: float
) -> None:
    """Rebuild the metric and refit the step size where they are due after a commit of the warm-up."""
    if version == warm_up and file.counts[3] > 0:
        # Chains still met places that the metric and the step do not suit.
        tuning.numbers[LONGER] = 1.0
    longer = bool(tuning.numbers[LONGER])
    shares = (*REBUILDS, *REBUILDS_IF_LONGER) if longer else REBUILDS
    if any(version == math.ceil(share * warm_up) for share in shares):
        fitted = _constant(tuning, file, acceptance)
        if _rebuild(tuning, file, version):
            # Acceptances under the metric of before say little about this one: they count for a few.
            tuning.numbers[CONSTANT] = fitted
            file.counts[2] = file.counts[1]
    if version % REFIT == 0 or version == end_of(warm_up, longer):
        tuning.numbers[STEP] = step_for(_constant(tuning, file, acceptance), acceptance)


def _constant(tuning: Tuning, file: File, acceptance: float) -> float:
    """Fit c of the model of acceptance to the acceptances seen under the present metric."""
    steps, accepted = file.acceptances[file.counts[2] : file.counts[1]].T.copy()
    before = float(tuning.numbers[CONSTANT])
    return fit_constant(steps, accepted, before, acceptance) if steps.size else before


def _rebuild(tuning: Tuning, file: File, version: int) -> bool:
    """Build metric and chart from the pairs of the last two thirds, centred on the mean of each mode's chains.

    Returns False where they are too few: the chains then continue with the metric that they have.
    """
    # The first third may still be on its way from the mode, where every chain begins.
    chosen = file.of[:, 1] >= version / 3
    if not chosen.any():
        return False
    S, Y, chains = file.x[chosen], file.g[chosen], file.of[chosen, 0]
    # Two modes would look like a bend from one to the other.
    modes = np.unique(file.groups[(file.groups >= 0) & (file.at_mode == 1)])
    chart = fit_chart(S, Y) if len(modes) <= 1 else tuning.chart
    if len(modes) <= 1:
        S, Y = folded(chart, S, Y)
    # Centring on the mean of all chains would take the distance between two modes for the width of one.
    planned = chains < file.groups.size
    groups = np.where(planned, file.groups[np.where(planned, chains, 0)], -1)
    for group in np.unique(groups):
        inside = groups == group
        for part in (S, Y):
            part[inside] -= part[inside].mean(axis=0)
    fitted = from_points(S, Y, chains)
    if fitted is None:
        return False
    # After a quarter turn of a harmonic motion the end is independent of the start.
    tuning.numbers[LENGTH] = QUARTER_TURN * fitted.width
    tuning.numbers[STAGE] += 1
    tuning.metric[...] = fitted.metric
    tuning.chart[...] = chart
    return True
