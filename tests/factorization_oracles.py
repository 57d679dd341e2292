"""Plain NumPy twins of the factorization problems, in float64 and without any cleverness."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Problem(NamedTuple):
    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    n_users: int
    n_items: int


def make_problem(
    seed: int, n: int = 300, n_users: int = 20, n_items: int = 13
) -> Problem:
    """Random ratings; some rows have many, some none, and pairs may repeat."""
    rng = np.random.default_rng(seed)
    users = (n_users * rng.random(n) ** 2).astype(np.int32)
    items = (n_items * rng.random(n) ** 2).astype(np.int32)
    return Problem(
        users, items, rng.integers(1, 11, n).astype(np.float32) / 2, n_users, n_items
    )


def arguments(p: Problem) -> dict[str, Any]:
    return p._asdict()


def split(p: Problem, theta: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    theta = theta.astype(np.float64)
    cut = p.n_items * rank
    return theta[:cut].reshape(p.n_items, rank), theta[cut:].reshape(p.n_users, rank)


def row_ridges(p: Problem, prior: float, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    counts = (
        np.bincount(p.items, minlength=p.n_items),
        np.bincount(p.users, minlength=p.n_users),
    )
    return prior + alpha * counts[0], prior + alpha * counts[1]


def value(
    p: Problem, theta: np.ndarray, rank: int, prior: float, alpha: float
) -> float:
    F, G = split(p, theta, rank)
    errors = (F[p.items] * G[p.users]).sum(1) - p.values
    lam_f, lam_g = row_ridges(p, prior, alpha)
    return 0.5 * float(errors @ errors + lam_f @ (F**2).sum(1) + lam_g @ (G**2).sum(1))


def gradient(
    p: Problem,
    theta: np.ndarray,
    rank: int,
    prior: float,
    alpha: float,
    rows: np.ndarray,
) -> np.ndarray:
    """The subsample gradient on the ratings `rows` of `p`, repeats counted."""
    F, G = split(p, theta, rank)
    lam_f, lam_g = row_ridges(p, prior, alpha)
    out_f, out_g = lam_f[:, None] * F, lam_g[:, None] * G
    for row in rows:
        m, u = p.items[row], p.users[row]
        error = len(p.values) / len(rows) * (F[m] @ G[u] - p.values[row])
        out_f[m] += error * G[u]
        out_g[u] += error * F[m]
    return np.concatenate([out_f.ravel(), out_g.ravel()])


def best_users(p: Problem, F: np.ndarray, prior: float, alpha: float) -> np.ndarray:
    """argmin over G of U(F, G), one dense solve for each user."""
    rank = F.shape[1]
    lam_g = row_ridges(p, prior, alpha)[1]
    G = np.zeros((p.n_users, rank))
    for u in range(p.n_users):
        f, y = F[p.items[p.users == u]], p.values[p.users == u]
        G[u] = np.linalg.solve(f.T @ f + lam_g[u] * np.eye(rank), f.T @ y)
    return G


def profiled_gradient(
    p: Problem,
    theta: np.ndarray,
    rank: int,
    prior: float,
    alpha: float,
    users: np.ndarray,
) -> np.ndarray:
    F = theta.astype(np.float64).reshape(p.n_items, rank)
    G = best_users(p, F, prior, alpha)
    out = row_ridges(p, prior, alpha)[0][:, None] * F
    for u in users:
        for row in np.flatnonzero(p.users == u):
            m = p.items[row]
            out[m] += p.n_users / len(users) * (F[m] @ G[u] - p.values[row]) * G[u]
    return out.ravel()
