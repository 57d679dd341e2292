"""Peers on many rows: SciPy's L-BFGS-B on our gradients, scikit-learn's solvers, tuned SGD.

Each yields a record per target: the gap, the setting that reached it, passes over the data and seconds.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from asyncqn_paper.records import Record

TARGETS = (1e-2, 1e-4)
"""Of (U - U*) / (U(theta0) - U*)."""
MOST = 400
"""Passes after which nobody is waited for."""
ITERATIONS = (1, 2, 3, 5, 8, 12, 20, 30, 45, 70, 100)
STOCHASTIC_ITERATIONS = (1, 3, 8, 20)
RATES = (0.03, 0.01, 0.003, 0.001)


def scipy_lbfgsb(problem: Any, theta0: np.ndarray, levels: list[float], repeats: int) -> Iterator[Record]:
    from scipy.optimize import minimize

    everything = np.arange(problem.n_data)
    best, used = [math.inf] * len(levels), [math.inf] * len(levels)
    for _ in range(repeats):
        trace: list[tuple[float, float]] = []

        def both(theta: np.ndarray, trace: list[tuple[float, float]] = trace) -> tuple[float, np.ndarray]:
            out = np.empty(problem.dim, theta0.dtype)
            value = problem.grad_with_value(theta.astype(theta0.dtype), everything, out)
            trace.append((time.perf_counter(), value))
            if value <= levels[-1] or len(trace) > MOST:
                raise StopIteration
            return value, out.astype(np.float64)

        begin = time.perf_counter()
        with suppress(StopIteration):
            minimize(
                both,
                theta0.astype(np.float64),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": MOST, "maxfun": MOST, "ftol": 0.0, "gtol": 0.0},
            )
        for i, level in enumerate(levels):
            for calls, (at, value) in enumerate(trace):
                if value <= level:
                    best[i], used[i] = min(best[i], at - begin), float(calls + 1)
                    break
    for i, target in enumerate(TARGETS):
        yield {
            "method": "SciPy L-BFGS-B",
            "target": target,
            "setting": "",
            "passes": used[i],
            "seconds": best[i],
        }


def sklearn_solvers(problem: Any, levels: list[float]) -> Iterator[Record]:
    from sklearn.linear_model import LogisticRegression

    for solver in ("lbfgs", "sag", "saga"):
        done = 0
        for iterations in ITERATIONS if solver == "lbfgs" else STOCHASTIC_ITERATIONS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = LogisticRegression(
                    C=1.0 / problem.prior,
                    fit_intercept=False,
                    solver=solver,
                    tol=0.0 if solver == "lbfgs" else 1e-12,
                    max_iter=iterations,
                    random_state=0,
                )
                begin = time.perf_counter()
                model.fit(problem.X, problem.y)
                spent = time.perf_counter() - begin
            U = problem.value(model.coef_[0].astype(problem.dtype))
            while done < len(levels) and levels[done] >= U:
                yield {
                    "method": f"scikit-learn {solver}",
                    "target": TARGETS[done],
                    "setting": f"max_iter={iterations}",
                    "passes": float(iterations),
                    "seconds": spent,
                }
                done += 1
            if done == len(levels):
                break
        for target in TARGETS[done:]:
            yield {
                "method": f"scikit-learn {solver}",
                "target": target,
                "setting": f"not by max_iter={iterations}",
                "passes": math.inf,
                "seconds": math.inf,
            }


def sklearn_sgd(problem: Any, levels: list[float], epochs: int = 8) -> Iterator[Record]:
    from sklearn.linear_model import SGDClassifier

    best: list[tuple[float, float, str]] = [(math.inf, math.inf, "")] * len(levels)
    scale = float(np.mean(np.square(problem.X[:10_000])) * problem.dim)
    for rate in RATES:
        for schedule in ("constant", "invscaling"):
            eta0 = rate * 100.0 / scale * (1.0 if schedule == "constant" else 30.0)
            model = SGDClassifier(
                "log_loss",
                alpha=problem.prior / problem.n_data,
                fit_intercept=False,
                learning_rate=schedule,
                eta0=eta0,
                power_t=0.25,
                average=True,
                random_state=0,
            )
            spent = 0.0
            for epoch in range(1, epochs + 1):
                begin = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model.partial_fit(problem.X, problem.y, classes=[-1.0, 1.0])
                spent += time.perf_counter() - begin
                if not np.isfinite(model.coef_).all():
                    break
                U = problem.value(model.coef_[0].astype(problem.dtype))
                for i, level in enumerate(levels):
                    if level >= U and spent < best[i][0]:
                        best[i] = (spent, float(epoch), f"{schedule}, rate {eta0:.2g}")
                if spent > best[-1][0]:
                    break
    for target, (spent, epoch, setting) in zip(TARGETS, best):
        yield {
            "method": "scikit-learn SGD, tuned",
            "target": target,
            "setting": setting,
            "passes": epoch,
            "seconds": spent,
        }
