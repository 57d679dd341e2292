"""Losses of one row of a linear model: value, first and second derivative in z = x'theta.

A model names its loss by a number, so that one compiled kernel per storage format serves all losses.
"""

import math

import numpy as np

from asyncqn.kernels.jit import reducing_piece

LOGISTIC, POISSON, ROBUST, SQUARES = range(4)
"""Their y: -1 or 1; a count; a number with outliers; a number."""

_TRUST = 0.6
"""Smallest weight of an outlier, as a share of slope / residual; with a smaller one a step would
overshoot."""


@reducing_piece
def loss_and_slope(kind, width, y, z):
    """Return the loss in two terms and its derivative in z, without overflow where the loss has none.

    LOGISTIC: log(1 + exp(-y z)).  POISSON: exp(z) - y z, less its minimum.  ROBUST, with r = z - y:
    width^2 (sqrt(1 + (r / width)^2) - 1).  SQUARES: r^2 / 2.
    """
    if kind == LOGISTIC:
        margin = y * z
        # exp of a negative number cannot overflow, whatever the sign of the margin.
        small = np.exp(-abs(margin))
        # log(1 + exp(-m)) = max(-m, 0) + log(1 + exp(-|m|)).
        return (
            np.log1p(small),
            max(-margin, 0.0),
            -y * (1.0 if margin < 0.0 else small) / (1.0 + small),
        )
    if kind == POISSON:
        rate = np.exp(z)
        # The minimum over z, at exp(z) = y: without it the loss is half the deviance, 0 for a perfect fit.
        least = y - y * np.log(y) if y > 0.0 else 0.0
        return rate - y * z, -least, rate - y
    residual = z - y
    if kind == ROBUST:
        bend = math.sqrt(1.0 + (residual / width) * (residual / width))
        # The same as width^2 (bend - 1), without the cancellation for small residuals.
        return residual * residual / (1.0 + bend), 0.0, residual / bend
    return 0.5 * residual * residual, 0.0, residual


@reducing_piece
def weight_of(kind, width, y, z):
    """Return the second derivative in z; for outliers of ROBUST at least a share of slope / residual."""
    if kind == LOGISTIC:
        small = np.exp(-abs(z))
        return small / ((1.0 + small) * (1.0 + small))
    if kind == POISSON:
        return np.exp(z)
    if kind == ROBUST:
        bend = math.sqrt(1.0 + ((z - y) / width) * ((z - y) / width))
        # The second derivative is 1 / bend^3 and slope / residual is 1 / bend.
        return max(1.0 / (bend * bend), _TRUST) / bend
    return 1.0
