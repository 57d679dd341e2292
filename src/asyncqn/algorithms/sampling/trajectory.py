"""One Hamiltonian trajectory with its Metropolis test, under a metric H that is never inverted.

    v_0 ~ N(0, H);  n times:  v -= (h/2) H g,  x += h v,  v -= (h/2) H g           (leapfrog)

With w = h (g_0/2 + g_1 + ... + g_n/2) the velocity ends at v_n = v_0 - H w, so that the kinetic energy
v'H^-1 v / 2 changes by -w'(v_0 + v_n)/2: no inverse is needed.  The end is accepted with probability
min(1, exp(-(U_n - U_0) + w'(v_0 + v_n)/2)).

The map is reversible and keeps volume for every fixed H, h and n, so the kernel leaves exp(-U) invariant
whatever H is.  A trajectory that leaves the finite numbers continues with gradients at its start, which are
thrown away: the number of gradients, and with it the time of a step, does not depend on the state.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from asyncqn.algorithms.sampling.metric import draw
from asyncqn.kernels.metric import apply, kick_and_drift
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array

DIVERGENT = 1000.0
"""An energy error beyond this is a divergence: the steps are too long for the curvature met."""


class Smooth(Protocol):
    """A function of a vector with its gradient: U, or U in other coordinates."""

    def value_and_grad(self, x: Array, out: Array) -> float: ...

    def grad(self, x: Array, rows: Any, out: Array) -> None: ...


class State(NamedTuple):
    """A point with its gradient and U there."""

    x: Array
    g: Array
    value: float


class End(NamedTuple):
    """The proposal of a trajectory, and the probability to accept it."""

    state: State
    acceptance: float
    divergent: bool
    finite: bool
    """False where U or its gradient was not finite at a place that a stable trajectory reached."""


def trajectory(
    target: Smooth, start: State, metric: Array, h: float, n: int, z: Array
) -> End:
    """Return the end of n leapfrog steps h from a place; z: the normals of the velocity."""
    # x and g are copied: the caller keeps its own if the end is rejected.
    x, g = start.x.copy(), start.g.copy()
    v = draw(metric, z)
    v_0 = v.copy()
    w = np.zeros(x.size)
    work, Hg = np.empty((2, x.size))
    lost = False
    value = math.inf
    for i in range(n + 1):
        if i == n:
            value = target.value_and_grad(start.x if lost else x, g)
        elif i > 0:
            target.grad(start.x if lost else x, None, g)
        if not lost:
            apply(metric, g, work, Hg)
            # Two half steps of the velocity between two moves are one, so that a step takes one gradient.
            kick = 1.0 if 0 < i < n else 0.5
            lost = not kick_and_drift(h, kick, i < n, g, Hg, x, v, w)
    # Kinetic energy lost until the last gradient that was finite.
    kinetic = 0.5 * h * (dot(w, v_0) + dot(w, v))
    error = math.inf if lost else value - start.value - kinetic
    if not error <= DIVERGENT:  # NaN as well
        # A step that is too long for the curvature overflows in the end.  Its kinetic energy shows that it
        # had diverged before, so that the problem is not to blame for the numbers that are not finite.
        finite = math.isfinite(error) or not abs(kinetic) <= DIVERGENT
        return End(start, 0.0, divergent=True, finite=finite)
    acceptance = math.exp(min(0.0, -error))
    return End(State(x, g, value), acceptance, divergent=False, finite=True)
