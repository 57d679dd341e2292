"""H0 from the scatter of answers: about the inverse of their covariance, free of charge.

    F <- F + w (x x' / 2 - F),    x = answer - the answer before,    w = 1 / min(k, WINDOW)
    H0 = c [(1 - a) F + a diag F]^-1,    a = 1 / (1 + (k / d)^p)     k differences seen, k at most WINDOW

Differences in a row overlap, and k of them tell no more than 2 k / 3 answers would whose mean is known.  The
table, which steps by F while there are few, takes what an answer differs by from a running mean of those
before it, in which the newest weighs `RATE`: x x' / (1 + v) in place of x x' / 2, with v the variance of that
mean over the variance of an answer.

For a negative log-likelihood the covariance of a row's gradient is its mean curvature, at the truth (the
information equality), so that F is about a multiple of the Hessian; what it is off by is left to curvature
pairs.  A matrix of k differences has no more rank than k, so a share a is taken off what is beside its
diagonal.  Where features are rotated that hides directions which are flatter than the mean by more than a,
and only pairs find them.  A method with a pair after every pass does best with a smooth H0, p = 1; the table,
whose pairs are few, needs F as it is once there are some d of differences: p = 2 (to 0.1 % in 1.2 passes
instead of 13).  Where theta has more than `LONGEST` numbers only the diagonal of F is kept.

No direction is believed to be flatter than the stiffest coordinate by more than k^2.  The table takes k^1.5:
a prior has curvature too, which does not scatter, and where it exceeds that of the data steps by F alone are
many times too long; one pair after the other would mend them, which takes long where workers are many.
`algorithms.scatter` is the diagonal of the same, for methods with a step size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.kernels.gram import cholesky, solve
from asyncqn.kernels.scatter import note_deviation, note_difference, note_products, shrink_products
from asyncqn.types import Array

LONGEST, WINDOW = 200, 1000
"""Numbers in theta up to which F is a whole matrix; differences over which it forgets."""
LEAST = 4
"""Differences before H0 is made."""
RATE = 0.25
"""The weight of the newest answer in the running mean: it follows theta within a few answers."""
AGAIN = 1.25
"""H0 is made anew when so many times as many differences were seen."""


class ScatterMetric(NamedTuple):
    """F with all that makes H0 of it; (d, d) in and below the diagonal, or (1, d)."""

    F: npt.NDArray[np.float64]
    made: npt.NDArray[np.float64]
    """The triangular factor of what is inverted, or what is inverted itself where it is a diagonal."""
    last: npt.NDArray[np.float64]
    """The answer before, or the running mean of those before."""
    counts: npt.NDArray[np.int64]
    """(2,): answers seen, and how many they were when H0 was made (0: never)."""

    @property
    def known(self) -> bool:
        return bool(self.counts[1] > 0)


def new_metric(theta0: Array) -> ScatterMetric:
    """Nothing seen yet."""
    d = theta0.size
    shape = (d, d) if d <= LONGEST else (1, d)
    return ScatterMetric(np.zeros(shape), np.zeros(shape), np.zeros(d), np.zeros(2, np.int64))


def note_answer(metric: ScatterMetric, answer: Array) -> None:
    """One answer more; all must be scaled alike."""
    F, _, last, counts = metric
    counts[0] += 1
    if counts[0] == 1:
        last[:] = answer
        return
    weight = 1.0 / min(int(counts[0]) - 1, WINDOW)
    if len(F) == last.size:
        note_products(F, last, answer, weight)
    else:
        note_difference(F[0], last, answer, weight)


def note_from_mean(metric: ScatterMetric, answer: Array) -> None:
    """One answer more, by what it differs by from the running mean; all must be scaled alike."""
    F, _, mean, counts = metric
    before = int(counts[0])
    counts[0] += 1
    if before == 0:
        mean[:] = answer
        return
    variance = max(1.0 / before, RATE / (2.0 - RATE))
    rate = max(1.0 / (before + 1), RATE)
    note_deviation(F, mean, answer, 1.0 / min(before, WINDOW), 1.0 / (1.0 + variance), rate)


def note_version(metric: ScatterMetric, answers: Sequence[Array]) -> None:
    """The answers of all parts at one point: only they differ by their rows alone."""
    if len(answers) > 1:
        metric.last[:] = answers[0]
        metric.counts[0] = max(int(metric.counts[0]), 1)
        for answer in answers[1:]:
            note_answer(metric, answer)


def make_metric(metric: ScatterMetric, p: float = 1.0, flattest: float = 2.0) -> bool:
    """Make H0 of what was seen, where that is worth it; whether it was made anew.

    No direction is believed to be flatter than the stiffest coordinate by more than k^flattest.
    """
    F, made, _, counts = metric
    k = int(counts[0]) - 1
    if k < LEAST or counts[0] < AGAIN * counts[1]:
        return False
    diagonal = np.diagonal(F) if len(F) == F.shape[1] else F[0]
    stiffest = float(diagonal.max())
    if not 0.0 < stiffest < np.inf:
        return False
    floor = stiffest / min(k, WINDOW) ** flattest
    if len(F) == F.shape[1]:
        share = 1.0 / (1.0 + (min(k, WINDOW) / F.shape[1]) ** p)
        shrink_products(F, share, floor, made)
        while not cholesky(made):
            share = 0.5 * (1.0 + share)
            shrink_products(F, share, floor, made)
    else:
        np.add(F, floor, out=made)
    counts[1] = counts[0]
    return True


def apply_inverse(metric: ScatterMetric, v: npt.NDArray[np.float64]) -> None:
    """v becomes H0 v / c."""
    if len(metric.made) == v.size:
        solve(metric.made, v)
    else:
        v /= metric.made[0]


def drop_metric(metric: ScatterMetric) -> None:
    """H0 = c I from now on, as long as no further answers are noted."""
    metric.counts[:] = 0
