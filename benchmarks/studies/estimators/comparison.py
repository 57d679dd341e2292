"""Fit times beside scikit-learn at equal objective: `python -m benchmarks.studies.estimators.comparison`.

Every method is given the loosest of a ladder of tolerances with which its objective is within 1e-6 of the
least one known, relatively.  With these tolerances all are fitted in turns, on one thread each, and the least
processor time of the rounds counts, with all that a call of `fit` does.  A solver is given up, and reported
as slower than that, once one fit has taken `--patience` times as long as ours.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_pool, "1")  # before NumPy is loaded

import numpy as np  # noqa: E402
import sklearn.linear_model as theirs  # noqa: E402

from benchmarks.studies.estimators.data import CASES, Case  # noqa: E402

GAP = 1e-6
TOLERANCES = tuple(10.0**-k for k in range(1, 11))
FIELDS = ("case", "method", "tol", "gap", "seconds", "ours_over_it")


def rivals(case: Case) -> dict[str, Callable[[float], Any]]:
    """Return the estimators to compare, by name; each is made with a tolerance."""

    def our(tol: float) -> Any:
        return case.estimator(tol=tol, workers=1, **case.parameters)

    def their(solver: str) -> Callable[[float], Any]:
        kind = getattr(theirs, case.estimator.__name__)
        given = {**case.parameters, **({"solver": solver} if solver else {})}
        if "max_iter" in kind().get_params():
            given["max_iter"] = 5000
        return lambda tol: kind(tol=tol, **given)

    name = case.estimator.__name__
    return {"asyncqn": our} | {f"{name} {solver}".strip(): their(solver) for solver in case.solvers}


def objective(case: Case, X: Any, y: np.ndarray) -> Callable[[Any], float]:
    """U of a fitted model, by our problem, which has the same terms for every method."""
    problem = case.estimator(max_iter=1, **case.parameters).fit(X, y).run_.problem

    def value(model: Any) -> float:
        coef = np.atleast_2d(model.coef_)
        theta = np.column_stack([coef, np.broadcast_to(np.atleast_1d(model.intercept_), len(coef))]).ravel()
        if hasattr(model, "scale_"):
            theta = np.append(
                theta, math.sqrt(max(0.0, model.scale_ - problem.scale(np.zeros(len(theta) + 1))))
            )
        return float(problem.value(theta))

    return value


def fitted(make: Callable[[float], Any], tol: float, X: Any, y: np.ndarray) -> tuple[Any, float]:
    """Fit a model; return it with the processor seconds of the fit."""
    model = make(tol)
    begin = time.process_time()
    model.fit(X, y)
    return model, time.process_time() - begin


def compare(name: str, rounds: int, patience: float) -> list[dict[str, Any]]:
    """Measure every method on a case; return a record for each."""
    case = CASES[name]
    X, y = case.make()
    methods, value = rivals(case), objective(case, X, y)
    fitted(methods["asyncqn"], 1.0, X, y)  # kernels are compiled, or loaded
    least = value(fitted(methods["asyncqn"], 1e-13, X, y)[0])
    chosen: dict[str, tuple[float, float]] = {}
    slow: dict[str, float] = {}
    best = math.inf
    for method, make in methods.items():
        for tol in TOLERANCES:
            model, spent = fitted(make, tol, X, y)
            gap = (value(model) - least) / abs(least)
            if gap <= GAP:
                chosen[method] = tol, gap
                best = min(best, spent) if method == "asyncqn" else best
                break
            if method != "asyncqn" and spent > patience * best:
                slow[method] = spent
                break
    times: dict[str, list[float]] = {method: [] for method in chosen}
    for _ in range(rounds):
        for method, (tol, _) in chosen.items():
            times[method].append(fitted(methods[method], tol, X, y)[1])
    own = min(times["asyncqn"])
    return [
        {
            "case": name,
            "method": method,
            "tol": chosen[method][0] if method in chosen else None,
            "gap": chosen[method][1] if method in chosen else None,
            "seconds": min(times[method]) if method in chosen else f"> {slow.get(method, math.inf):.3g}",
            "ours_over_it": own / min(times[method]) if method in chosen else None,
        }
        for method in methods
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default="", help="only those whose name contains this")
    parser.add_argument("--rounds", type=int, default=3, help="fits of each method that are timed")
    parser.add_argument(
        "--patience", type=float, default=10.0, help="give a solver up beyond so many of ours"
    )
    parser.add_argument("--output", type=Path, help="a CSV file, to which records are added")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of solvers that end before their tolerance
    for name in [name for name in CASES if given.cases in name]:
        load = os.getloadavg()[0]
        records = compare(name, given.rounds, given.patience)
        print(f"\n{name}   (load {load:.1f} on {os.cpu_count()} processors)")
        for record in records:
            ratio = record["ours_over_it"]
            seconds = record["seconds"]
            shown = f"{seconds:10.4f} s" if isinstance(seconds, float) else f"{seconds:>10} s"
            print(f"  {record['method']:<36}{shown}   ours / it {'' if ratio is None else f'{ratio:.2f}'}")
        sys.stdout.flush()
        if given.output is not None:
            new = not given.output.exists()
            with given.output.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerows(records)


if __name__ == "__main__":
    main()
