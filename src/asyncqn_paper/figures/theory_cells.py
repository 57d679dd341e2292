"""Chains of as-L-BFGS on a quadratic for the study of the theory, and two small measurements.

The step h of the SDE enters as h' = h^2 and gamma' = h gamma, with gamma = 1 throughout.  `theory` says which
chains are run, and judges them.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import numpy as np

from asyncqn import ASLBFGS, SGD, Cluster, LinearGaussian, Simulator
from asyncqn.types import Array, Progress, Request, Rows, Stream, Task
from asyncqn_paper.cells import Cell
from asyncqn_paper.records import Record

DIM = 10
N_DATA = 100
COLD = 1e6
PAIRS = "curvature pairs"
MEMORIES = {0: "off (H = I)", 3: "on (M = 3)"}
STUDIES: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "h": ("bias", "step h of the SDE", (0.004, 0.008, 0.016, 0.032)),
    "W": ("staleness", "workers W", (1, 4, 16, 32)),
    "beta": ("temperature", "inverse temperature β", (1.0, 3.0, 10.0, 30.0, 100.0)),
}
"""What is varied: the claim, its words on an axis, its values."""
QUADRATIC = "quadratic"
"""The name of the function in the published tables."""
EVERY = 5
LENGTHS = (250, 500, 1000, 2000, 4000)
STEP = 0.7
"""h = STEP / sqrt(N), where both terms of the bound fall as 1 / sqrt(N)."""
BASE = 1000
CROWDS = (1, 2, 4, 8, 16, 32)
LAW_STEPS = (0.02, 0.01, 0.005)
LAW_BETAS = (1.0, 10.0, 100.0)


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
    found = []
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
        found.append(np.linalg.solve(system, noise.ravel())[0] * curvature)
    return np.array(found)


@dataclass(frozen=True)
class Chain(Cell):
    """One run of as-L-BFGS: N commits of step h of the SDE."""

    table: ClassVar[str] = "chains"
    function: str
    memory: int
    N: int
    h: float
    workers: int
    beta: float
    exact: bool
    seed: int

    def measure(self) -> list[Record]:
        """Mean excess over U* until N/16, ..., N and in the second half, and variances along the axes."""
        model = problem()
        # Exact gradients where the law or the start is measured; noisy ones where the bias in h is, which
        # is theirs.
        batch = model.n_data if self.exact else 20
        method = ASLBFGS(
            # h' = h^2 and gamma' = h gamma, as below equation (11).
            *(self.h**2, self.h, self.beta, self.memory, batch, batch // 2),
            sampling="shuffled" if self.exact else "replacement",
        )
        rng = np.random.Generator(np.random.Philox(key=[self.seed, 7]))
        # Variances are compared along the axes of the law.
        axes = np.linalg.eigh(model.precision)[1]
        centre = model.optimum_theta
        thetas: list[Array] = []

        def look(progress: Progress) -> None:
            thetas.append(progress.theta)

        run = Simulator(Cluster(self.workers, 1.0, 0.3)).minimize(
            Request(
                model,
                method,
                theta0=centre + rng.standard_normal(model.dim),
                commits=self.N,
                seed=self.seed,
                evaluate=5,
                callback=look,
            )
        )
        # A chain that explodes has no law; the setting is then undecided.
        if run.status == "diverged" or not np.isfinite(thetas[-1]).all():
            return [{"diverged": True, "part": 1.0, "mean": None}]
        seen = np.array(thetas[1:])
        excess = np.array([model.value(theta) for theta in seen]) - model.optimum
        # The first half is left to the burn-in.
        half = seen[len(seen) // 2 :] - centre
        variances = ((half - half.mean(axis=0)) @ axes).var(axis=0)
        found: list[Record] = [
            {
                "diverged": False,
                "part": part,
                "mean": float(excess[: max(1, int(part * len(excess)))].mean()),
            }
            for part in (0.0625, 0.125, 0.25, 0.5, 1.0)
        ]
        late = {
            "diverged": False,
            "part": 0.0,
            "mean": float(excess[len(excess) // 2 :].mean()),
        }
        return [
            *found,
            late | {f"variance {k}": float(v) for k, v in enumerate(variances)},
        ]


def chain(study: str, memory: int, value: float, seed: int, full: bool) -> Chain:
    """Return a run of a study; every value has a seed of its own."""
    size = 2 if full else 1
    # Trajectories of one seed at two temperatures would be multiples of each other.
    number = 1 + list(STUDIES).index(study)
    own = 1000 * seed + 10 * number + STUDIES[study][2].index(value)
    if study == "h":
        commits = int(100 * size / value)
        return Chain(QUADRATIC, memory, commits, value, 1, COLD, False, own)
    if study == "W":
        commits = 10_000 * size
        return Chain(QUADRATIC, memory, commits, 0.003, int(value), COLD, False, own)
    return Chain(QUADRATIC, memory, 8000 * size, 0.05, 1, value, True, own)


def law_chain(
    memory: int, workers: int, beta: float, h: float, seed: int, full: bool
) -> Chain:
    """Return a run whose law is compared with exp(-beta U)."""
    # Apart from the seeds of `chain`.
    own = 100_000 + 1000 * seed + int(beta) + int(10_000 * h)
    commits = int((400 if full else 50) / h)
    return Chain(QUADRATIC, memory, commits, h, workers, beta, True, own)


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
        curves = [self.run(seed) for seed in range(self.first, self.first + self.seeds)]
        means = np.mean(curves, axis=0)
        # Two dozen lengths, evenly spaced in logarithm, up to the whole run.
        lengths = np.unique(np.geomspace(20, len(means), 24).astype(int))
        return [{"n": int(EVERY * k), "mean": float(means[k - 1])} for k in lengths]

    def run(self, seed: int) -> Array:
        """Return the means over the first n iterates of one run, for every n."""
        model = problem()
        method = ASLBFGS(*(self.h**2, self.h, COLD, self.memory, 20, 10))
        rng = np.random.Generator(np.random.Philox(key=[seed, 7]))
        excess: list[float] = []

        def look(progress: Progress) -> None:
            excess.append(float(model.value(progress.theta)) - model.optimum)

        Simulator(Cluster(self.workers, 1.0, 0.3)).minimize(
            Request(
                model,
                method,
                theta0=model.optimum_theta + rng.standard_normal(model.dim),
                commits=self.N,
                seed=seed,
                evaluate=EVERY,
                callback=look,
            )
        )
        return np.asarray(np.cumsum(excess) / np.arange(1, len(excess) + 1))


def rate_cell(memory: int, N: int, block: int, seeds: int) -> Average:
    """Return runs of N iterations with the h that minimises the bound: h = c / sqrt(N)."""
    h = float(f"{STEP / math.sqrt(N):.4g}")
    return Average(memory, N, h, 1, _first(N, block), seeds)


def speedup_cell(memory: int, workers: int, block: int, seeds: int) -> Average:
    """Return runs with W workers and the h that belongs to `BASE` iterations of one worker."""
    h = float(f"{STEP / math.sqrt(BASE):.4g}")
    return Average(memory, 4 * BASE, h, workers, _first(7 + workers, block), seeds)


def _first(point: int, block: int) -> int:
    """Return the first seed of a block: every point of a curve has noise of its own."""
    return 10_000_000 + 100_000 * point + 1000 * block


def _note(seen: list[Array], progress: Progress) -> None:
    seen.append(progress.theta)


@dataclass(frozen=True)
class MomentumLimit(Cell):
    """The largest difference from SGD with momentum over 200 steps: beta = inf, W = 1, H = I."""

    table: ClassVar[str] = "limit"
    integrator: str

    def measure(self) -> list[Record]:
        model = problem()
        # M = 0 and H0 = I; friction 0.3 keeps 0.7 of u, the momentum of the other method.
        method = ASLBFGS(
            1e-3,
            0.3,
            math.inf,
            0,
            20,
            10,
            initial_scale=1.0,
            integrator=self.integrator,  # type: ignore[arg-type]
        )
        paths = []
        for one in (method, SGD(1e-3, 20, momentum=0.7)):
            seen: list[Array] = []
            Simulator(Cluster(1)).minimize(
                Request(
                    model,
                    one,
                    theta0=np.ones(DIM),
                    commits=200,
                    seed=0,
                    evaluate=1,
                    callback=partial(_note, seen),
                )
            )
            paths.append(np.array(seen))
        return [{"difference": float(np.abs(paths[0] - paths[1]).max())}]


@dataclass(frozen=True)
class Cost(Cell):
    """Processor time of a worker's step against M and d, the least of many."""

    table: ClassVar[str] = "cost"
    largest: int

    def measure(self) -> list[Record]:
        found = []
        for d in (self.largest // 16, self.largest // 4, self.largest):
            for M in (2, 4, 8):
                row = {"M": M, "d": d, "time": _step_time(M, d)}
                found.append(row)
        return found


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
    local = None
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
