from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.fit import check_fit
from asyncqn.core.streams import Stream
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import BadInput
from asyncqn.types import Commit, Task
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
from asyncqn_recommender.problems.profiled_factorization import (
    ProfiledFactorization,
    als,
)
from asyncqn_recommender.staged import Iterate, StagedLBFGS, Update

N_USERS = 400


def columns(scale: float = 1.0) -> dict[str, Any]:
    """Ratings of low rank with noise, sorted by user, some users with none."""
    rng = np.random.default_rng(7)
    n_items, n = 60, 8000
    users, items = np.sort(rng.integers(3, N_USERS, n)), rng.integers(0, n_items, n)
    F, G = rng.standard_normal((n_items, 2)), rng.standard_normal((N_USERS, 2))
    product = np.einsum("nk,nk->n", F[items], G[users]) / 2
    values = scale * (3.5 + product + 0.5 * rng.standard_normal(n))
    sizes = {"n_users": N_USERS, "n_items": n_items}
    return {"users": users, "items": items, "values": values, **sizes}


def model(scale: float = 1.0, dtype: Any = np.float32) -> ProfiledFactorization:
    return ProfiledFactorization(**columns(scale), rank=3, dtype=dtype)


def run(problem: Any, workers: int, epochs: float = 14.0, **options: Any) -> aq.Run:
    algorithm = aq.default_algorithm(problem, workers)
    cluster = aq.Cluster(workers, worker_mean=10.0, worker_std=6.0, message=1.0)
    commits = algorithm.commits_for(epochs)
    options |= {"commits": commits, "evaluate": commits}
    return aq.minimize(problem, algorithm, engine=Simulator(cluster), **options)


@pytest.mark.parametrize("workers", [1, 5, 40])
def test_without_any_parameter_it_ends_near_the_value_of_many_als_sweeps(
    workers: int,
) -> None:
    problem = model()
    both = MatrixFactorization(**columns(), rank=3, dtype=np.float32)
    start = problem.initial(np.random.default_rng(0))
    best = both.value(als(both, problem.joint(start), sweeps=60))
    for seed in range(3):
        ended = run(problem, workers, epochs=25, seed=seed)
        assert ended.status == "completed"
        # After 25 passes half a per cent remains, also between local minima of nearly the same depth.
        assert ended.fun < 1.005 * best


@pytest.mark.parametrize("scale", [20.0, 0.05])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 100.0])
def test_wild_starts_and_scales_do_not_diverge(scale: float, spread: float) -> None:
    problem = model(scale)
    start = spread * np.random.default_rng(1).standard_normal(problem.dim)
    for workers in (1, 80):
        ended = run(problem, workers, theta0=start.astype(np.float32))
        assert ended.status in ("completed", "converged")
        assert ended.fun < problem.value(start.astype(np.float32))


def exact_passes(problem: ProfiledFactorization, blocks: int) -> StagedLBFGS:
    algorithm = aq.default_algorithm(problem, blocks)
    assert isinstance(algorithm, StagedLBFGS)
    return replace(algorithm, warmup=0)


def updates_of(
    problem: Any, algorithm: StagedLBFGS, iterate: Iterate, version: int, parts: Any
) -> list[Update]:
    stream = Stream(0, 0, 0)
    tasks = [Task(0, version, stream, part) for part in parts]
    return [algorithm.step(iterate, None, problem, task) for task in tasks]  # type: ignore[arg-type]


def commit(problem: Any) -> Commit:
    return Commit(1, [0], problem.value, problem.inverse_metric_from)


def test_a_pass_does_not_depend_on_the_order_in_which_blocks_arrive() -> None:
    problem = model()
    algorithm = exact_passes(problem, 4)
    ends = []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        iterate = algorithm.init(problem.initial(np.random.default_rng(0)))
        for version in range(5):
            updates = updates_of(problem, algorithm, iterate, version, order)
            iterate = algorithm.apply(iterate, updates, commit(problem))
        ends.append(iterate.theta.tobytes())
    assert ends[0] == ends[1]


def test_shares_of_blocks_add_up_to_the_exact_gradient_and_value() -> None:
    problem = model(dtype=np.float64)
    algorithm = exact_passes(problem, 3)
    iterate = algorithm.init(problem.initial(np.random.default_rng(0)))
    updates = updates_of(problem, algorithm, iterate, 0, range(3))
    exact = np.empty_like(iterate.theta)
    problem.grad(iterate.theta, np.arange(N_USERS), exact)
    total = sum(update.g for update in updates)
    # Sums of 8000 terms in another order: 8000 eps relative to the largest.
    np.testing.assert_allclose(total, exact, atol=2e-12 * np.abs(exact).max())
    value = problem.value(iterate.theta)
    assert sum(u.value for u in updates) == pytest.approx(value, rel=2e-12)
    assert sum(u.curvature[-1] for u in updates) == pytest.approx(8000)


@pytest.mark.parametrize("batch_blocks", [1, 3])
def test_runs_end_at_the_same_bits_on_any_number_of_threads_and_replay(
    batch_blocks: int,
) -> None:
    problem = ProfiledFactorization.example()
    parts = {"batches": 4, "warmup": 4, "blocks": 3, "batch_blocks": batch_blocks}
    algorithm = StagedLBFGS(curvature=problem.curvature_size, **parts)
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


@pytest.mark.parametrize(("times", "turned"), [(3.0, False), (5.0, True)])
def test_a_batch_with_several_times_the_loss_turns_the_warm_up_back(
    times: float, turned: bool
) -> None:
    problem = model()
    algorithm = replace(aq.default_algorithm(problem, 1), batch_blocks=1)
    start = problem.initial(np.random.default_rng(0))
    iterate = algorithm.init(start)
    (first,) = updates_of(problem, algorithm, iterate, 0, [0])
    iterate = algorithm.apply(iterate, [first], commit(problem))
    worse = first._replace(value=times * first.value, read=1)
    iterate = algorithm.apply(iterate, [worse], commit(problem))
    assert (iterate.theta.tobytes() == start.tobytes()) == turned
    assert iterate.gain == (0.5 if turned else 1.0)


def test_a_warm_up_that_did_harm_is_undone() -> None:
    problem = model()
    algorithm = replace(aq.default_algorithm(problem, 1), batch_blocks=1)
    start = problem.initial(np.random.default_rng(0))
    iterate = algorithm.init(start)
    first = updates_of(problem, algorithm, iterate, 0, [0])
    iterate = algorithm.apply(iterate, first, commit(problem))
    iterate.theta[...] = 1e3  # as if the steps after it had gone astray
    last = updates_of(problem, algorithm, iterate, algorithm.warmup, [0])
    iterate = algorithm.apply(iterate, last, commit(problem))
    assert iterate.theta.tobytes() == start.tobytes()
    again = updates_of(problem, algorithm, iterate, algorithm.warmup + 1, [0])
    assert algorithm.apply(iterate, again, commit(problem)).trial.kept == 1


def test_an_update_that_is_no_number_makes_the_trial_shrink_and_not_the_run_fail() -> (
    None
):
    problem = model()
    algorithm = exact_passes(problem, 1)
    iterate = algorithm.init(problem.initial(np.random.default_rng(0)))
    first = updates_of(problem, algorithm, iterate, 0, [0])
    iterate = algorithm.apply(iterate, first, commit(problem))
    base, trial = iterate.base.copy(), iterate.theta.copy()
    wild = iterate._replace(theta=np.full_like(trial, 1e30))
    (broken,) = updates_of(problem, algorithm, wild, 1, [0])
    assert broken.value == np.inf
    iterate = algorithm.apply(iterate, [broken], commit(problem))
    shorter = 0.1 * (trial - base)
    np.testing.assert_allclose(iterate.theta - base, shorter, rtol=1e-3, atol=1e-6)


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    algorithm = StagedLBFGS(batches=80, warmup=80, blocks=2, curvature=10)
    extras = "needs a problem with curvature_size and grad_with_curvature"
    with pytest.raises(BadInput, match=extras):
        check_fit(algorithm, aq.LinearGaussian.random(12, 200, seed=0))
    with pytest.raises(BadInput, match="must be the problem's 10, not 26"):
        replace(algorithm, curvature=26).check(model())
    with pytest.raises(BadInput, match="cannot be cut into 1000 parts"):
        replace(algorithm, batches=500).check(model())
    for name, value in {"batches": 0, "warmup": -1, "memory": 0}.items():
        with pytest.raises(BadInput, match=name):
            replace(algorithm, **{name: value})
