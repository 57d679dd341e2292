"""The three methods and the simulated cluster once more, in plain NumPy: events in a heap, dense BFGS.

Nothing of asyncqn is used: no schedule, no kernel, no memory.  Random numbers come from a source that the
caller gives: `OwnNumbers` here, or those of asyncqn, with which the results must be the same to rounding.
Rounds wait for everyone (quorum 1).
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Timing(NamedTuple):
    """Workers, mean and standard deviation of a computation, and what messages and commits take."""

    workers: int
    mean: float
    std: float
    message: float = 0.0
    master: float = 0.0
    link: float = 0.0
    sending: str = "each"

    @property
    def reply(self) -> float:
        return 0.0 if self.sending == "free" else self.link


class OwnNumbers:
    """Rows, normals and log-normal times from NumPy's generators, a stream for every worker."""

    def __init__(self, seed: int, timing: Timing) -> None:
        self.streams = [np.random.default_rng([seed, w]) for w in range(timing.workers)]
        s2 = math.log1p((timing.std / timing.mean) ** 2)
        self.law = (math.log(timing.mean) - s2 / 2.0, math.sqrt(s2))

    def rows(self, worker: int, k: int, n: int, count: int) -> np.ndarray:
        return self.streams[worker].integers(0, n, count)

    def normals(self, worker: int, k: int, d: int) -> np.ndarray:
        return self.streams[worker].standard_normal(d)

    def time(self, worker: int, k: int) -> float:
        m, s = self.law
        return math.exp(m + s * self.streams[worker].standard_normal())


@dataclass
class Problem:
    """theta ~ N(0, I), y ~ N(A theta, noise): U without constants."""

    A: np.ndarray
    y: np.ndarray
    noise: float

    def gradient(self, theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
        A = self.A[rows]
        return (
            theta
            + len(self.y) / len(rows) * (A.T @ (A @ theta - self.y[rows])) / self.noise
        )

    def value(self, theta: np.ndarray) -> float:
        r = self.y - self.A @ theta
        return 0.5 * float(theta @ theta) + 0.5 * float(r @ r) / self.noise

    def optimum(self) -> float:
        P = np.eye(self.A.shape[1]) + self.A.T @ self.A / self.noise
        return self.value(np.linalg.solve(P, self.A.T @ self.y / self.noise))


@dataclass
class DenseBFGS:
    """H of the last M pairs, by the BFGS recursion on the whole matrix."""

    size: int
    epsilon: float
    scale: Any
    pairs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def add(self, s: np.ndarray, y: np.ndarray) -> None:
        if float(s @ s) > 0.0 and float(y @ s) >= self.epsilon * float(s @ s):
            self.pairs = [*self.pairs, (s, y)][-self.size :] if self.size else []

    def matrix(self, d: int) -> np.ndarray:
        if self.scale == "pair":
            s, y = self.pairs[-1] if self.pairs else (np.ones(1), np.ones(1))
            c = float(s @ y) / float(y @ y)
        else:
            c = float(self.scale)
        H = c * np.eye(d)
        for s, y in self.pairs:
            rho = 1.0 / float(s @ y)
            V = np.eye(d) - rho * np.outer(s, y)
            H = V @ H @ V.T + rho * np.outer(s, s)
        return H


class Path:
    """Iterates and times of the commits, and the first time at which a look finds the error at the target."""

    def __init__(
        self,
        problem: Problem,
        theta0: np.ndarray,
        every: int,
        target: float,
        hopeless: float = math.inf,
    ) -> None:
        self.problem = problem
        self.best = problem.optimum()
        self.every = every
        self.target = target
        self.thetas = [theta0.copy()]
        self.times = [0.0]
        self.reached = 0.0 if self.error(theta0) <= target else None
        self.lost = False
        self.most = hopeless * max(1.0, self.error(theta0))

    def error(self, theta: np.ndarray) -> float:
        return (self.problem.value(theta) - self.best) / self.best

    def add(self, theta: np.ndarray, time: float) -> None:
        self.thetas.append(theta.copy())
        self.times.append(time)
        looked = (len(self.times) - 1) % self.every == 0
        if self.reached is None and looked:
            self.reached = time if self.error(theta) <= self.target else None
            self.lost = not self.error(theta) <= self.most

    def ends(self, commits: int, limit: float) -> bool:
        return (
            len(self.times) > commits
            or self.times[-1] > limit
            or self.lost
            or (commits == 10**9 and self.reached is not None)
        )


class ASGDWorker:
    """a-SGD: d_theta = -h g."""

    def __init__(
        self, problem: Problem, given: dict[str, Any], worker: int, numbers: Any
    ) -> None:
        self.problem = problem
        self.given = given
        self.worker = worker
        self.numbers = numbers
        self.k = 0

    def step(self, theta: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(self.problem.y)
        rows = self.numbers.rows(self.worker, self.k, n, self.given["batch"])
        self.k += 1
        return -self.given["h"] * self.problem.gradient(theta, rows), np.zeros_like(u)


class ASLBFGSWorker(ASGDWorker):
    """as-L-BFGS: Algorithm 2 of the paper."""

    def __init__(
        self, problem: Problem, given: dict[str, Any], worker: int, numbers: Any
    ) -> None:
        super().__init__(problem, given, worker, numbers)
        self.memory = DenseBFGS(
            given["memory"], given["epsilon"], given["initial_scale"]
        )
        self.old: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def step(self, theta: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p, d = self.given, theta.size
        Omega = self.numbers.rows(self.worker, self.k, len(self.problem.y), p["batch"])
        O, S = Omega[: p["overlap"]], Omega[p["overlap"] :]
        g_O, g_S = self.problem.gradient(theta, O), self.problem.gradient(theta, S)
        g = (len(O) * g_O + len(S) * g_S) / len(Omega)
        H = self.memory.matrix(d) + p.get("rho", 0.0) * np.eye(d)
        noise = math.sqrt(2.0 * p["h"] * p["gamma"] / p["beta"])
        Z = self.numbers.normals(self.worker, self.k, d)
        d_u = -p["h"] * H @ g - p["gamma"] * u + noise * Z
        d_theta = H @ (u + d_u if p.get("integrator") == "modified" else u)
        if self.old is not None:
            theta_, O_, g_ = self.old
            self.memory.add(theta - theta_, self.problem.gradient(theta, O_) - g_)
        self.old = (theta.copy(), O, g_O)
        self.k += 1
        return d_theta, d_u


def asynchronous(
    problem: Problem, kind: str, given: dict[str, Any], timing: Timing, numbers: Any, theta0: np.ndarray,
    *, target: float = 0.0, commits: int = 10**9, limit: float = math.inf, every: int = 5,
    hopeless: float = math.inf,
) -> Path:  # fmt: skip
    """First come, first served at a master that does one thing at a time."""
    make = ASLBFGSWorker if kind == "as-lbfgs" else ASGDWorker
    workers = [make(problem, given, w, numbers) for w in range(timing.workers)]
    theta = theta0.copy()
    u = np.zeros_like(theta0)
    half = timing.message / 2.0
    free = 0.0
    path = Path(problem, theta0, every, target, hopeless)
    views: dict[int, Any] = {}
    computed = [0] * timing.workers
    queue: list[tuple[float, int]] = []

    def hand_out(w: int, sent: float) -> None:
        views[w] = (theta.copy(), u.copy())
        heapq.heappush(queue, (sent + half + numbers.time(w, computed[w]) + half, w))
        computed[w] += 1

    for w in range(timing.workers):
        free += timing.reply
        hand_out(w, free)
    while not path.ends(commits, limit):
        arrival, w = heapq.heappop(queue)
        free = max(arrival, free) + timing.link + timing.master
        d_theta, d_u = workers[w].step(*views[w])
        theta, u = theta + d_theta, u + d_u
        path.add(theta, free)
        free += timing.reply
        hand_out(w, free)
    return path


def rounds(
    problem: Problem, given: dict[str, Any], timing: Timing, numbers: Any, theta0: np.ndarray,
    *, target: float = 0.0, commits: int = 10**9, limit: float = math.inf, every: int = 1,
) -> Path:  # fmt: skip
    """mb-L-BFGS: broadcast, wait for everyone, one step of the master with its central memory."""
    W = timing.workers
    half = timing.message / 2.0
    n = len(problem.y)
    overlap = given["overlap"]
    memory = DenseBFGS(given["memory"], given["epsilon"], given["initial_scale"])
    path = Path(problem, theta0, every, target)
    theta = theta0.copy()
    theta_old = theta0
    kept = None
    now = 0.0
    for k in range(10**9):
        if path.ends(commits, limit):
            return path
        if timing.sending == "tree":
            turns = [math.floor(math.log2(w + 1)) + 1 for w in range(W)]
        else:
            turns = [w + 1 for w in range(W)]
        sent = [now + timing.reply * turn for turn in turns]
        arrivals = sorted(
            (sent[w] + half + numbers.time(w, k) + half, w) for w in range(W)
        )
        busy = max(sent)
        for arrival, _ in arrivals:
            busy = max(arrival, busy) + timing.link
        rows = [numbers.rows(w, k, n, given["batch"]) for w in range(W)]
        parts = [
            (problem.gradient(theta, r[:overlap]), problem.gradient(theta, r[overlap:]))
            for r in rows
        ]
        share = overlap / given["batch"]
        g = np.mean([share * g_O + (1.0 - share) * g_S for g_O, g_S in parts], axis=0)
        if kept is not None:
            y = [problem.gradient(theta, r[:overlap]) - g_ for r, g_ in kept]
            memory.add(theta - theta_old, np.mean(y, axis=0))
        kept = [(r, g_O) for r, (g_O, _) in zip(rows, parts, strict=True)]
        theta_old, theta = theta, theta - given["h"] * memory.matrix(theta.size) @ g
        now = busy + timing.master
        path.add(theta, now)
    raise AssertionError
