"""The safeguard on smooth functions of every kind, from starts over twelve orders of magnitude.

Six functions, thirteen magnitudes, three seeds: 234 starts, by the default algorithm.  Over them rotate: U
with the gradient or only on demand, float64 and float32, one worker and three.  Every fifth is the call that
users make, on the simulator or on threads; the others skip the engine, which costs more than the arithmetic.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize as polish
from smooth_problems import PROBLEMS

import asyncqn as aq
from asyncqn.algorithms.defaults import default_algorithm
from asyncqn.core.master import Master
from asyncqn.core.request import Request
from asyncqn.core.stopping import Ended, Stopping
from asyncqn.core.streams import Stream
from asyncqn.core.worker import WorkerSteps
from asyncqn.types import Task

TOL, MOST = 1e-8, 1500
MAGNITUDES, SEEDS = range(-6, 7), range(3)
LEAST = {
    "Rosenbrock": 0.7,
    "Cliff": 0.5,
    "Quartic": 0.8,
    "Poisson": 0.5,
    "Logistic": 0.9,
    "TanhNetwork": 0.75,
}
"""The share of starts from which it must converge: beyond, exp overflows, or float32 gradients are noise.
Which starts these are hangs on the last bits, so a tenth is left for other processors (seen: 34, 37)."""


def call(
    problem: Any, theta0: Any, workers: int, threads: bool
) -> tuple[str, str, Any]:
    """The default call: (status, message, the point reported)."""
    engine = (
        aq.Threads(workers)
        if threads
        else aq.Simulator(aq.Cluster(workers, worker_std=0.5))
    )
    run = aq.minimize(problem, engine=engine, theta0=theta0, tol=TOL, max_passes=MOST)
    assert run.success == (run.status == "converged")
    return run.status, run.message, run.theta


def run(problem: Any, theta0: Any, algorithm: Any) -> tuple[str, str, Any]:
    """(status, message, the point reported), every part computed at every version."""
    request = Request(
        problem, algorithm, theta0, MOST, evaluate=None, stopping=Stopping(tol=TOL)
    )
    master = Master(request, workers=1)
    steps = WorkerSteps(algorithm, problem, master.limit)
    parts, n = range(algorithm.stages[-1].parts), 0
    try:
        for n in range(MOST):
            tasks = [Task(0, n, Stream(0, 0, n), part) for part in parts]
            updates = [steps.compute(master.iterate, None, task) for task in tasks]
            master.commit(updates, float(n), [0] * len(updates))
    except Ended as ended:
        return ended.outcome, str(ended), master.iterate.base
    return "stopped", f"{MOST} passes were made", master.iterate.base


def exact(problem: Any, theta: Any) -> tuple[float, Any]:
    """U and its gradient in float64."""
    g = np.empty(problem.dim)
    problem.grad(np.asarray(theta, np.float64), np.arange(problem.n_data), g)
    return problem.value(np.asarray(theta, np.float64)), g


def finite(problem: Any, theta: Any) -> bool:
    """Whether U, its gradient and the square of that are numbers."""
    g = np.empty_like(theta)
    problem.grad(theta, np.arange(problem.n_data), g)
    with np.errstate(all="ignore"):
        return bool(
            np.isfinite(problem.value(theta))
            and np.isfinite(g @ g)
            and np.isfinite(g @ g * 100)
        )


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_run_ends_at_a_stationary_point_or_says_why_not(kind: Any) -> None:
    converged = count = 0
    for magnitude in MAGNITUDES:
        for seed in SEEDS:
            turn = count % 8
            count += 1
            dtype, valued, workers = (
                (np.float64, np.float32)[turn & 1],
                turn & 2 == 0,
                (1, 3)[turn >> 2],
            )
            problem, truth = kind(dtype, valued), kind()
            theta0 = 10.0**magnitude * np.random.default_rng(seed).standard_normal(
                kind.dim
            )
            theta0 = theta0.astype(dtype)
            if count % 5 == 0:
                status, message, theta = call(
                    problem, theta0, workers, threads=count % 10 == 0
                )
            else:
                status, message, theta = run(
                    problem, theta0, default_algorithm(problem, workers)
                )
            case = f"from {magnitude}, {seed}: {status}, {message}"
            assert message
            if status == "diverged":
                assert not finite(problem, theta0), case
                continue
            value, g = exact(truth, theta)
            assert value <= exact(truth, theta0)[0] or status != "converged", case
            eps = float(np.finfo(dtype).eps)
            t = max(TOL, 100 * eps)
            # A float32 gradient of thirty rows and a theta of length ten is off by some hundred eps.
            flat = (
                np.linalg.norm(g)
                * max(1.0, np.linalg.norm(theta))
                / max(1.0, abs(value))
            )
            if status == "converged":
                converged += 1
                assert flat <= 10 * t, case
                lowest = polish(
                    partial(exact, truth), theta, jac=True, method="L-BFGS-B"
                ).fun
                assert value - lowest <= 100 * t * max(1.0, abs(value)), case
    assert converged >= LEAST[kind.__name__] * count
