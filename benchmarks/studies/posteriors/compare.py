"""Draws against reference draws: errors of means and standard deviations, in units of the latter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncqn.checks.mixing import ess_of_mean

MEAN, SD, ERRORS = 0.1, 0.05, 3.0
"""A mean may be off by 0.1 sd and an sd by 5 %, or either by three Monte-Carlo errors."""


class Moments(NamedTuple):
    """Means and standard deviations of all parameters, with their Monte-Carlo errors."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray
    ess: float
    """The least effective number of draws, of parameters and of their squared distances."""


def moments(chains: Sequence[np.ndarray]) -> Moments:
    """The moments of chains of shape (draws, parameters)."""
    pooled = np.concatenate(chains)
    mean, sd = pooled.mean(axis=0), pooled.std(axis=0)
    squares = [(chain - mean) ** 2 for chain in chains]
    worth, worth_squared = ess_of_mean(chains), ess_of_mean(squares)
    sd_error = np.concatenate(squares).std(axis=0) / np.sqrt(worth_squared) / (2.0 * sd)
    return Moments(
        mean,
        sd,
        sd / np.sqrt(worth),
        sd_error,
        float(min(worth.min(), worth_squared.min())),
    )


def compare(drawn: Moments, reference: Moments) -> dict[str, Any]:
    """The largest errors, the z-scores of all means, and whether every parameter is within the margins."""
    off = np.abs(drawn.mean - reference.mean)
    ratio = drawn.sd / reference.sd
    mean_error = np.hypot(drawn.mean_error, reference.mean_error)
    sd_error = np.hypot(drawn.sd_error, reference.sd_error)
    good = (off <= np.maximum(MEAN * reference.sd, ERRORS * mean_error)) & (
        np.abs(drawn.sd - reference.sd)
        <= np.maximum(SD * reference.sd, ERRORS * sd_error)
    )
    strict = (off <= MEAN * reference.sd) & (np.abs(ratio - 1.0) <= SD)
    return {
        "mean": float((off / reference.sd).max()),
        "sd": float(ratio[np.argmax(np.abs(ratio - 1.0))]),
        "right": bool(good.all()),
        "right_strictly": bool(strict.all()),
        "z": ((drawn.mean - reference.mean) / mean_error).round(3).tolist(),
        "z_sd": ((drawn.sd - reference.sd) / sd_error).round(3).tolist(),
    }
