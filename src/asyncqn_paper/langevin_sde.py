"""The paper's SDE (8), with an L-BFGS matrix that depends on theta, with and without its correction (9).

    d theta = H(theta) p dt
    d p     = (Gamma(theta)/beta - H(theta) U'(theta) - gamma p) dt + sqrt(2 gamma/beta) dB,
    Gamma_i = sum_j d H_ij / d theta_j

Proposition 1: its law is exp(-beta U(theta) - beta |p|^2 / 2).  The algorithm leaves Gamma out.  In one
dimension the law without it is known too: in x = int d theta / H(theta) the equation is Langevin's own, so
that theta has the density exp(-beta U(theta)) / H(theta).

Here H(theta) is the L-BFGS matrix of a worker that came to theta by fixed steps s_k: y_k(theta) is the
difference of the gradients at theta and theta - s_k.  It is smooth and bounded on both sides, as the paper's
assumptions ask.  All functions take many chains at once, one per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float64]
"""(chains, d)."""

_DIFFERENCE = 1e-4
"""Step of the central differences in Gamma: their error, some 1e-8, is far below that of the integrator."""


@dataclass(frozen=True)
class Valley:
    """U(theta) = |theta|^2 / 2 + depth sum_k log cosh(theta . b_k): steep near 0, with curvature 1 far away.

    directions: the b_k, one per row.
    """

    directions: tuple[tuple[float, ...], ...]
    depth: float

    @property
    def dim(self) -> int:
        return len(self.directions[0])

    def value(self, theta: Vectors) -> Vectors:
        along = np.abs(theta @ np.array(self.directions).T)
        # log cosh z = |z| + log(1 + exp(-2|z|)) - log 2, which does not overflow.
        bends = along + np.log1p(np.exp(-2.0 * along)) - np.log(2.0)
        return np.asarray(
            0.5 * (theta * theta).sum(axis=1) + self.depth * bends.sum(axis=1)
        )

    def gradient(self, theta: Vectors) -> Vectors:
        b = np.array(self.directions)
        return np.asarray(theta + self.depth * np.tanh(theta @ b.T) @ b)


@dataclass(frozen=True)
class LBFGSField:
    """H(theta): the L-BFGS matrix of the pairs (s_k, U'(theta) - U'(theta - s_k)), oldest first."""

    model: Valley
    steps: tuple[tuple[float, ...], ...]

    def __call__(self, theta: Vectors) -> Vectors:
        """H at every row, (chains, d, d): H0 = (s'y / y'y) I of the newest pair, then an update per pair."""
        d = self.model.dim
        here = self.model.gradient(theta)
        pairs = []
        for step in self.steps:
            s = np.array(step)
            y = here - self.model.gradient(theta - s)
            pairs.append((s, y, y @ s))
        _, newest, sy = pairs[-1]
        # The usual scale of L-BFGS, from the newest pair.
        H = (sy / (newest * newest).sum(axis=1))[:, None, None] * np.eye(d)
        for s, y, sy in pairs:
            Hy = np.einsum("nij,nj->ni", H, y)
            cross = Hy[:, :, None] * s / sy[:, None, None]
            share = (1.0 + (y * Hy).sum(axis=1) / sy) / sy
            # The BFGS update of the inverse, (I - s y'/sy) H (I - y s'/sy) + s s'/sy, multiplied out.
            H = (
                H
                - cross
                - cross.transpose(0, 2, 1)
                + share[:, None, None] * np.outer(s, s)
            )
        return np.asarray(H)

    def with_divergence(self, theta: Vectors) -> tuple[Vectors, Vectors]:
        """H and Gamma at every row, by central differences."""
        n, d = theta.shape
        moves = _DIFFERENCE * np.vstack([np.zeros(d), np.eye(d), -np.eye(d)])
        H = self((theta + moves[:, None, :]).reshape(-1, d)).reshape(1 + 2 * d, n, d, d)
        # slopes[j] is dH / d theta_j; Gamma_i of equation (9) sums its entries (i, j) over j.
        slopes = (H[1 : 1 + d] - H[1 + d :]) / (2.0 * _DIFFERENCE)
        return H[0], np.asarray(np.einsum("jnij->ni", slopes))


class Phase(NamedTuple):
    """theta and its momentum: p, or u = h p."""

    theta: Vectors
    momentum: Vectors


class Drift(NamedTuple):
    """H, U' and Gamma / beta (zeros where it is left out) where a step begins."""

    H: Vectors
    gradient: Vectors
    correction: Vectors


def times(H: Vectors, v: Vectors) -> Vectors:
    """H v at every row."""
    return np.asarray(np.einsum("nij,nj->ni", H, v))


def step_p(
    at: Phase, drift: Drift, h: float, gamma: float, beta: float, Z: Vectors
) -> Phase:
    """Make one Euler step of the SDE in (theta, p), of size h."""
    theta, p = at
    force = drift.correction - times(drift.H, drift.gradient) - gamma * p
    # Equations (10) and (11): both right-hand sides are taken at the beginning of the step.
    return Phase(
        theta + h * times(drift.H, p),
        p + h * force + np.sqrt(2.0 * h * gamma / beta) * Z,
    )


class Chains(NamedTuple):
    """Parameters of the integration: step h, friction gamma, inverse temperature beta, and chains."""

    h: float
    gamma: float = 1.0
    beta: float = 1.0
    chains: int = 1000
    burn_in: float = 15.0
    """Time of the burn-in, which is discarded; chains start near the law."""
    duration: float = 25.0
    """Time over which moments are averaged."""


def moments(field: LBFGSField, chains: Chains, corrected: bool, seed: int) -> Vectors:
    """Return the time averages of (theta_1^2, ..., theta_d^2, U) of every chain, with or without Gamma."""
    model, (h, gamma, beta, n) = field.model, chains[:4]
    d = model.dim
    rng = np.random.Generator(np.random.Philox(key=[seed, 0x5DE]))
    # p starts in its law, which is N(0, I / beta) by Proposition 1.
    at = Phase(rng.standard_normal((n, d)), rng.standard_normal((n, d)) / np.sqrt(beta))
    nothing = np.zeros((n, d))
    total = np.zeros((n, d + 1))
    kept = 0
    # Times and not steps: a smaller h has more steps, and the same burn-in.
    first = int(chains.burn_in / h)
    last = int((chains.burn_in + chains.duration) / h)
    for k in range(last):
        H, correction = (
            field.with_divergence(at.theta) if corrected else (field(at.theta), nothing)
        )
        drift = Drift(H, model.gradient(at.theta), correction / beta)
        at = step_p(at, drift, h, gamma, beta, rng.standard_normal((n, d)))
        # Neighbouring steps are nearly equal.
        if k >= first and k % 4 == 0:
            total[:, :d] += at.theta**2
            total[:, d] += model.value(at.theta)
            kept += 1
    return np.asarray(total / kept)


def expected(field: LBFGSField, beta: float, corrected: bool = True) -> Vectors:
    """Return the limits of `moments`, by quadrature in d <= 2.

    The law is exp(-beta U), or, in one dimension and without Gamma, exp(-beta U) / H.
    """
    model = field.model
    d = model.dim
    # Nine standard deviations of the widest law, exp(-beta |theta|^2 / 2).
    line = np.linspace(-9.0, 9.0, 601) / np.sqrt(beta)
    points = np.stack(np.meshgrid(*[line] * d, indexing="ij"), axis=-1).reshape(-1, d)
    U = model.value(points)
    # Relative to the minimum, so that large beta does not underflow everywhere.
    weight = np.exp(-beta * (U - U.min()))
    if not corrected:
        if d != 1:
            raise ValueError(
                "without Gamma the law has no closed form beyond one dimension"
            )
        weight = weight / field(points)[:, 0, 0]
    measured = np.hstack([points**2, U[:, None]])
    return np.asarray((weight[:, None] * measured).sum(axis=0) / weight.sum())


LINE = LBFGSField(Valley(((3.0,),), 1.0), ((0.7,),))
"""One dimension, one pair: both laws are known."""
PLANE = LBFGSField(Valley(((3.0, 1.0), (-0.5, 2.5)), 1.0), ((0.6, 0.2), (-0.3, 0.6)))
"""Two dimensions, two pairs: the law with Gamma is known."""
