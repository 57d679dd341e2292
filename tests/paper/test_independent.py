"""The figures' cells against an independent program: to rounding with the same random numbers, and within
errors with its own."""

from __future__ import annotations

import numpy as np
import pytest
from independent import OwnNumbers, Problem, Timing, asynchronous, rounds

from asyncqn import Simulator, starting_point
from asyncqn.core.streams import Stream
from asyncqn.types import Request
from asyncqn_paper.figures.fig2 import (
    BASE,
    BY_PAIRS,
    H0,
    INTEGRATOR,
    ORACLE,
    PAYS,
    PROBLEM,
    Setting,
)
from asyncqn_paper.figures.gaussian import model
from asyncqn_paper.measuring import HOPELESS
from asyncqn_paper.settings import (
    EVERYONE,
    NAMES,
    NOBODY,
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
        float(machines.stds()[0]),
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
    setting = Setting({**BASE, PAYS: payer, INTEGRATOR: "modified", H0: ORACLE})
    machines, given = cluster(kind, 7, 200.0, payer=payer), setting.parameters(kind)
    gaussian, commits, seed = model(setting.choices[PROBLEM], 0), 60, 11
    theta0, seen = starting_point(gaussian, None, seed), []
    Simulator(machines).minimize(
        Request(gaussian, algorithm(kind, given), theta0=theta0, seed=seed, commits=commits, evaluate=1,
                callback=lambda progress: seen.append((progress.time, progress.theta.copy())))
    )  # fmt: skip
    problem = Problem(gaussian.A, gaussian.y, gaussian.noise_var)
    numbers = SameNumbers(seed, machines)
    path = run(
        kind,
        with_defaults(given),
        problem,
        plain(machines),
        numbers,
        theta0,
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


FRESH = [
    ("rows-alike-2", EVERYONE, 200.0, "modified", ORACLE),
    ("rows-alike-8", TREE, 50.0, "modified", ORACLE),
    ("rows-alike-2", UPDATES_ONLY, 900.0, "explicit", BY_PAIRS),
]


@pytest.mark.parametrize(("problem", "payer", "variance", "integrator", "h0"), FRESH)
def test_fresh_cells_agree_within_their_errors_with_numbers_of_its_own(
    problem, payer, variance, integrator, h0
):
    """Seeds and draws that no published cell uses; both programs see the same data and starts."""
    setting = Setting(
        {**BASE, PROBLEM: problem, PAYS: payer, INTEGRATOR: integrator, H0: h0}
    )
    seeds = range(7000, 7012)
    for kind in NAMES:
        given, machines = (
            setting.parameters(kind),
            cluster(kind, 40, variance, payer=payer),
        )
        curve = setting.curve(kind, variance, 1)
        ours = [
            curve.run(algorithm(kind, given), machines, seed)["time 0.05"]
            for seed in seeds
        ]
        theirs = []
        for seed in seeds:
            gaussian = model(problem, seed % 5)
            data = Problem(gaussian.A, gaussian.y, gaussian.noise_var)
            timing, theta0 = plain(machines), starting_point(gaussian, None, seed)
            numbers = OwnNumbers(seed, timing)
            path = run(
                kind,
                with_defaults(given),
                data,
                timing,
                numbers,
                theta0,
                target=0.05,
                limit=6000.0,
            )
            theirs.append(path.reached)
        assert None not in ours
        assert None not in theirs
        apart = np.log(ours) - np.log(theirs)
        assert (
            abs(apart.mean()) < 3.5 * apart.std(ddof=1) / np.sqrt(len(apart)) + 0.01
        ), kind


EXPLODING = [
    ("five-directions-8", EVERYONE, 200.0, "explicit", BY_PAIRS),
    ("five-weak-10", UPDATES_ONLY, 900.0, "explicit", BY_PAIRS),
    ("five-weak-10", TREE, 50.0, "modified", ORACLE),
    ("three-weak-39", NOBODY, 200.0, "explicit", BY_PAIRS),
]


@pytest.mark.parametrize(
    ("problem", "payer", "variance", "integrator", "h0"), EXPLODING
)
def test_where_as_lbfgs_explodes_it_does_so_in_both_programs(
    problem, payer, variance, integrator, h0
):
    """With the same random numbers and with its own: an explosion belongs to the method, not to a program."""
    setting = Setting(
        {**BASE, PROBLEM: problem, PAYS: payer, INTEGRATOR: integrator, H0: h0}
    )
    given, machines = (
        setting.parameters("as-lbfgs"),
        cluster("as-lbfgs", 40, variance, payer=payer),
    )
    curve, timing = setting.curve("as-lbfgs", variance, 1), plain(machines)
    for seed in range(7000, 7003):
        assert curve.run(algorithm("as-lbfgs", given), machines, seed)["lost"]
        gaussian = model(problem, seed % 5)
        data = Problem(gaussian.A, gaussian.y, gaussian.noise_var)
        theta0 = starting_point(gaussian, None, seed)
        for numbers in (SameNumbers(seed, machines), OwnNumbers(seed, timing)):
            path = asynchronous(
                data, "as-lbfgs", with_defaults(given), timing, numbers, theta0, target=0.05, limit=6000.0,
                hopeless=HOPELESS,
            )  # fmt: skip
            assert path.error(path.thetas[-1]) > HOPELESS * max(1.0, path.error(theta0))
