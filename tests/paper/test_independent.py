"""The figures' cells against an independent program: to rounding with the same random numbers, and within
errors with its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from independent import OwnNumbers, Problem, Timing, asynchronous, rounds

from asyncqn import Simulator, starting_point
from asyncqn.core.streams import Stream
from asyncqn.types import Request
from asyncqn_paper.figures.fig2 import SOME_PAIRS, Setting
from asyncqn_paper.figures.gaussian import HOPELESS, model
from asyncqn_paper.settings import (
    EVERYONE,
    NAMES,
    TREE,
    UPDATES_ONLY,
    algorithm,
    cluster,
)


class SameNumbers:
    """asyncqn's own random numbers, for a comparison to rounding."""

    def __init__(self, seed, machines, count=400):
        self.seed = seed
        self.times = [
            machines.compute_times(seed, w, count) for w in range(machines.workers)
        ]

    def rows(self, worker, k, n, count):
        return Stream(self.seed, worker, k).rows(n, np.empty(count, np.int64)).copy()

    def normals(self, worker, k, d):
        return Stream(self.seed, worker, k).normals(np.empty(d))

    def time(self, worker, k):
        return float(self.times[worker][k])


def plain(machines):
    return Timing(
        machines.workers,
        float(machines.means()[0]),
        float(machines.laws()[0].std),
        machines.message,
        machines.master,
        machines.link,
        machines.sending,
    )


def run(kind, given, problem, timing, numbers, theta0, **more):
    if kind == "mb-lbfgs":
        return rounds(problem, given, timing, numbers, theta0, **more)
    return asynchronous(problem, kind, given, timing, numbers, theta0, **more)


def with_defaults(given):
    return {"epsilon": 1e-4, "initial_scale": "pair", **given}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("payer", [EVERYONE, UPDATES_ONLY, TREE])
def test_short_runs_are_the_same_to_nine_digits(kind, payer):
    given = Setting(8.0, payer, "modified").parameters(kind)
    if kind == "as-lbfgs":
        given |= {"initial_scale": 0.3, "epsilon": SOME_PAIRS}
    machines = cluster(kind, 7, 200.0, payer=payer)
    gaussian, commits, seed = model("rows-alike-8", 0), 60, 11
    theta0, seen = starting_point(gaussian, None, seed), []
    Simulator(machines).minimize(
        Request(gaussian, algorithm(kind, given), theta0=theta0, seed=seed, commits=commits, evaluate=1,
                callback=lambda progress: seen.append((progress.time, progress.theta.copy())))
    )  # fmt: skip
    problem = Problem(gaussian.A, gaussian.y, gaussian.noise_var)
    numbers = SameNumbers(seed, machines)
    path = run(
        *(kind, with_defaults(given), problem, plain(machines), numbers, theta0),
        commits=commits,
    )
    np.testing.assert_allclose(
        path.times[: commits + 1], [time for time, _ in seen], rtol=1e-9
    )
    thetas = np.array([theta for _, theta in seen])
    # Dense recursion and compact form differ in roundings, which pairs from few rows may enlarge.
    np.testing.assert_allclose(
        path.thetas[: commits + 1], thetas, atol=1e-9 * np.abs(thetas).max()
    )


def test_fresh_cells_agree_within_their_errors_with_numbers_of_its_own():
    """Seeds that no published cell uses; both programs see the same data and starts."""
    setting = Setting(2.0, f"{TREE}, 10 %")
    for kind in NAMES:
        given = setting.parameters(kind)
        machines = cluster(kind, 40, 200.0, payer=setting.payer)
        curve = setting.curve(kind, 200.0, range(7000, 7001))
        apart = []
        for seed in range(7000, 7008):
            ours = curve.run(algorithm(kind, given), machines, seed)["time 0.05"]
            gaussian = model("rows-alike-2", seed % 5)
            data = Problem(gaussian.A, gaussian.y, gaussian.noise_var)
            timing = plain(machines)
            theta0 = starting_point(gaussian, None, seed)
            numbers = OwnNumbers(seed, timing)
            path = run(
                *(kind, with_defaults(given), data, timing, numbers, theta0),
                target=0.05,
                limit=6000.0,
            )
            apart.append(np.log(ours) - np.log(path.reached))
        error = np.std(apart, ddof=1) / np.sqrt(len(apart))
        assert abs(np.mean(apart)) < 3.5 * error + 0.01, kind


def test_where_as_lbfgs_explodes_it_does_so_in_both_programs():
    """With the same random numbers and with its own: an explosion belongs to the method, not to a program."""
    setting = Setting(8.0, EVERYONE)
    given = setting.parameters("as-lbfgs")
    machines = cluster("as-lbfgs", 40, 200.0, payer=EVERYONE)
    curve = setting.curve("as-lbfgs", 200.0, range(7000, 7001))
    curve = replace(curve, problem="three-weak-39")
    timing = plain(machines)
    for seed in range(7000, 7001):
        assert curve.run(algorithm("as-lbfgs", given), machines, seed)["lost"]
        gaussian = model("three-weak-39", seed % 5)
        data = Problem(gaussian.A, gaussian.y, gaussian.noise_var)
        theta0 = starting_point(gaussian, None, seed)
        for numbers in (SameNumbers(seed, machines), OwnNumbers(seed, timing)):
            path = asynchronous(
                data, "as-lbfgs", with_defaults(given), timing, numbers, theta0, target=0.05, limit=6000.0,
                hopeless=HOPELESS,
            )  # fmt: skip
            assert path.error(path.thetas[-1]) > HOPELESS * max(1.0, path.error(theta0))
