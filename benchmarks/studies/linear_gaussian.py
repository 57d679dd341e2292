"""The default beside plain methods on ten linear Gaussian spectra: `python -m benchmarks.studies.linear_gaussian`.

A cell is a spectrum and a standard deviation of worker times; what is measured is the simulated time to error
0.05 from theta0 ~ N(0, I) on 40 workers, with the paper's timing: 1000 units for a pass over all rows, 10 for
an exchange, 30 for the master.  `minimize` chooses its own method.  SciPy's L-BFGS-B and linear conjugate
gradients take rounds in which everybody computes a fortieth of the gradient and everybody is waited for; the
times of such rounds do not depend on the numbers.  The tuned stochastic rivals are those of
docs/results/beyond/rivals.csv.  Tables go to docs/results/beyond/plain.csv.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize as scipy_minimize
from scipy.sparse.linalg import cg

import asyncqn as aq
from benchmarks.studies.tables import read, write

DIM = 100
N_DATA = 600
NOISE = 10.0
WORKERS = 40
TARGET = 0.05
VARIANCES = (1.0, 200.0, 900.0)
SEEDS = range(5)


def steps(strong: int, top: float, low: float, high: float) -> np.ndarray:
    """Return `strong` eigenvalues equal to `top`, the others evenly (in logarithm) from `low` to `high`."""
    bulk = np.geomspace(low, high, DIM - strong)
    return np.concatenate([np.full(strong, top), bulk])


def autoregressive(correlation: float) -> np.ndarray:
    """Return the mean of I + A'A / sigma_x^2 for rows with correlation r^|i-j| between coordinates."""
    lag = np.abs(np.subtract.outer(np.arange(DIM), np.arange(DIM)))
    return 1.0 + N_DATA / NOISE * np.linalg.eigvalsh(correlation**lag)


SPECTRA = {
    "one 300 over 1-1.2": steps(1, 300.0, 1.0, 1.2),
    "one 300 over 2-6.5": steps(1, 300.0, 2.0, 6.5),
    "three 1000 over 2-5": steps(3, 1000.0, 2.0, 5.0),
    "five 1000 over 25-120": steps(5, 1000.0, 25.0, 120.0),
    "power law 1000/k": 1000.0 / np.arange(1.0, DIM + 1.0),
    "AR(0.9)": autoregressive(0.9),
    "flat 30-120": steps(0, 1.0, 30.0, 120.0),
    "ten 2000 over 20": steps(10, 2000.0, 20.0, 20.0),
    "log-uniform 2-1000": steps(0, 1.0, 2.0, 1000.0),
    "AR(0.99)": autoregressive(0.99),
}


def timing(variance: float) -> aq.Cluster:
    """Return the paper's timing of a fortieth of the rows."""
    mean = 1000.0 / WORKERS
    return aq.Cluster(WORKERS, mean, math.sqrt(variance), message=10.0, master=30.0)


def default_time(problem: Any, variance: float, seed: int) -> float:
    """Return the time of the default method."""
    run = aq.minimize(
        problem,
        engine=aq.Simulator(timing(variance)),
        seed=seed,
        target=problem.optimum * (1.0 + TARGET),
        evaluate=1,
        progress=False,
    )
    return float(run.time)


def gradients_of_lbfgs(problem: Any, theta0: np.ndarray) -> int:
    """Return the gradients that L-BFGS-B needs, with ten pairs."""
    rows = np.arange(N_DATA)
    errors = []

    def both(theta: np.ndarray) -> tuple[float, np.ndarray]:
        g = np.empty(DIM)
        problem.grad(theta, rows, g)
        value = float(problem.value(theta))
        errors.append(value / problem.optimum - 1.0)
        return value, g

    options = {"maxcor": 10, "ftol": 0.0, "gtol": 1e-8}
    scipy_minimize(both, theta0, jac=True, method="L-BFGS-B", options=options)
    return 1 + int(np.argmax(np.array(errors) <= TARGET))


def gradients_of_cg(problem: Any, theta0: np.ndarray) -> int:
    """Return the products with the Hessian that conjugate gradients need, and one for the first gradient."""
    errors = [problem.value(theta0) / problem.optimum - 1.0]

    def look(theta: np.ndarray) -> None:
        errors.append(problem.value(theta) / problem.optimum - 1.0)

    right = problem.precision @ problem.optimum_theta
    cg(problem.precision, right, x0=theta0, rtol=1e-10, callback=look)
    return 1 + int(np.argmax(np.array(errors) <= TARGET))


def round_times(variance: float, seed: int, rounds: int) -> np.ndarray:
    """Return when each round ends in which everybody is waited for."""
    stage = aq.MBLBFGS(1.0, 1, 2, 1, quorum=1.0).stages
    schedule = aq.simulate(timing(variance), stage, rounds, seed)
    ends = np.zeros(rounds + 1)
    np.maximum.at(ends, schedule.commit, schedule.time)
    return ends


def measure() -> None:
    """Write one row per cell."""
    rounds: dict[str, Callable[[Any, np.ndarray], int]] = {
        "L-BFGS-B": gradients_of_lbfgs,
        "CG": gradients_of_cg,
    }
    rows: list[dict[str, Any]] = []
    for name, spectrum in SPECTRA.items():
        problem = aq.LinearGaussian.random(DIM, N_DATA, NOISE, 7, spectrum=spectrum)
        for variance in VARIANCES:
            times: dict[str, list[float]] = {"default": [], "L-BFGS-B": [], "CG": []}
            for seed in SEEDS:
                times["default"].append(default_time(problem, variance, seed))
                theta0 = aq.starting_point(problem, None, seed)
                for method, count in rounds.items():
                    needed = count(problem, theta0)
                    times[method].append(round_times(variance, seed, needed)[-1])
            row: dict[str, Any] = {"spectrum": name, "sigma_w": math.sqrt(variance)}
            for method, mine in times.items():
                row[method] = float(np.mean(mine))
            rows.append(row)
    write("beyond/plain", rows)


def summary() -> None:
    """Print the speed-up of the default over each method: geometric mean over spectra, 95 % interval, range."""
    best: dict[tuple[str, str], float] = {}
    for row in read("beyond/rivals"):
        cell = (row["spectrum"], row["sigma_w"])
        best[cell] = min(best.get(cell, math.inf), float(row["mean"] or "inf"))
    logs: dict[str, dict[str, list[float]]] = {}
    for row in read("beyond/plain"):
        cell = (row["spectrum"], row["sigma_w"])
        others = {"best tuned stochastic rival": best[cell]}
        others |= {name: float(row[name]) for name in ("L-BFGS-B", "CG")}
        for name, time in others.items():
            mine = logs.setdefault(name, {}).setdefault(row["spectrum"], [])
            mine.append(math.log(time / float(row["default"])))
    for name, cells in logs.items():
        # The three spreads of one spectrum are alike, so the spectra are the independent units.
        means = [float(np.mean(values)) for values in cells.values()]
        every = [value for values in cells.values() for value in values]
        # 2.26: Student's t of 9 degrees of freedom at 97.5 %.
        half = 2.26 * float(np.std(means, ddof=1)) / math.sqrt(len(means))
        middle = float(np.mean(means))
        low, mean, high = np.exp([middle - half, middle, middle + half])
        least, most = np.exp([min(every), max(every)])
        print(
            f"{name}: {mean:.2f}, 95 % interval {low:.2f} to {high:.2f}; cells {least:.2f} to {most:.1f}"
        )


if __name__ == "__main__":
    measure()
    summary()
