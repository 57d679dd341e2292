"""Chains of as-L-BFGS on a quadratic for the study of the theory, and two small measurements.

The step h of the SDE enters as h' = h^2 and gamma' = h gamma, with gamma = 1 throughout.  `theory` says which
chains are run, and judges them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from asyncqn import ASLBFGS, SGD, Cluster, LinearGaussian, Run, Simulator
from asyncqn.types import Algorithm, Array, Progress, Request, Rows, Stream, Task
from asyncqn_paper.cells import Cell
from asyncqn_paper.records import Record

DIM = 10
N_DATA = 100
COLD = 1e6
EVERY = 5
STUDIES: dict[str, tuple[str, tuple[float, ...]]] = {
    "h": ("bias", (0.004, 0.008, 0.016, 0.032)),
    "W": ("staleness", (1, 4, 16, 32)),
    "beta": ("temperature", (1.0, 3.0, 10.0, 30.0, 100.0)),
}
"""What is varied: the claim and its values."""
LENGTHS = (250, 500, 1000, 2000, 4000)
STEP = 0.7
"""h = STEP / sqrt(N), where both terms of the bound fall as 1 / sqrt(N)."""
BASE = 1000
CROWDS = (1, 2, 4, 8, 16, 32)


@cache
def problem() -> LinearGaussian:
    """Return the quadratic: d = 10, curvatures from 1 to 4."""
    return LinearGaussian.random(DIM, N_DATA, spectrum=np.geomspace(1.0, 4.0, DIM))


def curvatures() -> Array:
    """Return the curvatures along the axes of the law; exp(-beta U) has the variances 1 / (beta curvature)."""
    return np.asarray(np.linalg.eigvalsh(problem().precision))


def recursion_variances(workers: int, h: float) -> Array:
    """Return the stationary variances of the recursion over those of the law, with H = I and W equal workers.

    theta_{n+1} = theta_n + u_{n-l}, u_{n+1} = u_n - h' lambda theta_{n-l} - gamma' u_{n-l} + noise, l = W - 1:
    the covariance of (theta_n, ..., theta_{n-l}, u_n, ..., u_{n-l}) solves a Lyapunov equation.
    """
    size = workers
    ratios = []
    for curvature in curvatures():
        A = np.zeros((2 * size, 2 * size))
        A[0, 0] = A[size, size] = 1.0
        A[0, -1] += 1.0
        A[size, size - 1] -= h**2 * curvature
        A[size, -1] -= h
        # The others move down by one.
        for k in range(1, size):
            A[k, k - 1] = A[size + k, size + k - 1] = 1.0
        noise = np.zeros_like(A)
        noise[size, size] = 2.0 * h**3
        system = np.eye(A.size) - np.kron(A, A)
        ratios.append(np.linalg.solve(system, noise.ravel())[0] * curvature)
    return np.array(ratios)


def simulate(
    method: Algorithm,
    workers: int,
    commits: int,
    seed: int,
    look: Callable[[Progress], object],
) -> Run:
    """Run a chain from a random start, with a look at every fifth iterate."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 7]))
    request = Request(
        problem(),
        method,
        theta0=problem().optimum_theta + rng.standard_normal(DIM),
        commits=commits,
        seed=seed,
        evaluate=EVERY,
        callback=look,
    )
    return Simulator(Cluster(workers, 1.0, 0.3)).minimize(request)


@dataclass(frozen=True)
class Chain(Cell):
    """One run of as-L-BFGS: N commits of step h of the SDE."""

    table: ClassVar[str] = "chains"
    memory: int
    N: int
    h: float
    workers: int
    beta: float
    exact: bool
    seed: int

    def measure(self) -> list[Record]:
        """Return the mean excess over U* and the variances along the axes, of the second half."""
        model = problem()
        # Exact gradients where the law or the start is measured; noisy ones where the bias in h is, which
        # is theirs.
        batch = model.n_data if self.exact else 20
        method = ASLBFGS(
            # h' = h^2 and gamma' = h gamma, as below equation (11).
            h=self.h**2,
            gamma=self.h,
            beta=self.beta,
            memory=self.memory,
            batch=batch,
            overlap=batch // 2,
            sampling="shuffled" if self.exact else "replacement",
        )
        thetas: list[Array] = []

        def look(progress: Progress) -> None:
            thetas.append(progress.theta)

        run = simulate(method, self.workers, self.N, self.seed, look)
        # A chain that explodes has no law; the setting is then undecided.
        if run.status == "diverged" or not np.isfinite(thetas[-1]).all():
            return [{"mean": None}]
        # The first half is left to the burn-in.
        thetas = thetas[1:]
        half = np.array(thetas[len(thetas) // 2 :])
        mean = np.mean([model.value(theta) for theta in half]) - model.optimum
        record: Record = {"mean": float(mean)}
        # Variances are compared along the axes of the law.
        axes = np.linalg.eigh(model.precision)[1]
        centred = half - half.mean(axis=0)
        for k, variance in enumerate((centred @ axes).var(axis=0)):
            record[f"variance {k}"] = float(variance)
        return [record]


def chain(study: str, memory: int, value: float, seed: int) -> Chain:
    """Return a run of a study; every value has a seed of its own."""
    # Trajectories of one seed at two temperatures would be multiples of each other.
    number = 1 + list(STUDIES).index(study)
    own = 1000 * seed + 10 * number + STUDIES[study][1].index(value)
    if study == "h":
        return Chain(memory, int(200 / value), value, 1, COLD, False, own)
    if study == "W":
        return Chain(memory, 20_000, 0.003, int(value), COLD, False, own)
    return Chain(memory, 16_000, 0.05, 1, value, True, own)


def law_chain(memory: int, workers: int, beta: float, h: float, seed: int) -> Chain:
    """Return a run whose law is compared with exp(-beta U)."""
    # Apart from the seeds of `chain`.
    own = 100_000 + 1000 * seed + int(beta) + int(10_000 * h)
    return Chain(memory, int(400 / h), h, workers, beta, True, own)


@dataclass(frozen=True)
class Average(Cell):
    """The mean of U - U* over the first n iterates, of runs with noisy gradients and no temperature.

    The curve is the mean of a block of seeds: errors are spreads between blocks.
    """

    table: ClassVar[str] = "averages"
    memory: int
    N: int
    h: float
    workers: int
    first: int
    seeds: int

    def measure(self) -> list[Record]:
        # A run that diverges ends early, and its means are infinite from there on.
        curves = np.full((self.seeds, self.N // EVERY + 1), np.inf)
        for k in range(self.seeds):
            means = self.run(self.first + k)
            curves[k, : len(means)] = means
        means = curves.mean(axis=0)
        records: list[Record] = []
        # Two dozen lengths, evenly spaced in logarithm, up to the whole run.
        for k in np.unique(np.geomspace(20, len(means), 24).astype(int)):
            mean = float(means[k - 1])
            mean_or_none = mean if math.isfinite(mean) else None
            records.append({"n": int(EVERY * k), "mean": mean_or_none})
        return records

    def run(self, seed: int) -> Array:
        """Return the means over the first n iterates of one run, for every n."""
        method = ASLBFGS(
            h=self.h**2,
            gamma=self.h,
            beta=COLD,
            memory=self.memory,
            batch=20,
            overlap=10,
        )
        excess: list[float] = []

        def look(progress: Progress) -> None:
            excess.append(float(problem().value(progress.theta)) - problem().optimum)

        simulate(method, self.workers, self.N, seed, look)
        return np.asarray(np.cumsum(excess) / np.arange(1, len(excess) + 1))


def rate_cell(memory: int, N: int, block: int) -> Average:
    """Return runs of N iterations with the h that minimises the bound: h = c / sqrt(N)."""
    h = float(f"{STEP / math.sqrt(N):.4g}")
    return Average(memory, N, h, 1, _first(N, block), 15)


def speedup_cell(memory: int, workers: int, block: int) -> Average:
    """Return runs with W workers and the h that belongs to `BASE` iterations of one worker."""
    h = float(f"{STEP / math.sqrt(BASE):.4g}")
    # More runs for the W that decide than for those that are only drawn.
    seeds = 30 if workers <= 4 else 3
    return Average(memory, 4 * BASE, h, workers, _first(7 + workers, block), seeds)


def _first(place: int, block: int) -> int:
    """Return the first seed of a block: every point of a curve has noise of its own."""
    return 10_000_000 + 100_000 * place + 1000 * block


@dataclass(frozen=True)
class MomentumLimit(Cell):
    """The largest difference from SGD with momentum over 200 steps: beta = inf, W = 1, H = I."""

    table: ClassVar[str] = "limit"
    integrator: str

    def measure(self) -> list[Record]:
        # M = 0 and H0 = I; friction 0.3 keeps 0.7 of u, the momentum of the other method.
        method = ASLBFGS(
            h=1e-3,
            gamma=0.3,
            beta=math.inf,
            memory=0,
            batch=20,
            overlap=10,
            initial_scale=1.0,
            integrator=self.integrator,  # type: ignore[arg-type]
        )
        methods: list[Algorithm] = [method, SGD(1e-3, 20, momentum=0.7)]
        paths: list[list[Array]] = [[], []]
        for one, path in zip(methods, paths, strict=True):

            def look(progress: Progress, path: list[Array] = path) -> None:
                path.append(progress.theta)

            request = Request(
                problem(),
                one,
                theta0=np.ones(DIM),
                commits=200,
                seed=0,
                evaluate=1,
                callback=look,
            )
            Simulator(Cluster(1)).minimize(request)
        difference = np.abs(np.array(paths[0]) - np.array(paths[1])).max()
        return [{"difference": float(difference)}]


@dataclass(frozen=True)
class Cost(Cell):
    """Processor time of a worker's step against M and d, the least of many."""

    table: ClassVar[str] = "cost"
    largest: int

    def measure(self) -> list[Record]:
        sizes = (self.largest // 16, self.largest // 4, self.largest)
        return [
            {"M": M, "d": d, "time": _step_time(M, d)} for d in sizes for M in (2, 4, 8)
        ]


class _Bowl:
    """U = |theta|^2 / 2: its gradient costs one pass."""

    n_data = 4
    dtype = np.dtype(np.float64)

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def value(self, theta: Array) -> float:
        return 0.5 * float(theta @ theta)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        out[...] = theta


def _step_time(M: int, d: int) -> float:
    model = _Bowl(d)
    method = ASLBFGS(1e-3, 0.1, math.inf, M, 4, 2)
    rng = np.random.default_rng(0)
    iterate = method.init(rng.standard_normal(d))
    local = method.init_worker(model, iterate.theta)
    times = []
    # M steps fill the memory before the ones that count.
    for k in range(M + 12):
        task = Task(0, k, Stream(0, 0, k))
        began = time.thread_time()
        method.step(iterate, local, model, task)
        times.append(time.thread_time() - began)
        local = method.learn(iterate, local, model, task)
        # Steps of its own, so that every pair is accepted.
        iterate.theta[...] += 0.01 * rng.standard_normal(d)
    # The least of many: other programs only add.
    return min(times[M + 2 :])
