"""The law of the paper's SDE (8) in one dimension, with its correction (9) and without it.

    d theta = H(theta) p dt
    d p     = (Gamma(theta)/beta - H(theta) U'(theta) - gamma p) dt + sqrt(2 gamma/beta) dB

Proposition 1: the law of theta is exp(-beta U).  The algorithm leaves Gamma = H' out; in x = int d theta / H the
equation is then Langevin's own, so that theta has the density exp(-beta U) / H.

H(theta) is the inverse secant slope of a worker that came to theta by a fixed step: smooth, and bounded on
both sides, as the paper's assumptions ask.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

DIRECTION = 3.0
STEP = 0.7


def value(theta: Numbers) -> Numbers:
    """Return U = theta^2 / 2 + log cosh(3 theta): steep near 0, with curvature 1 far away."""
    along = np.abs(DIRECTION * theta)
    # log cosh z = |z| + log(1 + exp(-2|z|)) - log 2, which does not overflow.
    return np.asarray(
        0.5 * theta**2 + along + np.log1p(np.exp(-2.0 * along)) - np.log(2.0)
    )


def gradient(theta: Numbers) -> Numbers:
    """Return U'."""
    return np.asarray(theta + DIRECTION * np.tanh(DIRECTION * theta))


def inverse(theta: Numbers) -> Numbers:
    """Return H(theta), the L-BFGS matrix of the pair (s, U'(theta) - U'(theta - s))."""
    return np.asarray(STEP / (gradient(theta) - gradient(theta - STEP)))


def expected(beta: float, corrected: bool) -> tuple[float, float]:
    """Return the means of theta^2 and U under the law with Gamma or without it, by quadrature."""
    # Nine standard deviations of the widest law, exp(-beta theta^2 / 2).
    theta = np.linspace(-9.0, 9.0, 4001) / np.sqrt(beta)
    U = value(theta)
    # Relative to the minimum, so that large beta does not underflow everywhere.
    weight = np.exp(-beta * (U - U.min()))
    if not corrected:
        weight = weight / inverse(theta)
    weight /= weight.sum()
    return float(weight @ theta**2), float(weight @ U)
