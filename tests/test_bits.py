"""benchmarks.bits: equal runs have equal digests, and any difference between two runs changes the digest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import asyncqn as aq
from benchmarks import bits


def simulated_run() -> aq.Run:
    problem = aq.LinearGaussian.example("float64")
    algorithm = aq.AsyncSGD.example(problem)
    engine = bits.engines(algorithm)["simulator"]
    return aq.minimize(problem, algorithm, engine=engine, commits=10, seed=5)


def test_a_digest_changes_with_the_last_bit_of_theta_and_with_the_outcome() -> None:
    run = simulated_run()
    assert bits.digest(run, timed=True) == bits.digest(simulated_run(), timed=True)
    moved = run.theta.copy()
    moved[0] = np.nextafter(moved[0], np.inf)
    for other in (
        replace(run, theta=moved),
        replace(run, status=aq.Outcome("stopped")),
    ):
        assert bits.digest(other, timed=True) != bits.digest(run, timed=True)


def test_every_algorithm_of_the_library_is_compared_on_some_problem() -> None:
    names = {name.split(",")[0] for name, _, _ in bits.algorithms_and_problems()}
    assert {"async-sgd", "as-lbfgs", "mb-lbfgs", "exact-lbfgs", "table-lbfgs"} <= names
