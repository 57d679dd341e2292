"""Rank-normalised split R-hat and bulk ESS: the agreement of chains, and the worth of their draws.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), extended to chains of
unequal length: a chain counts in proportion to its draws.  For chains of equal length the numbers are those
of ArviZ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from asyncqn.types import Array

MIN_DRAWS = 8
"""Smallest number of draws of a chain that is compared: each half needs a variance and a few lags."""


def rhat(chains: Sequence[Array]) -> Array:
    """Return R-hat of every parameter: the larger of the draws' and of their distances from the median."""
    halves = _halves(chains)
    # One table of quantiles for all parameters: the inverse of the normal law is slow in Python.
    scores = NormalScores(sum(map(len, halves)))
    out = np.empty(halves[0].shape[1])
    for i in range(out.size):
        columns = [half[:, i] for half in halves]
        middle = np.median(np.concatenate(columns))
        folded = [np.abs(column - middle) for column in columns]
        out[i] = max(_rhat(scores.of(columns)), _rhat(scores.of(folded)))
    return out


def ess(chains: Sequence[Array], ranked: bool = True) -> Array:
    """Return the effective number of draws of every parameter, over all chains.

    It holds for the bulk of the law, or without ranks for the mean.
    """
    halves = _halves(chains)
    scores = NormalScores(sum(map(len, halves)))
    numbers = []
    for i in range(halves[0].shape[1]):
        columns = [half[:, i] for half in halves]
        numbers.append(_ess(scores.of(columns) if ranked else columns))
    return np.array(numbers)


class NormalScores:
    """Ranks among n numbers as quantiles of a normal, (rank - 3/8) / (n + 1/4); ties share a mean rank."""

    def __init__(self, n: int) -> None:
        inverse = NormalDist().inv_cdf
        # Ranks are multiples of 1/2, because ties share a mean rank: the table is indexed by twice the rank.
        self._table = np.array(
            [inverse((0.5 * r - 0.375) / (n + 0.25)) for r in range(2, 2 * n + 1)]
        )

    def of(self, columns: Sequence[Array]) -> list[Array]:
        numbers = np.concatenate(columns)
        _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        # Twice the mean rank of the tied numbers, which occupy consecutive ranks.
        double_rank = 2 * np.cumsum(counts) - counts + 1
        scores = self._table[double_rank[place] - 2]
        return np.split(scores, np.cumsum([column.size for column in columns])[:-1])


def _halves(chains: Sequence[Array]) -> list[Array]:
    """Return the halves of every chain that is long enough, without the middle of an odd number."""
    return [
        half
        for chain in chains
        if len(chain) >= MIN_DRAWS
        for half in (chain[: len(chain) // 2], chain[len(chain) - len(chain) // 2 :])
    ]


def _moments(columns: Sequence[Array]) -> tuple[Array, float, float]:
    """Return each chain's share of the draws, the mean variance within chains, and that of their means."""
    lengths = np.array([column.size for column in columns])
    share = lengths / lengths.sum()
    means = np.array([column.mean() for column in columns])
    within = float(share @ np.array([column.var(ddof=1) for column in columns]))
    J = len(columns)
    # J / (J - 1) makes the variance of the means unbiased for chains of equal length.
    between = float(share @ (means - share @ means) ** 2) * J / (J - 1)
    return share, within, between


def _rhat(columns: Sequence[Array]) -> float:
    share, within, between = _moments(columns)
    n = sum(column.size for column in columns) / share.size
    if not within > 0.0:
        # Constant chains: all alike say nothing, different ones disagree completely.
        return math.nan if between == 0.0 else math.inf
    return math.sqrt(between / within + (n - 1.0) / n)


def _autocovariance(x: Array) -> Array:
    n = x.size
    # Padded with zeros to twice the length, so that the circular correlation does not wrap around.
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(x - x.mean(), size)
    return np.fft.irfft(np.abs(spectrum) ** 2, size)[:n] / n


def _ess(columns: Sequence[Array]) -> float:
    """Return the draws over the integrated autocorrelation, cut by Geyer's initial monotone sequence."""
    share, within, between = _moments(columns)
    lengths = [column.size for column in columns]
    total, longest = sum(lengths), max(lengths)
    if not within > 0.0:
        return math.nan
    autocovariance, weights = np.zeros(longest), np.zeros(longest)
    for weight, column in zip(
        share, columns
    ):  # a lag is seen by the chains that are longer than it
        autocovariance[: column.size] += weight * _autocovariance(column)
        weights[: column.size] += weight
    autocovariance /= weights
    spread = float(autocovariance[0]) + between
    # Vehtari et al.: disagreement of the chains (`between`) counts as correlation at every lag.
    rho = 1.0 - (within - autocovariance) / spread
    rho[0] = 1.0
    # Sums of pairs (rho_0 + rho_1), (rho_2 + rho_3), ... while they are positive, then made monotone; of the
    # first pair that is not, or of the last, the even member counts half.
    last = max(2, 2 * ((longest - 1) // 2))
    pairs = rho[:last:2] + rho[1:last:2]
    negative = np.flatnonzero(pairs < 0.0)
    end = int(negative[0]) if negative.size else pairs.size - 1
    tau = (
        -1.0
        + 2.0 * float(np.minimum.accumulate(pairs[:end]).sum())
        + max(float(rho[2 * end]), 0.0)
    )
    # Antithetic chains may be worth more than their draws, but at most by a factor log10 of their number.
    return total / max(tau, 1.0 / math.log10(total))
