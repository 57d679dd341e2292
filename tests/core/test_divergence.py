"""Divergence: noticed, told with its likely cause, and what is kept is finite."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import Quadratic, one_sentence

from asyncqn import (
    ASLBFGS,
    MBLBFGS,
    SGD,
    SGLD,
    AsyncSGD,
    Cluster,
    LinearGaussian,
    Simulator,
    StabilityWarning,
    minimize,
)  # fmt: skip
from asyncqn.algorithms.exact.exact_lbfgs import ExactLBFGS
from asyncqn.algorithms.stability import delay_limit
from asyncqn.types import Algorithm, Array, Rows


def make_problem(dtype=np.float64):
    return LinearGaussian.random(
        10, 60, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0), dtype=dtype
    )


def diverge(algorithm, W=5, problem=None, commits=20_000, std=0.5):
    problem = make_problem() if problem is None else problem
    run = minimize(
        problem,
        algorithm,
        engine=Simulator(Cluster(W, 2.0, std)),
        commits=commits,
        seed=1,
    )
    assert run.status == "diverged"
    assert not run.success
    assert run.nit < commits
    assert np.isfinite(run.theta).all()
    assert f"commit {run.nit}" in run.message
    assert one_sentence(run.message), run.message
    return run


def test_friction_above_the_limit_of_delay_is_warned_of_and_named():
    algorithm = ASLBFGS(1e-8, 0.4, 1e3, 0, 12, 4)
    with pytest.warns(
        StabilityWarning, match=r"gamma = 0\.4 exceeds 0\.165, the limit .* 10 workers"
    ) as caught:
        run = diverge(algorithm, W=10, std=0.0)
    assert one_sentence(str(caught[0].message))
    assert caught[0].filename == __file__, (
        "the warning points at the caller of minimize"
    )
    assert "friction gamma = 0.4 is above the limit 0.165" in run.message


def test_a_step_too_large_for_the_staleness_is_named_with_a_better_one():
    run = diverge(ASLBFGS(0.05, 0.05, 1e3, 0, 12, 4, initial_scale=1.0))
    assert "the step h = 0.05 is too large for a staleness of about 4" in run.message
    better = float(run.message.split("try h below ")[1].split(" ")[0].rstrip(",."))
    again = minimize(make_problem(), ASLBFGS(0.9 * better, 0.05, 1e3, 0, 12, 4, initial_scale=1.0),
                     engine=Simulator(Cluster(5, 2.0, 0.5)), commits=3000, seed=1)  # fmt: skip
    assert again.status == "completed", "the advice helps"


def test_wild_pairs_are_named():
    # Two rows in the overlap of a ten-dimensional model: y has the curvature of two points.
    run = diverge(ASLBFGS(2e-4, 0.1, 1e3, 5, 4, 1, epsilon=1e-9))
    assert "the curvature pairs are wild" in run.message
    assert "cosine_floor" in run.message
    assert "a larger epsilon than 1e-09" in run.message


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (AsyncSGD(0.1, 30), "the step h = 0.1 is above the limit"),
        (SGD(0.1, 30, momentum=0.5), "the step h = 0.1 is above the limit"),
        (SGLD(0.1, 1e3, 30), "the step h = 0.1 is above the limit"),
        (MBLBFGS(1e4, 3, 30, 15, initial_scale=1.0), "use a smaller step"),
    ],
    ids=lambda x: type(x).__name__,
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_algorithm_stops_with_advice_and_a_finite_iterate(
    algorithm, words, dtype
):
    run = diverge(algorithm, problem=make_problem(dtype))
    assert words in run.message
    assert run.theta.dtype == dtype


def test_the_limit_of_delay_is_that_of_the_delayed_recursion():
    for l in (0, 1, 4, 9, 19, 39):
        for factor, stable in ((0.97, True), (1.03, False)):
            a = factor * delay_limit(l)
            # x_{n+1} = x_n - a x_{n-l}: roots of z^{l+1} - z^l + a.
            roots = np.roots(
                [1.0, -1.0, *([0.0] * (l - 1)), a] if l else [1.0, a - 1.0]
            )
            assert (np.abs(roots).max() < 1.0) == stable
    assert [round(delay_limit(l), 4) for l in (9, 19, 39)] == [0.1652, 0.0805, 0.0398]


class Sometimes(Quadratic):
    """NaN or infinity wherever row 0 is drawn."""

    answer = np.nan

    def grad(self, theta, rows, out):
        super().grad(theta, rows, out)
        if 0 in rows:
            out[...] = self.answer


@pytest.mark.parametrize("answer", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize(
    "algorithm", [ASLBFGS(1e-4, 0.05, 1e3, 3, 4, 2), AsyncSGD(1e-4, 4), MBLBFGS(1e-2, 3, 4, 2)],
    ids=lambda a: type(a).__name__,
)  # fmt: skip
def test_updates_that_are_no_numbers_are_rejected_and_counted_and_the_run_goes_on(
    algorithm, answer
):
    p = Sometimes.random(6, 40)
    p.answer = answer
    run = minimize(
        p,
        algorithm,
        engine=Simulator(Cluster(3, 2.0, 0.5)),
        commits=300,
        seed=1,
        theta0=np.ones(6),
    )
    assert run.status == "completed"
    assert run.nit == 300
    assert np.isfinite(run.theta).all()
    # A batch of four out of forty rows holds row 0 with probability 1 - 0.975^4 = 0.096; the
    # overlap of the step before, which mb-L-BFGS sends along, adds half as much.
    updates = run.schedule.staleness.size
    share = run.counters["updates_rejected"] / updates
    spread = 4 * np.sqrt(0.1 * 0.9 / updates)
    assert 0.096 - spread < share < 0.15 + spread
    assert run.fun < p.value(np.ones(6))


def test_a_worker_forgets_its_pairs_after_a_rejected_update():
    algorithm = ASLBFGS(1e-4, 0.05, 1e3, 3, 4, 2)
    p = Sometimes.random(6, 40)
    run = minimize(
        p,
        algorithm,
        engine=Simulator(Cluster(1)),
        commits=400,
        seed=1,
        theta0=np.ones(6),
    )
    pairs = run.counters["pairs_accepted"] + run.counters["pairs_rejected"]
    # Each rejected update costs two pairs: its own and that of the step after it (which has no
    # step before); rejected updates that follow each other share one.
    assert (
        400 - 1 - 2 * run.counters["updates_rejected"]
        <= pairs
        < 400 - 1 - run.counters["updates_rejected"]
    )


def test_updates_rejected_again_and_again_are_a_divergence_that_blames_the_problem():
    p = Sometimes.random(6, 1)
    run = diverge(AsyncSGD(1e-4, 1), W=3, problem=p)
    assert run.nit == 10
    assert run.counters["updates_rejected"] == 10
    assert run.theta.tobytes() == run.theta0.tobytes()
    assert "10 updates in a row were not finite" in run.message
    assert "gradient at theta0 is not finite" in run.message


def test_one_bad_worker_of_a_round_does_not_end_the_run():
    class OneWorker(MBLBFGS):
        def step(self, view, local, problem, task):
            update = super().step(view, local, problem, task)
            if task.worker == 0:
                update.g[...] = np.nan
            return update

    run = minimize(
        make_problem(),
        OneWorker(1e-2, 3, 30, 15),
        engine=Simulator(Cluster(4)),
        commits=100,
        seed=0,
    )
    assert run.status == "completed"
    assert run.counters["updates_rejected"] == 100


def test_an_objective_that_is_no_number_is_a_divergence():
    p = Quadratic.random()
    p.value = lambda theta: float("nan")
    run = minimize(
        p, AsyncSGD(1e-4, 4), engine=Simulator(Cluster(1)), commits=30, seed=0
    )
    assert run.status == "diverged"
    assert "objective is not finite at commit 0" in run.message
    assert run.nit == 0


def test_infinite_updates_are_rejected_even_from_a_huge_start():
    p = Sometimes.random(6, 40)
    p.answer = np.inf
    run = minimize(
        p,
        AsyncSGD(1e-6, 4),
        engine=Simulator(Cluster(1)),
        commits=60,
        seed=1,
        theta0=np.full(6, 1e145),
    )
    assert run.counters["updates_rejected"] > 0
    assert np.isfinite(run.theta).all()


class _NoGradient:
    """A problem whose gradient is no number anywhere."""

    dim, n_data = 3, 60

    def value(self, theta: Array) -> float:
        return float(theta @ theta)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        out[...] = np.nan


@pytest.mark.parametrize("algorithm", [ExactLBFGS(2, 2), ExactLBFGS(2, samples=1)])
def test_exact_methods_diverge_where_no_gradient_is_finite(
    algorithm: Algorithm,
) -> None:
    run = minimize(
        _NoGradient(), algorithm, engine=Simulator(Cluster(workers=2, worker_mean=1.0)), theta0=np.ones(3),
        commits=5,
    )  # fmt: skip
    assert run.status == "diverged"
    assert "gradient at theta0 is not finite" in run.message
    np.testing.assert_array_equal(run.theta, np.ones(3))
