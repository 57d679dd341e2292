"""Passes of the default call against SciPy's L-BFGS-B: `python -m benchmarks.studies.convergence.passes`.

Both start at the same point and compute the exact gradient of all rows.  Counted are gradients until |g| is
1e-5 of the first, which both reach, and until our own run ends; SciPy gets up to `MOST` and no other
tolerance, so that it ends where rounding or its line search stops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize as scipy_minimize

import asyncqn as aq
from asyncqn.minimize import starting_point
from asyncqn.storage import write_whole
from benchmarks.studies.tables import RESULTS, write

LOOSE, MOST = 1e-5, 5000


class PoissonRegression:
    """U = sum_i exp(x_i'theta) - y_i x_i'theta + |theta|^2 / 2."""

    def __init__(self, n_data: int = 2000, dim: int = 50) -> None:
        rng = np.random.default_rng(0)
        self.n_data, self.dim = n_data, dim
        self.X = rng.standard_normal((n_data, dim)) * np.geomspace(0.3, 0.03, dim)
        self.y = rng.poisson(np.exp(self.X @ rng.standard_normal(dim)))

    def value(self, theta: Any) -> float:
        z = self.X @ theta
        return float(np.sum(np.exp(z) - self.y * z) + 0.5 * theta @ theta)

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        X = self.X[rows]
        out[...] = self.n_data / len(rows) * (X.T @ (np.exp(X @ theta) - self.y[rows])) + theta


class TanhNetwork:
    """A hidden layer of eight for sin(2 x_1) + x_2 x_3, squared errors, prior 1e-2."""

    n_data, inputs, hidden = 500, 5, 8
    dim = inputs * hidden + hidden

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.X = rng.standard_normal((self.n_data, self.inputs))
        self.y = np.sin(2 * self.X[:, 0]) + self.X[:, 1] * self.X[:, 2]

    def initial(self, rng: np.random.Generator) -> Any:
        return 0.5 * rng.standard_normal(self.dim)

    def _both(self, theta: Any, rows: Any) -> tuple[float, Any]:
        cut = self.inputs * self.hidden
        X, W, v = self.X[rows], theta[:cut].reshape(self.inputs, self.hidden), theta[cut:]
        Z = np.tanh(X @ W)
        r = Z @ v - self.y[rows]
        g = np.concatenate([(X.T @ (np.outer(r, v) * (1 - Z * Z))).ravel(), Z.T @ r])
        return float(r @ r) / 2, g

    def value(self, theta: Any) -> float:
        return self._both(theta, np.arange(self.n_data))[0] + 5e-3 * float(theta @ theta)

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        out[...] = self.n_data / len(rows) * self._both(theta, rows)[1] + 1e-2 * theta


def problems() -> Iterator[tuple[str, Any]]:
    logistic = aq.LogisticRegression.random
    yield "logistic, isotropic", logistic(3000, 200, 1.0, 0.0)
    yield "logistic, correlation 0.5, units over 10", logistic(3000, 200, 10.0, 0.5)
    yield "logistic, correlation 0.95, units over 10", logistic(3000, 200, 10.0, 0.95)
    for units in (1e2, 1e3, 1e4):
        yield f"logistic, prior 1e-4, units over {units:g}", logistic(3000, 200, units, 0.5, prior=1e-4)
    yield "the same over 100, signal 8, correlation 0.9", logistic(3000, 200, 1e2, 0.9, 8.0, prior=1e-4)
    across, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((200, 200)))
    for units in (10.0, 100.0):
        plain = logistic(3000, 200, units, 0.5, prior=1e-4)
        # `across` is orthogonal: the same problem in other coordinates.
        turned = aq.LogisticRegression(plain.X @ across, plain.y, 1e-4)
        yield f"prior 1e-4, units over {units:g}, turned across the coordinates", turned
    yield "linear Gaussian, 300 rows", aq.LinearGaussian.random(dim=50, n_data=300, seed=0)
    yield "Poisson regression, own class", PoissonRegression()
    yield "tanh network, own class", TanhNetwork()


def scipy_passes(problem: Any, start: Any) -> list[tuple[float, float]]:
    """(U, |g|) of every gradient that L-BFGS-B asks for."""
    seen: list[tuple[float, float]] = []
    rows = np.arange(problem.n_data)

    def both(theta: Any) -> tuple[float, Any]:
        g = np.empty(problem.dim)
        problem.grad(theta, rows, g)
        seen.append((problem.value(theta), float(np.linalg.norm(g))))
        return seen[-1][0], g

    # Ten pairs are SciPy's default.
    options = {"maxcor": 10, "ftol": 0.0, "gtol": 0.0, "maxiter": MOST, "maxfun": MOST}
    scipy_minimize(both, start, jac=True, method="L-BFGS-B", options=options)
    return seen


def first_below(norms: Any, bound: float) -> int | None:
    """Return the number of gradients until |g| is at most `bound`; None: never."""
    return next((k for k, norm in enumerate(norms, 1) if norm <= bound), None)


def measured(name: str, problem: Any) -> dict[str, Any]:
    start = starting_point(problem, None, 0)
    alone, four = (
        aq.minimize(problem, engine=aq.Simulator(aq.Cluster(w, worker_std=0.5)), evaluate=1, max_passes=MOST)
        for w in (1, 4)
    )
    theirs = scipy_passes(problem, start)
    bound = LOOSE * theirs[0][1]
    norms = alone.metrics["grad_norm"][1:]  # row k is after k passes; NaN where U was not asked for
    end = first_below([norm for _, norm in theirs], alone.grad_norm)
    return {
        "problem": name,
        "passes to 1e-5": first_below(norms, bound),
        "SciPy to 1e-5": first_below([norm for _, norm in theirs], bound) or f"not in {len(theirs)}",
        "passes in all": alone.passes,
        "SciPy to the same gradient": end or f"not in {len(theirs)}",
        "status": alone.status,
        "last gradient over first": alone.grad_norm / theirs[0][1],
        "U over SciPy's, relative": (alone.fun - min(u for u, _ in theirs)) / abs(alone.fun),
        "passes, 4 workers": four.passes,
        "status, 4 workers": four.status,
    }


def main() -> None:
    records = []
    for name, problem in problems():
        records.append(measured(name, problem))
        print(records[-1], flush=True)
    write("convergence", records)
    write_whole(RESULTS / "convergence.md", page(records))


def page(records: list[dict[str, Any]]) -> str:
    """Return the words of page.md and the table; a status that all runs share is said once."""
    text = (RESULTS.parent.parent / "benchmarks/studies/convergence/page.md").read_text(encoding="utf-8")
    shown = list(records[0])
    ends = {record[name] for record in records for name in shown if name.startswith("status")}
    if len(ends) == 1:
        text += f"\nAll our runs: {ends.pop()}.\n"
        shown = [name for name in shown if not name.startswith("status")]
    cells = [[record[name] for name in shown] for record in records]
    words = [shown, ["---"] * len(shown)]
    words += [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row] for row in cells]
    return text + "\n" + "\n".join("| " + " | ".join(row) + " |" for row in words) + "\n"


if __name__ == "__main__":
    main()
