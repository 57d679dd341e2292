"""Table L-BFGS: the centred step, the scatter, growth, the length of steps, holding, the stochastic start."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.exact.scatter import RATE, ScatterMatrix
from asyncqn.algorithms.table.choice import table_algorithm
from asyncqn.algorithms.table.state import LARGEST_FACTOR, GradientTable, Tally, Update
from asyncqn.algorithms.table.table_lbfgs import Iterate, place_of
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
    assert it.memory.stored == 1
    assert abs(it.theta[0] - minima.mean()) < 1e-12
    assert len(set(it.table.entries[1, :3, 0])) == 3


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
        known = it.table.read >= 0
        sums = it.table.entries[:, known].sum(axis=1)
        assert np.allclose(it.table.sums[:2], sums, atol=1e-12)
        assert it.table.counts.seen == known.sum()


def test_an_update_that_is_older_than_the_entry_of_its_part_is_void() -> None:
    algorithm = aq.TableLBFGS(parts=9, first=2)
    it = algorithm.init(np.zeros(1))
    for version in range(1, 5):
        it = _send(
            algorithm, it, version % 2, [1.0 + version], [0.1 * version], version
        )
    late = Update(np.array([9.0]), np.array([9.0]), math.nan, 0, True, 1)
    after = algorithm.apply(it, [late], _commit(5))
    assert after.table.entries[0, 0, 0] == 5.0
    assert after.pace == it.pace


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


def test_parts_in_a_row_lie_far_apart_and_cover_all_rows() -> None:
    for parts in (1, 2, 7, 100, 1024):
        places = [int(place_of(part, parts)) for part in range(parts)]
        assert sorted(places) == list(range(parts))
    assert (
        len({int(place_of(part, 100)) // 10 for part in range(10)}) >= 8
    )  # of ten tenths of the rows


def test_growth_quickens_until_all_parts_are_active() -> None:
    algorithm = aq.TableLBFGS(parts=40, first=4)
    assert algorithm.stages[0].growth == Growth(4, quick=10)
    whole = 3 * 4 + 2 * 6 + 30
    schedule = aq.simulate(aq.Cluster(3, 1.0, 0.3), algorithm.stages, whole + 3, 0)
    for version, most in ((0, 4), (12, 5), (24, 11)):
        assert schedule.part[schedule.read <= version].max() < most
    assert schedule.part[schedule.read <= whole].max() == 39


def test_a_table_that_is_led_astray_still_converges() -> None:
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
    algorithm = table_algorithm(problem, workers)
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
    assert 16 * table_algorithm(Long(), 4).parts * 10**6 <= 2**30


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
        # Parts with curvature 2 and minima of their own.
        z = it.theta + 0.1 * rng.standard_normal(3)
        it = _send(
            algorithm, it, version % 9, 2.0 * (z - minima[version % 9]), z, version
        )
        if not np.array_equal(it.theta, before):
            moved.append(version)
        known = it.table.read >= 0
        sums = it.table.entries[:, known].sum(axis=1)
        assert np.allclose(it.table.sums[:2], sums, atol=1e-12)
    assert len(moved) > 5
    assert all(version % 3 == 0 for version in moved)


def test_many_workers_get_fewer_steps_and_a_slow_master_longer_parts() -> None:
    problem = aq.LogisticRegression.random(n_data=60_000, dim=5, seed=0)
    few, many = (table_algorithm(problem, workers, master=0.3) for workers in (40, 400))
    assert (few.every, many.every) == (1, 10)
    assert (few.parts, many.parts) == (1500, 500)
    # Four parts per worker where the master keeps up, one at least where it does not.
    assert table_algorithm(problem, 400, master=0.01).parts == 1600
    assert table_algorithm(problem, 400, master=3.0).parts == 400


PARTS = 10
MINIMA = np.linspace(-1.0, 3.0, PARTS)


def _quadratic(
    algorithm: aq.TableLBFGS, it: Iterate, version: int, part: int
) -> Iterate:
    """Return the iterate after an update of a part with curvature 2 and a minimum of its own."""
    z = it.theta.copy()
    g, value = 2.0 * (z - MINIMA[part]), float(((z - MINIMA[part]) ** 2).sum())
    update = Update(g, z, value, part, True, version - 1)
    return algorithm.apply(it, [update], _commit(version))


def test_a_point_is_held_until_every_part_was_computed_at_it() -> None:
    algorithm = aq.TableLBFGS(PARTS, PARTS)
    it, version = algorithm.init(np.array([7.0])), 0
    while it.hold.since < 0:
        version += 1
        assert version < 100, "the slope vanishes, and the point must be held"
        it = _quadratic(algorithm, it, version, (version - 1) % PARTS)
    held, since = it.theta.copy(), it.hold.since
    old = Update(np.array([9.0]), np.array([9.0]), 81.0, 0, True, since - 1)
    it = algorithm.apply(it, [old], _commit(version + 1))
    assert it.hold.arrived == 0, "an update taken before the hold does not count"
    version += 1
    for count in range(PARTS):
        assert (it.theta == held).all()
        assert algorithm.standing(it) is None
        version += 1
        it = _quadratic(algorithm, it, version, count)
        if (
            count == 0
        ):  # a second update of a part that has arrived counts no part twice
            version += 1
            it = _quadratic(algorithm, it, version, count)
    standing = algorithm.standing(it)
    assert standing is not None
    assert standing.point.tolist() == held.tolist()
    slope = abs(2.0 * (held[0] - MINIMA.mean()))
    assert standing.grad_norm == pytest.approx(slope, abs=1e-14)
    assert standing.value == pytest.approx(((held[0] - MINIMA) ** 2).mean(), rel=1e-14)


def test_updates_that_are_not_finite_halve_the_radius_once_per_round_trip() -> None:
    algorithm = aq.TableLBFGS(PARTS, PARTS)
    it = algorithm.init(np.array([70.0]))
    for version in range(1, 16):
        it = _quadratic(algorithm, it, version, (version - 1) % PARTS)
    far, before = np.array([1e6]), it.table.entries.copy()
    longest = min(it.pace.radius, it.pace.longest or math.inf)
    for part, version in ((6, 16), (7, 17)):
        update = Update(np.zeros(1), far, math.inf, part, False, 15)
        it = algorithm.apply(it, [update], _commit(version))
        assert it.pace.radius == 0.5 * longest
    assert np.array_equal(it.table.entries, before)
    mean = it.table.sums[1] / PARTS
    assert abs(it.theta - mean) <= it.pace.radius * (1.0 + 1e-12)


@pytest.mark.parametrize("moved", [0.1, 0.5, 1.0, 1.6, 20.0])
def test_the_factor_is_the_minimum_of_the_parabola_through_the_moves(
    moved: float,
) -> None:
    # Eight parts moved on (t - 1)^2 from 0 to `moved`.
    rise = (moved - 1.0) ** 2 - 1.0
    tally = Tally(8, 0, 8, 8 * rise, 8 * rise**2, 8 * -2.0 * moved)
    assert tally.factor == pytest.approx(max(min(1 / moved, LARGEST_FACTOR), 0.25))
    assert tally.harmful == (moved > 2.0)


def test_where_values_bend_downwards_the_slope_decides() -> None:
    assert Tally(8, 0, 8, -8.0, 8.0, -1.0).factor == LARGEST_FACTOR
    assert Tally(8, 0, 8, 1.0, 8.0, 2.0).factor == 1.0 / LARGEST_FACTOR


def _saddle(theta0: float) -> tuple[Any, np.ndarray]:
    """Return a factorization near zero, where all gradients vanish, and its start."""
    from asyncqn_recommender import MatrixFactorization

    rng = np.random.default_rng(0)
    pairs = rng.choice(60 * 50, 2400, replace=False)
    users, items = pairs // 50, pairs % 50
    rows, columns = rng.standard_normal((60, 2)), rng.standard_normal((50, 2))
    values = (rows[users] * columns[items]).sum(axis=1)
    model = MatrixFactorization(
        users=users, items=items, values=values, n_users=60, n_items=50, rank=2,
        dtype="float64",
    )  # fmt: skip
    return model, theta0 * rng.standard_normal(model.dim)


@pytest.mark.parametrize("workers", [2, 16])
def test_the_stochastic_start_leaves_a_saddle(workers: int) -> None:
    problem, theta0 = _saddle(1e-3)
    algorithm = table_algorithm(problem, workers)
    assert algorithm.stochastic
    engine = aq.Simulator(aq.Cluster(workers, 1.0, 0.3))
    run = aq.minimize(problem, algorithm, engine=engine, theta0=theta0, max_passes=25)
    assert run.fun < 0.2 * problem.value(theta0)


class Hill:
    """U = sum of cos: a table of a few parts may well be led uphill, and may never say that it converged."""

    dim, n_data = 3, 240

    def value(self, theta: np.ndarray) -> float:
        return float(self.n_data * (np.cos(3.0 * theta) + 0.05 * theta**2).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        whole = self.n_data * (0.1 * theta - 3.0 * np.sin(3.0 * theta))
        out[:] = whole + rows.mean() - 0.5 * (self.n_data - 1)


@pytest.mark.parametrize(
    ("parts", "workers", "seed"),
    [(3, 2, 0), (7, 20, 1), (8, 3, 0), (60, 5, 1), (60, 90, 0)],
)
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


@pytest.mark.parametrize("commit", [100])
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

    broken = tmp_path / "run"
    options: Any = {"engine": engine, "evaluate": 10}
    aq.minimize(problem, algorithm, **options, callback=stop, checkpoint=broken)
    resumed = aq.resume(broken, problem)
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
    looks = []
    exact = GradientTable.exact
    monkeypatch.setattr(
        GradientTable, "exact", lambda table: looks.append(1) or exact(table)
    )
    problem = aq.LogisticRegression.random(n_data=1500, dim=8, condition=30.0, seed=2)
    engine = aq.Simulator(aq.Cluster(5, 1.0, 0.5))
    run = aq.minimize(problem, aq.TableLBFGS(150, 20), engine=engine)
    assert run.status == "converged"
    assert 1 <= len(looks) <= run.nit / 150


def test_where_a_prior_has_most_of_the_curvature_a_run_converges() -> None:
    # The Hessian is about I, and the gradients of the rows scatter in other directions, 60 times as little.
    rng = np.random.default_rng(3)
    A = 0.01 * rng.standard_normal((60, 40))
    problem = aq.LinearGaussian(A, rng.standard_normal(60), 10.0)
    algorithm, engine = aq.TableLBFGS(60, 60), aq.Simulator(aq.Cluster(60, 1.0, 0.3))
    theta0 = 10.0 * rng.standard_normal(40)
    run = aq.minimize(problem, algorithm, engine=engine, theta0=theta0, max_passes=60)
    assert run.status == "converged"
