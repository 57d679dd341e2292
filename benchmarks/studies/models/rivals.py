"""Other libraries on the same problem: how many passes and how much processor time they take to each level.

A rival is given up once it has used `patience` times the time that our default took to the last level: it is
then known to take at least that many times as long.  Its checks of the input and the making of its result
count where they cannot be separated, as they do for us.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq


class Reached(NamedTuple):
    """Passes and seconds of a method to a level; infinite where it was given up."""

    passes: float
    seconds: float


NEVER = Reached(math.inf, math.inf)
Method = Callable[[Any, Sequence[float], float], list[Reached]]
"""(problem, levels of U, falling; processor seconds after which it is given up) -> what each level took."""


def scipy_lbfgsb(pairs: int) -> Method:
    """SciPy's L-BFGS-B on our compiled gradients."""

    def measure(problem: Any, levels: Sequence[float], limit: float) -> list[Reached]:
        from scipy.optimize import minimize

        every, found = np.arange(problem.n_data), [NEVER] * len(levels)
        calls, begin = 0, time.process_time()

        def both(theta: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal calls
            out = np.empty(problem.dim)
            value = problem.grad_with_value(theta, every, out)
            calls, spent = calls + 1, time.process_time() - begin
            for i, level in enumerate(levels):
                if value <= level and found[i] is NEVER:
                    found[i] = Reached(float(calls), spent)
            if found[-1] is not NEVER or spent > limit:
                raise StopIteration
            return value, out

        # No tolerance of its own: our levels end the run.
        options = {"maxiter": 10**5, "maxfun": 10**5, "ftol": 0.0, "gtol": 0.0, "maxcor": pairs}
        with suppress(StopIteration):
            minimize(both, np.zeros(problem.dim), jac=True, method="L-BFGS-B", options=options)
        return found

    return measure


def scikit_learn(solver: str) -> Method:
    """scikit-learn's solver, with the fewest iterations that reach each level, found by doubling and halving.

    A fit costs its whole processor time.  Passes are iterations: of newton-cg, inner ones are not counted.
    """

    def measure(problem: Any, levels: Sequence[float], limit: float) -> list[Reached]:
        X = matrix_of(problem)
        known: dict[int, tuple[float, float]] = {}

        def fit(iterations: int) -> tuple[float, float]:
            if iterations not in known:
                begin = time.process_time()
                theta = _fitted(problem, X, solver, iterations)
                spent = time.process_time() - begin
                known[iterations] = problem.value(theta), spent
            return known[iterations]

        return [_fewest(fit, level, limit) for level in levels]

    return measure


def _fewest(fit: Callable[[int], tuple[float, float]], level: float, limit: float) -> Reached:
    high = 1
    while True:
        value, spent = fit(high)
        if value <= level:
            break
        if spent > limit:
            return NEVER
        high *= 2
    low = high // 2
    # To within an eighth: every step of the search is a whole fit.
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (low, middle) if fit(middle)[0] <= level else (middle, high)
    return Reached(float(high), fit(high)[1])


def _fitted(problem: Any, X: Any, solver: str, iterations: int) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression, PoissonRegressor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that so few iterations do not converge is known
        if isinstance(problem, aq.PoissonRegression):
            # scikit-learn penalises the mean of the loss, and U is a sum.
            alpha = problem.prior / problem.n_data
            model = PoissonRegressor(
                alpha=alpha, fit_intercept=False, solver=solver, max_iter=iterations, tol=1e-14
            )
            return np.asarray(model.fit(X, problem.y).coef_, np.float64)
        model = LogisticRegression(
            C=1.0 / problem.prior, fit_intercept=False, solver=solver, max_iter=iterations, tol=1e-14
        )
        return np.asarray(model.fit(X, problem.y).coef_[0], np.float64)


def matrix_of(problem: Any) -> Any:
    """X as other libraries take it."""
    X = problem.X
    if isinstance(X, np.ndarray):
        return X
    from scipy.sparse import csr_matrix

    return csr_matrix((X.data, X.indices, X.indptr), X.shape)


def rivals_for(problem: Any) -> Iterator[tuple[str, Method]]:
    """Yield every rival that can minimise this U in reasonable memory."""
    yield "SciPy L-BFGS-B, m = 10", scipy_lbfgsb(10)
    yield "SciPy L-BFGS-B, m = 50", scipy_lbfgsb(50)
    solvers = ["lbfgs"]
    if problem.dim <= 2000:
        solvers.append("newton-cholesky")  # it makes a dense Hessian
    if not isinstance(problem, aq.PoissonRegression):
        solvers += ["newton-cg", "saga"]
    for solver in solvers:
        yield f"scikit-learn {solver}", scikit_learn(solver)
