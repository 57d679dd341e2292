"""Two rivals of the family, on a recorded schedule: DAve-QN, and MindFlayer for heavy tails.

Both work with any smooth sum whose rows `grad(theta, rows, out)` scales to the whole sum.  Check them with
`python -m schedules.rivals`: each against the formula of its paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Gradient = Callable[[np.random.Generator], Vector]
"""A stochastic gradient at the point of the round."""


class Shards:
    """The sum as one smooth function per worker: consecutive rows, and an equal part of the prior."""

    def __init__(self, problem: Any, workers: int) -> None:
        self.problem = problem
        self.rows = np.array_split(np.arange(problem.n_data), workers)

    def gradient(self, worker: int, theta: Vector) -> Vector:
        """Return the gradient of the worker's function; over all workers they add up to that of U."""
        rows = self.rows[worker]
        out = np.empty_like(theta)
        self.problem.grad(theta, rows, out)
        # `grad` scales to the whole sum, the prior is counted once.
        return out * len(rows) / self.problem.n_data


class DAveQN:
    """DAve-QN (Soori et al., AISTATS 2020): asynchronous BFGS with a dense matrix per worker.

    Worker i keeps z_i, grad f_i(z_i) and B_i.  At x it forms s = x - z_i, y = grad f_i(x) - grad f_i(z_i),
    B_i+ = B_i + y y' / y's - B_i s s' B_i / s'B_i s.  The master keeps the inverse of B = sum B_i by two rank-one
    updates, u = sum B_i z_i and g = sum grad f_i(z_i); its iterate is B^{-1} (u - g).
    """

    def __init__(self, shards: Shards, theta: Vector, curvature: float) -> None:
        workers = len(shards.rows)
        self.shards = shards
        self.z = [theta.copy() for _ in range(workers)]
        self.gradients = [shards.gradient(i, theta) for i in range(workers)]
        # B_i = L_i I at first: the step is that of gradient descent.
        start = curvature / workers * np.eye(theta.size)
        self.B = [start.copy() for _ in range(workers)]
        self.inverse = np.eye(theta.size) / curvature
        self.u = curvature * theta
        self.g = np.sum(self.gradients, axis=0)
        self.theta = self.inverse @ (self.u - self.g)

    def update(self, worker: int, x: Vector) -> None:
        """Let the worker compute at x, and the master take up what it sends."""
        new = self.shards.gradient(worker, x)
        s = x - self.z[worker]
        y = new - self.gradients[worker]
        B = self.B[worker]
        q = B @ s
        alpha = float(y @ s)
        beta = float(s @ q)
        if alpha <= 1e-12 * float(s @ s) or beta <= 0.0:
            # A worker whose point did not move has nothing to send.
            return
        changed = B + np.outer(y, y) / alpha - np.outer(q, q) / beta
        self.u += changed @ x - B @ self.z[worker]
        self.g += y
        v = self.inverse @ y
        middle = self.inverse - np.outer(v, v) / (alpha + y @ v)
        w = middle @ q
        self.inverse = middle + np.outer(w, w) / (beta - q @ w)
        self.B[worker] = changed
        self.z[worker] = x.copy()
        self.gradients[worker] = new
        self.theta = self.inverse @ (self.u - self.g)


def dave_qn(
    shards: Shards, schedule: Any, theta0: Vector, curvature: float
) -> Iterator[tuple[float, Vector]]:
    """Yield time and iterate of DAve-QN after every commit of the schedule."""
    method = DAveQN(shards, theta0, curvature)
    versions = [theta0.copy()]
    for worker, read, time in zip(
        schedule.worker, schedule.read, schedule.time, strict=True
    ):
        method.update(int(worker), versions[int(read)])
        versions.append(method.theta.copy())
        yield float(time), method.theta


@dataclass(frozen=True)
class MindFlayer:
    """MindFlayer SGD (Maranjyan, Omar, Richtarik 2025): trials that last longer than t_i are given up.

    In a round worker i makes `trials` computations at the same x, each cut off after `allowed[i]`.
    x+ = x - h (1 / B) sum of the gradients that ended, with B = sum_i p_i trials and p_i the probability that a
    computation of worker i ends in time: E of the sum over B is the gradient.
    """

    h: float
    trials: int
    allowed: Vector
    likely: Vector
    """The p_i."""

    @classmethod
    def of_times(cls, h: float, trials: int, times: list[Vector]) -> MindFlayer:
        """Choose t_i by the median of the worker's recorded times, as the paper does."""
        allowed = np.array([np.median(mine) for mine in times])
        likely = np.array(
            [np.mean(mine <= t) for mine, t in zip(times, allowed, strict=True)]
        )
        return cls(h, trials, allowed, likely)

    def round(
        self, times: list[Vector], gradient: Gradient, rng: np.random.Generator
    ) -> tuple[float, Vector]:
        """Return how long a round lasts and its estimate of the gradient."""
        total = 0.0 * gradient(rng)
        longest = 0.0
        for worker, mine in enumerate(times):
            drawn = rng.choice(mine, self.trials)
            for _ in range(int((drawn <= self.allowed[worker]).sum())):
                total = total + gradient(rng)
            spent = np.minimum(drawn, self.allowed[worker]).sum()
            longest = max(longest, float(spent))
        return longest, total / (self.trials * self.likely.sum())


def check() -> None:
    """Compare both with the formulas of their papers; raise AssertionError where they differ."""
    import asyncqn as aq

    problem = aq.LinearGaussian.random(dim=6, n_data=60, seed=0)
    shards = Shards(problem, 4)
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(6)
    whole = np.empty(6)
    problem.grad(theta, np.arange(60), whole)
    parts = np.sum([shards.gradient(i, theta) for i in range(4)], axis=0)
    assert np.allclose(parts, whole, rtol=1e-10)
    method = DAveQN(shards, theta, 50.0)
    for k in range(60):
        worker = k % 4
        before = method.z[worker].copy()
        old = method.gradients[worker].copy()
        x = method.theta.copy()
        method.update(worker, x)
        # The secant equation of B_i, the inverse of the sum, and the iterate of the paper's (11).
        secant = method.B[worker] @ (x - before) - (method.gradients[worker] - old)
        assert np.linalg.norm(secant) < 1e-6 * max(1.0, np.linalg.norm(old))
        B = np.sum(method.B, axis=0)
        assert np.allclose(method.inverse @ B, np.eye(6), atol=1e-5)
        u = np.sum([b @ z for b, z in zip(method.B, method.z, strict=True)], axis=0)
        g = np.sum(method.gradients, axis=0)
        assert np.allclose(B @ method.theta, u - g, atol=1e-5 * np.abs(u).max())
        if np.linalg.norm(g) < 1e-7:
            break
    assert np.linalg.norm(method.theta - problem.optimum_theta) < 1e-5
    times = [rng.lognormal(0.0, 1.5, 400) for _ in range(4)]
    flayer = MindFlayer.of_times(1.0, 3, times)
    estimates = [flayer.round(times, lambda _: np.ones(2), rng)[1] for _ in range(4000)]
    # Unbiased: with every gradient equal to 1 the mean of the estimate is 1.
    assert abs(np.mean(estimates) - 1.0) < 4 * np.std(estimates) / np.sqrt(4000)


if __name__ == "__main__":
    check()
    print("DAve-QN and MindFlayer agree with the formulas of their papers")
