from __future__ import annotations

from dataclasses import replace
from typing import Any

import factorization_oracles as oracle
import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.fit import check_fit
from asyncqn.core.master import Master
from asyncqn.core.request import Request
from asyncqn.core.streams import Stream
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import BadInput
from asyncqn.runs.conclude import best_candidate
from asyncqn.types import Commit, Task
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
from asyncqn_recommender.problems.profiled_factorization import (
    ProfiledFactorization,
    als,
)
from asyncqn_recommender.staged import (
    ImageMemory,
    StagedLBFGS,
    asynchronous_algorithm,
)

N_USERS = 400


def columns(scale: float = 1.0) -> dict[str, Any]:
    """Ratings of low rank with noise, sorted by user, some users with none."""
    rng = np.random.default_rng(7)
    n_items, n = 60, 8000
    users, items = np.sort(rng.integers(3, N_USERS, n)), rng.integers(0, n_items, n)
    F, G = rng.standard_normal((n_items, 2)), rng.standard_normal((N_USERS, 2))
    values = (
        3.5
        + np.einsum("nk,nk->n", F[items], G[users]) / 2
        + 0.5 * rng.standard_normal(n)
    )
    values = (scale * values).astype(np.float32)
    return {
        "users": users,
        "items": items,
        "values": values,
        "n_users": N_USERS,
        "n_items": n_items,
    }


def model(
    scale: float = 1.0, dtype: Any = np.float32, rank: int = 3
) -> ProfiledFactorization:
    return ProfiledFactorization(**columns(scale), rank=rank, dtype=dtype)


def run(problem: Any, workers: int, epochs: float = 14.0, **options: Any) -> aq.Run:
    algorithm = asynchronous_algorithm(problem, workers)
    cluster = aq.Cluster(workers, worker_mean=10.0, worker_std=6.0, message=1.0)
    commits = algorithm.commits_for(epochs)
    return aq.minimize(
        problem,
        algorithm,
        engine=Simulator(cluster),
        commits=commits,
        evaluate=commits,
        **options,
    )


@pytest.mark.parametrize("workers", [1, 5, 40])
def test_without_any_parameter_it_ends_near_the_value_of_many_als_sweeps(
    workers: int,
) -> None:
    problem = model()
    both = MatrixFactorization(**columns(), rank=3, dtype=np.float32)
    start = problem.initial(np.random.default_rng(0))
    best = both.value(als(both, problem.joint(start), sweeps=60).theta)
    for seed in range(3):
        found = run(problem, workers, epochs=25, seed=seed)
        assert found.status == "completed"
        # After 25 passes half a per cent remains, also between local minima of nearly the same depth.
        assert found.fun < 1.005 * best


@pytest.mark.parametrize("scale", [20.0, 0.05])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 100.0])
def test_wild_starts_and_scales_do_not_diverge(scale: float, spread: float) -> None:
    problem = model(scale)
    start = (spread * np.random.default_rng(1).standard_normal(problem.dim)).astype(
        np.float32
    )
    for workers in (1, 10, 80):
        found = run(problem, workers, theta0=start)
        assert found.status in ("completed", "converged")
        assert found.fun < problem.value(start)


def test_a_pass_does_not_depend_on_the_order_in_which_blocks_arrive() -> None:
    problem = model()
    algorithm = replace(asynchronous_algorithm(problem, 4), warmup=0)
    ends = []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        iterate = algorithm.init(problem.initial(np.random.default_rng(0)))
        for version in range(5):
            tasks = [Task(0, version, Stream(0, 0, 0), part) for part in order]
            updates = [algorithm.step(iterate, None, problem, task) for task in tasks]
            iterate = algorithm.apply(iterate, updates, Commit(1, [0], problem.value))
        ends.append(iterate.theta.tobytes())
    assert ends[0] == ends[1]


def test_shares_of_blocks_add_up_to_the_exact_gradient_and_value() -> None:
    problem = model(dtype=np.float64)
    algorithm = replace(asynchronous_algorithm(problem, 3), warmup=0)
    iterate = algorithm.init(problem.initial(np.random.default_rng(0)))
    tasks = [Task(0, 0, Stream(0, 0, 0), part) for part in range(3)]
    updates = [algorithm.step(iterate, None, problem, task) for task in tasks]
    exact = np.empty_like(iterate.theta)
    problem.grad(iterate.theta, np.arange(N_USERS), exact)
    # Sums of 8000 terms in another order: 8000 eps relative to the largest.
    np.testing.assert_allclose(
        sum(u.g for u in updates), exact, atol=2e-12 * np.abs(exact).max()
    )
    assert sum(u.value for u in updates) == pytest.approx(
        problem.value(iterate.theta), rel=2e-12
    )
    assert sum(u.curvature[-1] for u in updates) == pytest.approx(8000)


@pytest.mark.parametrize("batch_blocks", [1, 2, 3])
def test_batches_in_fewer_blocks_than_passes_end_at_the_same_bits_on_any_number_of_threads(
    batch_blocks: int,
) -> None:
    problem = ProfiledFactorization.example()
    algorithm = StagedLBFGS(
        batches=4, warmup=4, blocks=3, curvature=problem.curvature_size, in_step=True,
        batch_blocks=batch_blocks,
    )  # fmt: skip
    runs = [
        aq.minimize(problem, algorithm, engine=aq.Threads(workers), commits=7, seed=3)
        for workers in (1, 2, 4)
    ]
    assert len({run.theta.tobytes() for run in runs}) == 1
    assert aq.replay(runs[-1]).theta.tobytes() == runs[0].theta.tobytes()
    read, part = runs[0].schedule.read, runs[0].schedule.part
    assert part is not None
    rows = algorithm.rows_of(problem.n_data, read, part)
    assert rows.sum() == (1 + 3) * problem.n_data  # a pass in batches, three in blocks


def test_the_product_with_images_equals_the_dense_recursion_at_every_ring_offset() -> (
    None
):
    rng = np.random.default_rng(2)
    d, M = 7, 3
    root = rng.standard_normal((d, d))
    H0, B = root @ root.T + np.eye(d), np.diag(np.linspace(1.0, 3.0, d))
    memory = ImageMemory.empty(M, np.zeros(d))
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in range(2 * M + 1):
        s = rng.standard_normal(d)
        y = B @ s
        assert memory.admit(s, y, H0 @ y)
        pairs = [*pairs, (s, y)][-M:]
        H = H0.copy()
        for s, y in pairs:
            V = np.eye(d) - np.outer(y, s) / (s @ y)
            H = V.T @ H @ V + np.outer(s, s) / (s @ y)
        v = rng.standard_normal(d)
        found = np.empty(d)
        memory.product(v, H0 @ v, found)
        # d = 7 and condition numbers below 1e3: 1e4 eps.
        np.testing.assert_allclose(
            found, H @ v, rtol=1e-11, atol=1e-11 * np.abs(H @ v).max()
        )
    assert not memory.admit(s, -y, -H0 @ y)


def test_a_warm_up_that_did_harm_is_undone() -> None:
    problem = model()
    algorithm = asynchronous_algorithm(problem, 1)
    start = problem.initial(np.random.default_rng(0))
    iterate = algorithm.init(start)
    first = algorithm.step(iterate, None, problem, Task(0, 0, Stream(0, 0, 0), 0))
    iterate = algorithm.apply(iterate, [first], Commit(1, [0], problem.value))
    iterate.theta[...] = 1e3  # as if the steps after it had gone astray
    last = algorithm.step(
        iterate, None, problem, Task(0, algorithm.warmup, Stream(0, 0, 1), 0)
    )
    iterate = algorithm.apply(iterate, [last], Commit(1, [0], problem.value))
    assert iterate.theta.tobytes() == start.tobytes()
    again = algorithm.step(
        iterate, None, problem, Task(0, algorithm.warmup + 1, Stream(0, 0, 2), 0)
    )
    assert (
        algorithm.apply(iterate, [again], Commit(1, [0], problem.value)).trial.kept == 1
    )


def test_an_update_that_is_no_number_makes_the_trial_shrink_and_not_the_run_fail() -> (
    None
):
    problem = model()
    algorithm = replace(asynchronous_algorithm(problem, 1), warmup=0)
    iterate = algorithm.init(problem.initial(np.random.default_rng(0)))
    task = Task(0, 0, Stream(0, 0, 0), 0)
    iterate = algorithm.apply(
        iterate,
        [algorithm.step(iterate, None, problem, task)],
        Commit(1, [0], problem.value),
    )
    base, trial = iterate.base.copy(), iterate.theta.copy()
    broken = algorithm.step(
        iterate._replace(theta=np.full_like(trial, 1e30)), None, problem, task
    )
    assert broken.value == np.inf
    iterate = algorithm.apply(iterate, [broken], Commit(1, [0], problem.value))
    np.testing.assert_allclose(
        iterate.theta - base, 0.1 * (trial - base), rtol=1e-3, atol=1e-6
    )


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    algorithm = StagedLBFGS(batches=80, warmup=80, blocks=2, curvature=10)
    with pytest.raises(
        BadInput, match="needs a problem with curvature_size and grad_with_curvature"
    ):
        check_fit(algorithm, aq.LinearGaussian.random(12, 200, seed=0))
    with pytest.raises(BadInput, match="must be the problem's 26"):
        algorithm.check(model(rank=5))
    with pytest.raises(BadInput, match="cannot be cut into 500 parts"):
        replace(algorithm, batches=500).check(model(rank=3))
    for name, value in (
        ("batches", 0),
        ("warmup", -1),
        ("memory", 0),
        ("blocks", True),
    ):
        with pytest.raises(BadInput, match=name):
            replace(algorithm, **{name: value})


def test_curvature_and_value_come_with_the_gradient_of_the_same_rows() -> None:
    p = oracle.make_problem(3)
    problem = ProfiledFactorization(**oracle.arguments(p), rank=3, prior=0.7, alpha=0.2)
    theta = problem.initial(np.random.default_rng(0))
    every = np.arange(problem.n_data)
    g, out = np.empty_like(theta), np.empty_like(theta)
    summary = np.empty(problem.curvature_size)
    value = problem.grad_with_curvature(theta, every, out, summary)
    problem.grad(theta, every, g)
    assert out.tobytes() == g.tobytes()
    assert value == pytest.approx(problem.value(theta), rel=1e-12)
    whole, made = (
        problem.inverse_metric(theta, 0.3, 5),
        problem.inverse_metric_from(summary, 0.3, 5),
    )
    whole.apply(theta, g)
    made.apply(theta, out)
    # The sums are the same in another order; K = 3 keeps the eigenvectors well apart.
    np.testing.assert_allclose(out, g, rtol=1e-9)
    first, second = np.empty_like(summary), np.empty_like(summary)
    half = problem.n_data // 2
    problem.grad_with_curvature(theta, every[:half], g, first)
    problem.grad_with_curvature(theta, every[half:], g, second)
    share = half / problem.n_data
    np.testing.assert_allclose(
        share * first + (1 - share) * second, summary, rtol=1e-10
    )


def test_a_run_reports_the_last_point_kept_where_that_is_lower_than_the_trial_under_way() -> (
    None
):
    problem = model()
    algorithm = replace(asynchronous_algorithm(problem, 1), warmup=0)
    start = problem.initial(np.random.default_rng(0))
    master = Master(
        Request(problem, algorithm, start, commits=9, evaluate=9), workers=1
    )
    for version in range(3):
        task = Task(0, version, Stream(0, 0, version), 0)
        master.commit(
            [algorithm.step(master.iterate, None, problem, task)], float(version), [0]
        )
    base, trial = master.iterate.base, master.iterate.theta
    values = problem.value(base), problem.value(trial)
    assert values[1] < values[0]
    assert best_candidate(master)[0].tobytes() == trial.tobytes()
    trial[...] = 30.0  # as if the step had gone astray
    theta, fun = best_candidate(master)
    assert theta.tobytes() == base.tobytes()
    assert fun == values[0]
    assert not np.shares_memory(theta, base)
    trial[...] = np.nan
    assert best_candidate(master)[0].tobytes() == base.tobytes()


@pytest.mark.parametrize(("change", "anew"), [(1.2, False), (3.0, True)])
def test_a_curvature_that_has_become_another_calls_for_a_new_metric(
    change: float, anew: bool
) -> None:
    problem = model()
    algorithm = replace(asynchronous_algorithm(problem, 1), warmup=0)
    iterate = algorithm.init(problem.initial(np.random.default_rng(0)))
    for version in range(3):
        update = algorithm.step(
            iterate, None, problem, Task(0, version, Stream(0, 0, 0), 0)
        )
        if version == 2:
            update = update._replace(curvature=change * iterate.initial.curvature)
        before = iterate.initial.curvature.copy()
        iterate = algorithm.apply(
            iterate, [update], Commit(version + 1, [0], problem.value)
        )
    assert iterate.trial.kept == 3
    assert iterate.initial.blind[0] == anew
    assert (iterate.initial.curvature.tobytes() != before.tobytes()) == anew
    assert (iterate.memory.stored == 0) == anew


@pytest.mark.parametrize(("times", "turned"), [(3.0, False), (5.0, True)])
def test_a_batch_with_several_times_the_loss_turns_the_warm_up_back(
    times: float, turned: bool
) -> None:
    problem = model()
    algorithm = asynchronous_algorithm(problem, 1)
    start = problem.initial(np.random.default_rng(0))
    iterate = algorithm.init(start)
    first = algorithm.step(iterate, None, problem, Task(0, 0, Stream(0, 0, 0), 0))
    iterate = algorithm.apply(iterate, [first], Commit(1, [0], problem.value))
    worse = first._replace(value=times * first.value, read=1)
    iterate = algorithm.apply(iterate, [worse], Commit(2, [0], problem.value))
    assert (iterate.theta.tobytes() == start.tobytes()) == turned
    assert iterate.warm_up.gain == (0.5 if turned else 1.0)
