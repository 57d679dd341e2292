"""The step size of trajectories, by a model of acceptance instead of feedback.

The energy error of a trajectory of leapfrog steps h is close to normal with mean c h^4 / 2 and variance
c h^4, so that it is accepted with probability

    P(h) = 2 Phi(-sqrt(c) h^2 / 2).

c is fitted to all acceptances that were seen, each at its own h, and the step is the one at which the fit
meets the wanted acceptance.  Unlike stochastic approximation this does not swing when updates are stale: an
acceptance says the same about c whenever it arrives.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from asyncqn.kernels.metric import acceptance_excess
from asyncqn.types import Array

PRIOR = 5.0
"""Acceptances that the c of before counts for."""
_LARGEST_STEP = 1.6
"""Leapfrog is unstable from 2 in the units of the metric."""


def first_constant(dim: int) -> float:
    """c before anything was seen: four times that of a Gaussian in its own metric, d / 16."""
    return dim / 4.0


def step_for(c: float, acceptance: float) -> float:
    """The step at which the model meets the wanted acceptance."""
    deviation = -2.0 * NormalDist().inv_cdf(acceptance / 2.0)
    return min(math.sqrt(deviation / math.sqrt(c)), _LARGEST_STEP)


def fit_constant(h: Array, accepted: Array, before: float, acceptance: float) -> float:
    """The c whose mean acceptance at the steps h is the one seen; `before` counts as `PRIOR` acceptances."""
    step = step_for(before, acceptance)
    prior = math.erfc(math.sqrt(before) * step * step / math.sqrt(8.0))
    # The constant of before counts as a few acceptances: the first ones after a rebuild decide little alone.
    h = np.append(h, step)
    accepted = np.append(accepted, prior)
    weight = np.append(np.ones(h.size - 1), PRIOR)
    low, high = math.sqrt(before) / 100.0, math.sqrt(before) * 100.0
    # The excess falls with c: bisection of its logarithm over four orders of magnitude.
    for _ in range(50):
        middle = math.sqrt(low * high)
        if acceptance_excess(h, accepted, weight, middle) > 0.0:
            high = middle  # more was accepted than this says: c is smaller
        else:
            low = middle
    return low * high
