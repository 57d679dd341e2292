"""Chains of as-L-BFGS for the study of the theory, the two functions they run on, and two small measurements.

The step h of the SDE enters as h' = h^2 and gamma' = h gamma, with gamma = 1 throughout.  `theory` says which
chains are run, and judges them.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from asyncqn import ASLBFGS, SGD, Cluster, LinearGaussian, Simulator
from asyncqn.types import Array, Progress, Request, Rows, Stream, Task
from asyncqn_paper.cells import Cell
from asyncqn_paper.records import Record

DIM = 10
N_DATA = 100
COLD = 1e6
FUNCTION = "U"
PAIRS = "curvature pairs"
FUNCTIONS = ("quadratic", "non-convex")
MEMORIES = {0: "off (H = I)", 3: "on (M = 3)"}
STUDIES: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "N": ("ergodic", "iterations N", (500, 1000, 2000, 4000, 8000)),
    "h": ("bias", "step h of the SDE", (0.004, 0.008, 0.016, 0.032)),
    "W": ("staleness", "workers W", (1, 4, 16, 32)),
    "beta": ("temperature", "inverse temperature β", (1.0, 3.0, 10.0, 30.0, 100.0)),
}
"""What is varied: the claim, its words on an axis, its values."""
LAW_STEPS = (0.02, 0.01, 0.005)
LAW_BETAS = (1.0, 10.0, 100.0)


class TwoWells:
    """U = 2 (x^2 - 1)^2 + x/2 + y^2 and rows that add noise of mean 0 to the gradient: a non-convex sum.

    The wells are near x = -1 and x = 1; the first is deeper by about 1.
    """

    dim = 2
    n_data = 100
    dtype = np.dtype(np.float64)

    def __init__(self) -> None:
        noise = np.random.Generator(np.random.Philox(key=[0, 0x2E11])).standard_normal(
            (self.n_data, 2)
        )
        # Centred, so that the gradient over all rows is exact.
        self._noise = 4.0 * (noise - noise.mean(axis=0))

    def value(self, theta: Array) -> float:
        x = float(theta[0])
        y = float(theta[1])
        return 2.0 * (x * x - 1.0) ** 2 + 0.5 * x + y * y

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        x = float(theta[0])
        y = float(theta[1])
        out[0] = 8.0 * x * (x * x - 1.0) + 0.5
        out[1] = 2.0 * y
        out += self._noise[rows].mean(axis=0)


@cache
def problem(name: str) -> Any:
    """Return the function by its name."""
    if name == "quadratic":
        return LinearGaussian.random(DIM, N_DATA, spectrum=np.geomspace(1.0, 4.0, DIM))
    return TwoWells()


@cache
def _grid() -> tuple[Any, Any]:
    x = np.linspace(-4.0, 4.0, 4001)
    return x, 2.0 * (x * x - 1.0) ** 2 + 0.5 * x


@cache
def optimum(name: str) -> float:
    """U*."""
    return (
        float(problem(name).optimum) if name == "quadratic" else float(_grid()[1].min())
    )


def law(name: str, beta: float) -> Any:
    """Return the variances of exp(-beta U) along its axes."""
    if name == "quadratic":
        return 1.0 / (beta * np.linalg.eigvalsh(problem(name).precision))
    x, U = _grid()
    # x and y are independent under the law; y has the variance 1 / (2 beta) of a Gaussian.
    weight = np.exp(-beta * (U - U.min()))
    mean = (weight * x).sum() / weight.sum()
    return np.array(
        [(weight * (x - mean) ** 2).sum() / weight.sum(), 1.0 / (2.0 * beta)]
    )


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
        model = problem(self.function)
        # Exact gradients where the law or the start is measured; noisy ones where the bias in h is, which
        # is theirs.
        batch = model.n_data if self.exact else 20
        method = ASLBFGS(
            # h' = h^2 and gamma' = h gamma, as below equation (11).
            *(self.h**2, self.h, self.beta, self.memory, batch, batch // 2),
            sampling="shuffled" if self.exact else "replacement",
        )
        rng = np.random.Generator(np.random.Philox(key=[self.seed, 7]))
        if self.function == "quadratic":
            # Variances are compared along the axes of the law.
            axes = np.linalg.eigh(model.precision)[1]
            centre = model.optimum_theta
        else:
            axes = np.eye(2)
            centre = np.zeros(2)
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
        excess = np.array([model.value(theta) for theta in seen]) - optimum(
            self.function
        )
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


def chain(
    study: str, function: str, memory: int, value: float, seed: int, full: bool
) -> Chain:
    """Return a run of a study; every value has a seed of its own."""
    size = 2 if full else 1
    # Trajectories of one seed at two temperatures would be multiples of each other.
    own = 1000 * seed + 10 * list(STUDIES).index(study) + STUDIES[study][2].index(value)
    # One chain gives all N: its mean until N/16, ..., N.
    if study == "N":
        return Chain(function, memory, 8000, 0.02, 1, COLD, True, seed)
    if study == "h":
        return Chain(
            function, memory, int(100 * size / value), value, 1, COLD, False, own
        )
    if study == "W":
        return Chain(
            function, memory, 10_000 * size, 0.003, int(value), COLD, False, own
        )
    return Chain(function, memory, 8000 * size, 0.05, 1, value, True, own)


def law_chain(
    function: str,
    memory: int,
    workers: int,
    beta: float,
    h: float,
    seed: int,
    full: bool,
) -> Chain:
    """Return a run whose law is compared with exp(-beta U)."""
    # Apart from the seeds of `chain`.
    own = 100_000 + 1000 * seed + int(beta) + int(10_000 * h)
    return Chain(
        function, memory, int((400 if full else 50) / h), h, workers, beta, True, own
    )


def _note(seen: list[Array], progress: Progress) -> None:
    seen.append(progress.theta)


@dataclass(frozen=True)
class MomentumLimit(Cell):
    """The largest difference from SGD with momentum over 200 steps: beta = inf, W = 1, H = I."""

    table: ClassVar[str] = "limit"
    integrator: str

    def measure(self) -> list[Record]:
        model = problem("quadratic")
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
