"""Plain twins of what the package computes, written from the formulas.

They share only the random numbers with it: rows and noise of `Stream`, times of `Cluster`.

Dense BFGS and the two-loop recursion, serial loops, as-L-BFGS and mb-L-BFGS in NumPy, and two
event models of the cluster: one in SimPy, one as a plain list of events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from asyncqn.core.streams import Stream
from asyncqn.minimize import minimize

Pair = tuple[np.ndarray, np.ndarray]


def one_sentence(error: BaseException | str) -> bool:
    """One line, begun and ended as one sentence: no full stop followed by another sentence."""
    text = str(error)
    return (
        "\n" not in text and text.endswith(".") and ". " not in text.replace("...", "")
    )


@dataclass
class Quadratic:
    """U = |theta|^2/2 + sum_i (y_i - a_i'theta)^2/2 with only what a user must write."""

    A: np.ndarray
    y: np.ndarray

    @property
    def dim(self) -> int:
        return int(self.A.shape[1])

    @property
    def n_data(self) -> int:
        return int(self.A.shape[0])

    def value(self, theta: np.ndarray) -> float:
        r = self.A @ theta - self.y
        return float(0.5 * r @ r + 0.5 * theta @ theta)

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        A = self.A[rows]
        out[...] = theta + (self.n_data / len(rows)) * (
            A.T @ (A @ theta - self.y[rows])
        )

    @classmethod
    def random(cls, dim: int = 4, n_data: int = 20, seed: int = 0) -> Quadratic:
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((n_data, dim))
        return cls(A, A @ rng.standard_normal(dim) + 0.1 * rng.standard_normal(n_data))

    @property
    def hessian(self) -> np.ndarray:
        return np.eye(self.dim) + self.A.T @ self.A

    @property
    def minimum(self) -> np.ndarray:
        return np.linalg.solve(self.hessian, self.A.T @ self.y)


def gradient(
    problem: Any, theta: np.ndarray, rows: Sequence[int] | np.ndarray
) -> np.ndarray:
    out = np.full_like(theta, np.nan)
    problem.grad(theta, np.asarray(rows, np.int64), out)
    return out


# ---------------------------------------------------------------- L-BFGS matrices


def dense_bfgs(pairs: Sequence[Pair], H0: np.ndarray) -> np.ndarray:
    """H <- V'HV + rho s s', V = I - rho y s', oldest pair first."""
    H = H0.astype(np.float64)
    for s, y in pairs:
        s, y = s.astype(np.float64), y.astype(np.float64)
        r = 1.0 / (y @ s)
        V = np.eye(s.size) - r * np.outer(y, s)
        H = V.T @ H @ V + r * np.outer(s, s)
    return H


def two_loop(
    pairs: Sequence[Pair], h0: np.ndarray | float, v: np.ndarray
) -> np.ndarray:
    """H v by Nocedal's two loops, h0 a number or the diagonal of H0."""
    q = v.astype(np.float64).copy()
    alphas = []
    for s, y in reversed(pairs):
        a = (s @ q) / (y @ s)
        alphas.append(a)
        q -= a * y
    r = h0 * q
    for (s, y), a in zip(pairs, reversed(alphas)):
        r += s * (a - (y @ r) / (y @ s))
    return r


@dataclass
class PairList:
    """The rule that admits a pair, and the newest M of them as a plain list."""

    size: int
    epsilon: float
    scale: float | str = "pair"
    cosine: float = 0.0
    pairs: list[Pair] = field(default_factory=list)
    accepted: int = 0
    rejected: int = 0

    def consider(self, s: np.ndarray, y: np.ndarray) -> None:
        sy, ss, yy = s @ y, s @ s, y @ y
        if ss > 0 and sy >= self.epsilon * ss and sy >= self.cosine * np.sqrt(ss * yy):
            self.pairs = [*self.pairs, (s.copy(), y.copy())][-self.size :]
            self.accepted += 1
        else:
            self.rejected += 1

    def times(self, v: np.ndarray) -> np.ndarray:
        h0 = self.scale
        if h0 == "pair":
            h0 = (
                (self.pairs[-1][0] @ self.pairs[-1][1])
                / (self.pairs[-1][1] @ self.pairs[-1][1])
                if self.pairs
                else 1.0
            )
        return two_loop(self.pairs, float(h0), v)


# ---------------------------------------------------------------- algorithms in NumPy


def as_lbfgs(
    algorithm: Any, problem: Any, schedule: Any, theta0: np.ndarray, seed: int
) -> dict[str, Any]:
    """Algorithms 1 and 2 of the paper, literally: every version is kept, workers look theirs up."""
    d = theta0.size
    versions = [(theta0.astype(np.float64), np.zeros(d))]
    workers: dict[int, dict[str, Any]] = {}
    noise = np.sqrt(2 * algorithm.h * algorithm.gamma / algorithm.beta)
    # Steps that were under way when the run ended come last; they make no version.
    last = len(schedule) + 1
    rows_of_commit = sorted(
        (commit or last, w, read)
        for commit, w, read in zip(
            schedule.commit.tolist(), schedule.worker.tolist(), schedule.read.tolist()
        )
    )
    for commit, w, read in rows_of_commit:
        theta, u = versions[read]
        state = workers.setdefault(
            w, {"k": 0, "memory": PairList(algorithm.memory, algorithm.epsilon, algorithm.initial_scale,
                                           algorithm.cosine_floor), "old": None}
        )  # fmt: skip
        stream = Stream(seed, w, state["k"])
        state["k"] += 1
        Omega = stream.rows(problem.n_data, np.empty(algorithm.batch, np.int64)).copy()
        O, S = Omega[: algorithm.overlap], Omega[algorithm.overlap :]
        g_O, g_S = gradient(problem, theta, O), gradient(problem, theta, S)
        g = (O.size * g_O + S.size * g_S) / Omega.size
        H = state["memory"].times
        Z = stream.normals(np.empty(d)) if noise > 0 else np.zeros(d)
        d_u = (
            -algorithm.h * (H(g) + algorithm.rho * g) - algorithm.gamma * u + noise * Z
        )
        moved_by = u + d_u if algorithm.integrator == "modified" else u
        d_theta = H(moved_by) + algorithm.rho * moved_by
        if state["old"] is not None and algorithm.memory > 0:
            theta_old, O_old, g_old = state["old"]
            state["memory"].consider(
                theta - theta_old, gradient(problem, theta, O_old) - g_old
            )
        state["old"] = (theta, O, g_O)
        if commit < last:
            last_theta, last_u = versions[-1]
            versions.append((last_theta + d_theta, last_u + d_u))
    return {
        "theta": np.array([theta for theta, _ in versions]),
        "accepted": sum(state["memory"].accepted for state in workers.values()),
        "rejected": sum(state["memory"].rejected for state in workers.values()),
    }


def mb_lbfgs(
    algorithm: Any, problem: Any, schedule: Any, theta0: np.ndarray, seed: int
) -> dict[str, Any]:
    """Multi-batch L-BFGS over the rounds of a schedule, late updates dropped."""
    thetas = [theta0.astype(np.float64)]
    memory = PairList(
        algorithm.memory,
        algorithm.epsilon,
        algorithm.initial_scale,
        algorithm.cosine_floor,
    )
    steps: dict[int, int] = {}
    previous: dict[int, tuple[int, np.ndarray]] = {}
    senders_before: set[int] = set()
    pairless = 0
    table = list(
        zip(schedule.worker.tolist(), schedule.read.tolist(), schedule.commit.tolist())
    )
    for k in range(schedule.commits):
        theta = thetas[k]
        updates: dict[int, np.ndarray] = {}
        ys: list[np.ndarray] = []
        for w, read, commit in table:
            if read != k:
                continue
            Omega = Stream(seed, w, steps.get(w, 0)).rows(
                problem.n_data, np.empty(algorithm.batch, np.int64)
            ).copy()  # fmt: skip
            steps[w] = steps.get(w, 0) + 1
            if commit == k + 1:
                updates[w] = gradient(problem, theta, Omega)
                if w in senders_before:
                    O = previous[w][1][: algorithm.overlap]
                    assert previous[w][0] == k - 1
                    ys.append(
                        gradient(problem, theta, O)
                        - gradient(problem, thetas[k - 1], O)
                    )
            previous[w] = (k, Omega)
        g = np.mean(list(updates.values()), axis=0)
        if ys:
            memory.consider(theta - thetas[k - 1], np.mean(ys, axis=0))
        elif k > 0:
            pairless += 1
        thetas.append(theta - algorithm.h * memory.times(g))
        senders_before = set(updates)
    return {
        "theta": np.array(thetas),
        "accepted": memory.accepted,
        "rejected": memory.rejected,
        "pairless": pairless,
    }


def heavy_ball(
    theta0: np.ndarray,
    h: float,
    gamma: float,
    steps: int,
    gradients: Callable[[int, np.ndarray], np.ndarray],
) -> np.ndarray:
    """theta+ = theta + u, u+ = (1 - gamma) u - h g(theta): both from the values before the step."""
    theta, u, out = theta0.copy(), np.zeros_like(theta0), [theta0.copy()]
    for k in range(steps):
        g = gradients(k, theta)
        theta, u = theta + u, u + (-h * g - gamma * u)
        out.append(theta.copy())
    return np.array(out)


def thetas_of(
    problem: Any, algorithm: Any, engine: Any, commits: int, **more: Any
) -> tuple[Any, np.ndarray]:
    """A run and its iterates after every commit, version 0 first."""
    seen: list[np.ndarray] = []
    run = minimize(
        problem, algorithm, engine=engine, commits=commits, evaluate=1,
        callback=lambda progress: seen.append(progress.theta), **more,
    )  # fmt: skip
    return run, np.array(seen)


# ---------------------------------------------------------------- the cluster as an event model


def simpy_asynchronous(
    cluster: Any, commits: int, seed: int
) -> list[tuple[int, int, float]]:
    """(worker, read, time) of every commit, from processes that share a master with a queue.

    Messages keep the master for the link's time; a worker may die, and be there again.
    """
    env = simpy.Environment()
    master = simpy.Resource(env, capacity=1)
    rows: list[tuple[int, int, float]] = []
    half = cluster.message / 2

    def worker(w: int) -> Any:
        times = iter(cluster.compute_times(seed, w, commits + 2))
        death = cluster.deaths.get(w, np.inf)
        # Made at time 0: a delay from some later time is rounded, and who is back first would hang on that.
        back = env.timeout(cluster.recoveries[w]) if w in cluster.recoveries else None
        if cluster.joins.get(w, 0.0) > 0:
            yield env.timeout(cluster.joins[w])
        newcomer = True
        while True:
            if newcomer:
                version = len(rows)
                if cluster.link > 0:
                    with master.request() as turn:
                        yield turn
                        version = len(rows)
                        yield env.timeout(cluster.link)
            yield env.timeout(half)
            duration = float(next(times))
            newcomer = env.now + duration > death
            if newcomer:
                if back is None:
                    return
                death = np.inf
                if not back.processed:
                    yield back
                continue
            yield env.timeout(duration)
            yield env.timeout(half)
            with master.request() as turn:
                yield turn
                yield env.timeout(cluster.link)
                yield env.timeout(cluster.master)
                rows.append((w, version, env.now))
                version = len(rows)
                yield env.timeout(cluster.link)

    for w in range(cluster.workers):
        env.process(worker(w))
    while len(rows) < commits and env.peek() < np.inf:
        env.step()
    return rows[:commits]


def plain_rounds(
    cluster: Any, timeout: float, quorum: float, commits: int, seed: int
) -> list[tuple[int, int, int, float]]:
    """(worker, read, commit, time) of rounds, by walking through candidate closing times of each round."""
    half, W = cluster.message / 2, cluster.workers
    join = [cluster.joins.get(w, 0.0) for w in range(W)]
    death = [cluster.deaths.get(w, np.inf) for w in range(W)]
    back = [cluster.recoveries.get(w, np.inf) for w in range(W)]
    away = list(death)  # the deaths that are still to come
    times = [list(cluster.compute_times(seed, w, 2 * commits + 2)) for w in range(W)]
    busy_until = [
        t + half for t in join
    ]  # a worker has heard of the master half a message after joining
    rows: list[tuple[int, int, int, float]] = []
    broadcast = 0.0
    for version in range(commits):
        heard = broadcast + half
        begin = [max(heard, busy_until[w]) for w in range(W)]
        for w in range(W):
            if begin[w] + times[w][0] > away[w] and back[w] < np.inf:
                if begin[w] < away[w]:
                    times[w].pop(0)
                busy_until[w], away[w] = max(busy_until[w], back[w] + half), np.inf
                begin[w] = max(heard, busy_until[w])
        arrive = [
            begin[w] + times[w][0] + half
            if begin[w] + times[w][0] <= away[w]
            else np.inf
            for w in range(W)
        ]
        moments = sorted(
            {
                t
                for t in [*arrive, *death, broadcast + timeout]
                if broadcast <= t < np.inf
            }
        )
        for now in moments:
            here = [w for w in range(W) if arrive[w] <= now]
            living = [
                w for w in range(W) if join[w] <= now and not death[w] <= now < back[w]
            ]
            everyone = all(w in here for w in living)
            if here and (
                everyone
                or (
                    now >= broadcast + timeout
                    and len(here) >= quorum * len(living) - 1e-9
                )
            ):
                break
        else:
            return rows
        broadcast = now + cluster.master
        for w in sorted(here, key=lambda w: (arrive[w], w)):
            rows.append((w, version, version + 1, broadcast))
            busy_until[w] = begin[w] + times[w].pop(0)
        for w in range(W):
            if w not in here and begin[w] < broadcast + half and begin[w] < away[w]:
                if arrive[w] < np.inf:
                    rows.append((w, version, 0, arrive[w]))
                busy_until[w] = begin[w] + times[w].pop(0)
    return rows
