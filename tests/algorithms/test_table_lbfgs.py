"""Table L-BFGS: the centred step, the scatter, growth, turning back, and the end in exact passes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.exact.scatter import RATE, ScatterMatrix
from asyncqn.algorithms.quasi_newton.centred_table import TURNS, Update
from asyncqn.algorithms.quasi_newton.composition import Iterate
from asyncqn.algorithms.quasi_newton.endless_table import place_of
from asyncqn.core.stages import Growth
from asyncqn.types import Commit


def _commit(version: int) -> Commit:
    return Commit(version, [0], lambda theta: math.nan)


def _send(
    algorithm: aq.TableLBFGS, it: Iterate, part: int, g: Any, z: Any, version: int
) -> Iterate:
    update = Update(np.asarray(g), np.asarray(z), math.nan, part, True, version - 1)
    return algorithm.apply(it, [update], _commit(version))


def test_stale_gradients_of_a_quadratic_give_its_minimum_once_the_curvature_is_known() -> (
    None
):
    # All parts have curvature 3 and minima of their own: with H = 1/3, mean z - H mean g is the mean of the
    # minima, though every gradient was taken at another point and none near it.
    algorithm = aq.TableLBFGS(parts=8, first=8)
    rng = np.random.default_rng(1)
    minima, it = rng.standard_normal(8), algorithm.init(np.zeros(1))
    for version in range(1, 12):
        part, z = (
            (version - 1) % 8,
            0.0 if version <= 8 else float(rng.standard_normal()),
        )
        it = _send(algorithm, it, part, [3.0 * (z - minima[part])], [z], version)
    assert it.memory.ring.accepted == 1
    assert abs(it.theta[0] - minima.mean()) < 1e-12
    assert len(set(it.course.table.z[:3, 0])) == 3


def test_the_sums_are_those_of_the_table() -> None:
    rng = np.random.default_rng(0)
    algorithm = aq.TableLBFGS(parts=9, first=2)
    it = algorithm.init(np.zeros(3))
    for version in range(1, 30):
        it = _send(
            algorithm,
            it,
            int(rng.integers(9)),
            rng.standard_normal(3),
            rng.standard_normal(3),
            version,
        )
        known = it.course.table.read >= 0
        assert np.allclose(
            it.course.table.g_sum, it.course.table.g[known].sum(axis=0), atol=1e-12
        )
        assert np.allclose(
            it.course.table.z_sum, it.course.table.z[known].sum(axis=0), atol=1e-12
        )
        assert it.course.table.counts.seen == known.sum()


def test_an_update_that_is_older_than_the_entry_of_its_part_is_void() -> None:
    algorithm = aq.TableLBFGS(parts=9, first=2)
    it = algorithm.init(np.zeros(1))
    for version in range(1, 5):
        it = _send(
            algorithm, it, version % 2, [1.0 + version], [0.1 * version], version
        )
    late = Update(np.array([9.0]), np.array([9.0]), math.nan, 0, True, 1)
    after = algorithm.apply(it, [late], _commit(5))
    assert after.course.table.g[0, 0] == 5.0
    assert after.course.progress == it.course.progress


def test_scatter_gives_the_inverse_covariance_of_the_updates() -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((3, 3))
    metric = ScatterMatrix.empty(np.zeros(3))
    for _ in range(4000):
        metric.note(half @ rng.standard_normal(3) + 5.0)
    assert metric.renew()
    inverse = np.eye(3)
    for row in inverse:
        metric.solve(row)
    # 1000 differences in the window: entries are known to about sqrt(2 / 500) = 6 %, off by d / k = 0.3 %.
    assert np.allclose(half @ half.T @ inverse, np.eye(3), atol=0.35)


@pytest.mark.parametrize("length", [3, 300])
def test_scatter_about_the_running_mean_is_that_of_a_plain_loop(length: int) -> None:
    rng = np.random.default_rng(0)
    metric, F, mean = (
        ScatterMatrix.empty(np.zeros(length)),
        np.zeros((length, length)),
        np.zeros(length),
    )
    for k in range(30):
        update = rng.standard_normal(length)
        metric.note_deviation(update)
        x = update - mean
        if k > 0:
            F += (np.outer(x, x) / (1.0 + max(1.0 / k, RATE / (2.0 - RATE))) - F) / k
        mean += max(1.0 / (k + 1), RATE) * x
    kept = np.tril(F) if length == 3 else np.diag(F)[None]
    assert np.allclose(metric.F, kept, rtol=1e-12, atol=1e-14)


def test_scatter_about_the_running_mean_is_sharper_than_that_of_differences() -> None:
    # Of k differences the variance of an entry is 3/2 of what k updates with a known mean have; over 300
    # tries the ratio of the two is known to a tenth.
    rng = np.random.default_rng(0)
    errors = np.zeros(2)
    for _ in range(300):
        metrics = ScatterMatrix.empty(np.zeros(2)), ScatterMatrix.empty(np.zeros(2))
        for update in rng.standard_normal((100, 2)) + 5.0:
            metrics[0].note(update)
            metrics[1].note_deviation(update)
        errors += [np.sum((np.tril(metric.F) - np.eye(2)) ** 2) for metric in metrics]
    assert errors[1] < 0.85 * errors[0]


@pytest.mark.parametrize(("length", "moved"), [(1, 10), (40, 20)])
def test_a_pair_is_of_a_quarter_of_the_parts_or_of_half_as_many_updates_as_numbers(
    length: int, moved: int
) -> None:
    rng = np.random.default_rng(0)
    algorithm = aq.TableLBFGS(parts=40, first=40)
    it, pairs = algorithm.init(np.zeros(length)), []
    for version in range(1, 100):
        z = (
            np.zeros(length)
            if version <= 40
            else 0.3 + 0.05 * rng.standard_normal(length)
        )
        it = _send(algorithm, it, (version - 1) % 40, 2.0 * z - 1.0, z, version)
        pairs.append(it.memory.ring.accepted)
    assert pairs.index(2) - pairs.index(1) == moved


def test_long_thetas_keep_the_diagonal_alone() -> None:
    metric = ScatterMatrix.empty(np.zeros(300))
    assert metric.F.shape == (1, 300)
    rng = np.random.default_rng(0)
    for _ in range(50):
        metric.note(rng.standard_normal(300) * np.linspace(1.0, 3.0, 300))
    assert metric.renew()
    v = np.ones(300)
    metric.solve(v)
    assert v[:50].mean() > 3.0 * v[-50:].mean()  # about 9


def test_parts_in_a_row_lie_far_apart_and_cover_all_rows() -> None:
    for parts in (1, 2, 7, 100, 1024):
        places = [int(place_of(part, parts)) for part in range(parts)]
        assert sorted(places) == list(range(parts))
    assert (
        len({int(place_of(part, 100)) // 10 for part in range(10)}) >= 8
    )  # of ten tenths of the rows


def test_growth_quickens_and_says_when_all_parts_are_active() -> None:
    growth = Growth(4, quick=10)
    algorithm = aq.TableLBFGS(parts=40, first=4)
    assert algorithm.stages[0].growth == growth
    assert growth.updates(40) == 3 * 4 + 2 * 6 + 30
    schedule = aq.simulate(
        aq.Cluster(3, 1.0, 0.3), algorithm.stages, growth.updates(40) + 3, 0
    )
    assert schedule.part is not None
    active = [
        int(schedule.part[schedule.read <= v].max()) + 1
        for v in (0, 12, 24, growth.updates(40))
    ]
    assert (np.array(active[:3]) <= (4, 5, 11)).all()
    assert active[3] == 40


def test_a_table_that_goes_astray_turns_back_and_the_run_still_converges() -> None:
    # All curvature lies in the rows of one part: means over parts say nothing of it.
    A = np.zeros((400, 6))
    A[:6] = 30.0 * np.eye(6)
    A[6:] = 1e-3 * np.random.default_rng(0).standard_normal((394, 6))
    problem = aq.LinearGaussian(A, A @ np.arange(1.0, 7.0), 1.0)
    algorithm = aq.TableLBFGS(parts=40, first=4)
    for seed in range(3):
        run = aq.minimize(
            problem, algorithm, engine=aq.Simulator(aq.Cluster(4, 1.0, 0.5)), seed=seed
        )
        assert run.status == "converged"
        assert run.fun <= problem.optimum * (1.0 + 1e-9) + 1e-9
        assert run.counters["turns"] <= TURNS + 1


class _Wild:
    """Finite near the start alone, U = sum of exp(50 theta_j) - a_i theta_j."""

    dim, n_data = 3, 200

    def value(self, theta: np.ndarray) -> float:
        with np.errstate(over="ignore"):
            mean = (
                20.0 + 0.5 * (self.n_data - 1) / self.n_data - 0.5
            )  # that of the rows, as in the gradient
            return float(
                np.exp(50.0 * theta).sum() * self.n_data
                - mean * self.n_data * theta.sum()
            )

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        with np.errstate(over="ignore"):
            out[:] = self.n_data * (
                50.0 * np.exp(50.0 * theta) - 20.0 - (rows.mean() / self.n_data - 0.5)
            )


def test_a_gradient_that_is_not_finite_is_no_divergence() -> None:
    algorithm = aq.TableLBFGS(parts=40, first=4)
    run = aq.minimize(
        _Wild(),
        algorithm,
        engine=aq.Simulator(aq.Cluster(2)),
        theta0=np.array([0.0, 2.0, -3.0]),
        check=False,
    )
    assert run.status == "converged"
    assert np.allclose(
        run.theta, math.log(0.4) / 50.0, atol=1e-3
    )  # 50 exp(50 t) = 20, by all rows


@pytest.mark.parametrize("workers", [1, 7, 60])
def test_a_run_that_says_converged_is_at_a_stationary_point(workers: int) -> None:
    problem = aq.LogisticRegression.random(n_data=1500, dim=8, condition=30.0, seed=2)
    algorithm = aq.table_algorithm(problem, workers)
    engine = aq.Simulator(aq.Cluster(workers, 1.0, 0.5))
    run = aq.minimize(problem, algorithm, engine=engine, seed=3, commits=5000)
    assert run.status == "converged"
    g, first = np.empty(8), np.empty(8)
    problem.grad(run.theta, np.arange(1500), g)
    problem.grad(run.theta0, np.arange(1500), first)
    # The test of core.stopping, whose first slope may be an estimate from a few parts: a factor of 2.
    assert np.linalg.norm(g) <= 2e-8 * max(np.linalg.norm(first), 1.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"parts": 0, "first": 1}, "parts must be an integer"),
        ({"parts": 4, "first": 5}, "first must be at most"),
        ({"parts": 4, "first": 2, "memory": 0}, "memory must be an integer"),
        ({"parts": 4, "first": 2, "stochastic": 1}, "stochastic must be"),
    ],
)
def test_bad_parameters_get_a_sentence(given: dict[str, int], words: str) -> None:
    with pytest.raises(aq.BadInput, match=words):
        aq.TableLBFGS(**given)


def test_a_table_that_does_not_fit_the_master_is_refused() -> None:
    class Long:
        dim, n_data = 10**6, 10**6

        def value(self, theta: Any) -> float:
            raise AssertionError("no value is needed")

        def grad(self, theta: Any, rows: Any, out: Any) -> None:
            raise AssertionError("no gradient is needed")

    with pytest.raises(aq.BadInput, match="too large for the master"):
        aq.TableLBFGS(parts=1000, first=10).check(Long())
    assert 16 * aq.table_algorithm(Long(), 4).parts * 10**6 <= 2**30


def test_theta_is_set_anew_every_few_updates_and_all_of_them_enter_the_table() -> None:
    rng = np.random.default_rng(0)
    algorithm, minima = (
        aq.TableLBFGS(parts=9, first=2, every=3),
        rng.standard_normal((9, 3)),
    )
    it = algorithm.init(np.zeros(3))
    moved = []
    for version in range(1, 31):
        before = it.theta.copy()
        # Parts with curvature 2 and minima of their own: no update gives a reason to turn back.
        z = it.theta + 0.1 * rng.standard_normal(3)
        it = _send(
            algorithm, it, version % 9, 2.0 * (z - minima[version % 9]), z, version
        )
        if not np.array_equal(it.theta, before):
            moved.append(version)
        known = it.course.table.read >= 0
        assert np.allclose(
            it.course.table.g_sum, it.course.table.g[known].sum(axis=0), atol=1e-12
        )
    assert len(moved) > 5
    assert all(version % 3 == 0 for version in moved)


@pytest.mark.parametrize("every", [1, 7])
def test_a_run_with_fewer_steps_than_updates_converges(every: int) -> None:
    problem = aq.LogisticRegression.random(n_data=4000, dim=5, seed=0)
    algorithm = aq.TableLBFGS(parts=80, first=16, every=every)
    run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=16)))
    assert run.status == "converged"
    g = np.empty(5)
    problem.grad(run.theta, np.arange(4000), g)
    assert np.linalg.norm(g) <= 1e-6 * abs(run.fun)


def test_many_workers_get_fewer_steps_and_a_slow_master_longer_parts() -> None:
    problem = aq.LogisticRegression.random(n_data=60_000, dim=5, seed=0)
    few, many = (
        aq.table_algorithm(problem, workers, master=0.3) for workers in (40, 400)
    )
    assert (few.every, many.every) == (1, 10)
    assert (few.parts, many.parts) == (1500, 1500)
    # Four parts per worker where the master keeps up, one at least where it does not.
    assert aq.table_algorithm(problem, 400, master=0.01).parts == 1600
    assert aq.table_algorithm(problem, 400, master=3.0).parts == 400
