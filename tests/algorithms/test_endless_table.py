"""The endless table: holding, exact phases, trust, recovery, and what a run may say at its end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.exact.scatter import (
    ScatterInverse,
    ScatterMatrix,
)
from asyncqn.algorithms.quasi_newton.centred_table import Progress, Update
from asyncqn.algorithms.quasi_newton.composition import Iterate
from asyncqn.algorithms.quasi_newton.endless_table import STRETCH, WINDOWS_PER_HALVING
from asyncqn.types import Commit

PARTS = 10
MINIMA = np.linspace(-1.0, 3.0, PARTS)


def quadratic(
    algorithm: aq.TableLBFGS, it: Iterate, version: int, part: int, z: Any = None
) -> Iterate:
    """The iterate after an update of a part with curvature 2 and a minimum of its own, taken at z."""
    z = it.theta.copy() if z is None else np.asarray(z)
    g, value = 2.0 * (z - MINIMA[part]), float(((z - MINIMA[part]) ** 2).sum())
    update = Update(g, z, value, part, True, version - 1)
    return algorithm.apply(it, [update], Commit(version, [0], lambda theta: math.nan))


def test_a_point_is_held_until_every_part_was_computed_at_it() -> None:
    algorithm = aq.TableLBFGS(PARTS, PARTS)
    it, version = algorithm.init(np.array([7.0])), 0
    while it.course.hold.since < 0:
        version += 1
        assert version < 100, (
            "the slope of a quadratic vanishes, and the point must be held"
        )
        it = quadratic(algorithm, it, version, (version - 1) % PARTS)
    held, since = it.theta.copy(), it.course.hold.since
    old = Update(np.array([9.0]), np.array([9.0]), 81.0, 0, True, since - 1)
    it = algorithm.apply(it, [old], Commit(version + 1, [0], lambda theta: math.nan))
    assert it.course.hold.arrived == 0, (
        "an update taken before the hold says nothing of the held point"
    )
    version += 1
    for count in range(PARTS):
        assert (it.theta == held).all()
        assert algorithm.standing(it) is None
        version += 1
        it = quadratic(algorithm, it, version, count)
        if (
            count == 0
        ):  # a second update of a part that has arrived counts no part twice
            version += 1
            it = quadratic(algorithm, it, version, count)
    standing = algorithm.standing(it)
    assert standing is not None
    assert standing.point.tolist() == held.tolist()
    assert standing.grad_norm == pytest.approx(
        abs(2.0 * (held[0] - MINIMA.mean())), abs=1e-14
    )
    assert standing.value == pytest.approx(((held[0] - MINIMA) ** 2).mean(), rel=1e-14)


def test_where_U_bends_a_step_is_at_most_twice_the_longest_of_the_last_window() -> None:
    algorithm = aq.TableLBFGS(PARTS, PARTS)
    it = algorithm.init(np.array([7.0]))
    for version in range(1, PARTS + 3):
        it = quadratic(
            algorithm, it, version, (version - 1) % PARTS, [7.0 - 1e-3 * version]
        )
    course = it.course
    for bent in (False, True):
        progress = course.progress._replace(bent=bent, last_stride=1e-6)
        there = it._replace(
            course=course._replace(progress=progress), theta=it.theta.copy()
        )
        there = quadratic(algorithm, there, PARTS + 3, 2, [6.9])
        table = there.course.table
        length = abs(float(there.theta[0] - table.z_sum[0] / table.counts.seen))
        assert (length <= STRETCH * 1e-6 * (1.0 + 1e-6)) == bent


def test_windows_without_harm_take_a_halving_back() -> None:
    algorithm = aq.TableLBFGS(PARTS, PARTS)
    it = algorithm.init(np.array([70.0]))
    it = it._replace(course=it.course._replace(progress=Progress(turns=3)))
    turns, windows = [3], 0
    for version in range(1, 120):
        pairs = it.memory.ring.accepted
        it = quadratic(algorithm, it, version, (version - 1) % PARTS)
        windows += it.memory.ring.accepted > pairs
        turns.append(it.course.progress.turns)
        if it.course.hold.since >= 0:
            break
    assert sorted(turns, reverse=True) == turns
    assert turns[-1] == max(0, 3 - windows // WINDOWS_PER_HALVING) < 3


class Hill:
    """U = sum of cos: a table of a few parts may well be led uphill, and may never say that it converged."""

    dim, n_data = 3, 240

    def value(self, theta: np.ndarray) -> float:
        return float(self.n_data * (np.cos(3.0 * theta) + 0.05 * theta**2).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        out[:] = (
            self.n_data * (0.1 * theta - 3.0 * np.sin(3.0 * theta))
            + rows.mean()
            - 0.5 * (240 - 1)
        )


@pytest.mark.parametrize(
    ("parts", "workers"), [(3, 2), (7, 20), (8, 3), (60, 5), (60, 90)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_on_hills_ends_at_a_minimum_below_its_start(
    parts: int, workers: int, seed: int
) -> None:
    problem, rng = Hill(), np.random.default_rng(seed)
    theta0 = rng.uniform(-3.0, 3.0, 3)
    run = aq.minimize(
        problem,
        aq.TableLBFGS(parts, min(4, parts)),
        engine=aq.Simulator(aq.Cluster(workers, 1.0, 0.5)),
        theta0=theta0,
        seed=seed,
        check=False,
        evaluate=10**6,
    )
    assert run.status == "converged"
    assert run.fun <= problem.value(theta0)
    g, first = np.empty(3), np.empty(3)
    problem.grad(run.theta, np.arange(240), g)
    problem.grad(theta0, np.arange(240), first)
    assert np.abs(g).max() <= 1e-6 * np.abs(first).max()


def test_a_start_at_the_minimum_converges_there() -> None:
    problem = aq.LinearGaussian(np.eye(20), np.zeros(20), 1.0)
    engine = aq.Simulator(aq.Cluster(3))
    run = aq.minimize(problem, aq.TableLBFGS(10, 4), engine=engine, theta0=np.zeros(20))
    assert run.status == "converged"
    assert not run.theta.any()


@pytest.mark.parametrize("commit", [100, 250, 330])
def test_a_run_that_breaks_off_goes_on_to_the_same_bits(
    commit: int, tmp_path: Path
) -> None:
    problem = aq.LogisticRegression.random(n_data=600, dim=6, seed=1)
    algorithm, engine = aq.TableLBFGS(30, 6), aq.Simulator(aq.Cluster(3, 1.0, 0.3))
    whole = aq.minimize(problem, algorithm, engine=engine, evaluate=10)
    assert whole.status == "converged"
    assert whole.nit > commit

    def stop(progress: Any) -> None:
        if progress.commit >= commit:
            raise StopIteration

    aq.minimize(
        problem,
        algorithm,
        engine=engine,
        evaluate=10,
        callback=stop,
        checkpoint=tmp_path / "run",
    )
    resumed = aq.resume(tmp_path / "run", problem)
    assert resumed.theta.tobytes() == whole.theta.tobytes()
    assert resumed.fingerprints.tolist() == whole.fingerprints.tolist()


def test_a_run_on_threads_converges_and_replays_to_the_bit() -> None:
    problem = aq.LogisticRegression.random(n_data=600, dim=6, seed=1)
    run = aq.minimize(problem, aq.TableLBFGS(30, 6), engine=aq.Threads(3))
    assert run.status == "converged"
    again = aq.replay(run, problem=problem)
    assert again.theta.tobytes() == run.theta.tobytes()
    assert again.fingerprints.tolist() == run.fingerprints.tolist()


def test_the_work_of_a_commit_does_not_grow_with_the_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Only a point that is held, at most once in P commits, may look at all entries.
    from asyncqn.algorithms.quasi_newton import endless_table

    looks = []
    whole = endless_table._whole
    monkeypatch.setattr(
        endless_table, "_whole", lambda table: looks.append(1) or whole(table)
    )
    problem = aq.LogisticRegression.random(n_data=1500, dim=8, condition=30.0, seed=2)
    run = aq.minimize(
        problem, aq.TableLBFGS(150, 20), engine=aq.Simulator(aq.Cluster(5, 1.0, 0.5))
    )
    assert run.status == "converged"
    assert 1 <= len(looks) <= run.nit / 150


def test_where_a_prior_has_most_of_the_curvature_H0_does_without_the_scatter() -> None:
    # The Hessian is about I, and the gradients of the rows scatter in other directions, 60 times as little.
    rng = np.random.default_rng(3)
    problem = aq.LinearGaussian(
        0.01 * rng.standard_normal((60, 40)), rng.standard_normal(60), 10.0
    )
    algorithm, engine = aq.TableLBFGS(60, 60), aq.Simulator(aq.Cluster(60, 1.0, 0.3))
    run = aq.minimize(
        problem,
        algorithm,
        engine=engine,
        theta0=10.0 * rng.standard_normal(40),
        max_passes=60,
    )
    assert run.status == "converged"


def test_the_fit_of_the_scatter_is_that_of_its_matrix() -> None:
    rng = np.random.default_rng(0)
    for d in (4, 250):
        state = ScatterMatrix.empty(np.zeros(d))
        half = rng.standard_normal(d) + 2.0
        for _ in range(600):
            state.note_deviation(half * rng.standard_normal(d))
        initial = ScatterInverse(state)
        assert (
            initial.gain(rng.standard_normal(d), rng.standard_normal(d)) == 0.0
        )  # there is no F yet
        assert state.renew(2.0, 1.5)
        inverse = np.eye(d)
        for row in inverse:
            state.solve(row)
        s, y = rng.standard_normal((2, d))
        sFs, yHy = s @ np.linalg.inv(inverse) @ s, y @ inverse @ y
        wanted = math.log((s @ s) * (y @ y) / (sFs * yHy))
        assert initial.gain(s, y) == pytest.approx(wanted, rel=1e-8)
        fitting = inverse @ y  # s = H0 y, which F^-1 fits exactly
        assert initial.gain(fitting, y) >= 0.0
