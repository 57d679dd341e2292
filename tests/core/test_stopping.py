"""When a run ends by itself, on every way to run it, and that a replay ends at the same commit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.core.stopping import Stopping, converged
from asyncqn.types import Commit, Standing, Task


class Iterate(NamedTuple):
    theta: np.ndarray
    point: np.ndarray
    seen: np.ndarray  # U and |g| at `point`, |g| at the first


class Update(NamedTuple):
    g: np.ndarray
    value: float


@dataclass(frozen=True)
class Descent:
    """Gradient descent with exact gradients, which says where it stands."""

    h: float
    stages = ASYNCHRONOUS

    def check(self, problem: Any) -> None: ...

    def init(self, theta0: np.ndarray) -> Iterate:
        return Iterate(theta0.copy(), theta0.copy(), np.full(3, math.nan))

    def init_worker(self, problem: Any, theta0: np.ndarray) -> tuple[()]:
        return ()

    def step(self, view: Iterate, local: Any, problem: Any, task: Task) -> Update:
        g = np.empty_like(view.theta)
        problem.grad(view.theta, np.arange(problem.n_data), g)
        return Update(g, problem.value(view.theta))

    def learn(self, view: Iterate, local: Any, problem: Any, task: Task) -> Any:
        return local

    def forget(self, local: Any) -> Any:
        return local

    def apply(self, iterate: Iterate, updates: list[Update], commit: Commit) -> Iterate:
        (update,) = updates
        norm = float(np.linalg.norm(update.g))
        first = iterate.seen[2] if commit.version > 1 else norm
        iterate.seen[:] = update.value, norm, first
        iterate.point[...] = iterate.theta
        iterate.theta[...] -= self.h * update.g
        return iterate

    def standing(self, iterate: Iterate) -> Standing | None:
        value, norm, first = iterate.seen
        return Standing(iterate.point, value, norm, first, math.inf, stalled=False)

    def rows_of(self, n_data: int, read: np.ndarray, part: np.ndarray) -> np.ndarray:
        return np.full(read.size, n_data)

    def counters(self, iterate: Iterate, locals_: Any) -> dict[str, int]:
        return {}


def make_problem() -> aq.LinearGaussian:
    return aq.LinearGaussian.random(4, 40, seed=1)


STEP = 0.5 / np.linalg.eigvalsh(make_problem().precision).max()
ENGINES = {"threads": aq.Threads(1), "simulator": aq.Simulator(aq.Cluster(1))}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_a_run_ends_where_its_gradient_is_small_and_so_does_its_replay(
    engine: Any,
) -> None:
    p = make_problem()
    run = aq.minimize(p, Descent(STEP), engine=engine, tol=1e-6)
    assert (run.status, run.success) == ("converged", True)
    g = np.empty(4)
    p.grad(run.theta, np.arange(p.n_data), g)
    assert run.grad_norm == np.linalg.norm(g)
    first = np.empty(4)
    p.grad(run.theta0, np.arange(p.n_data), first)
    assert run.grad_norm <= 1e-6 * np.linalg.norm(first)
    assert "of the first" in run.message
    assert run.passes == run.schedule.commits
    again = aq.replay(run, p, Descent(STEP))
    assert (again.status, again.schedule.commits) == ("converged", run.schedule.commits)
    assert again.theta.tobytes() == run.theta.tobytes()


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_passes_and_time_are_limits_that_are_no_success(engine: Any) -> None:
    run = aq.minimize(
        make_problem(), Descent(STEP), engine=engine, tol=1e-30, max_passes=7
    )
    assert (run.status, run.success, run.passes) == ("stopped", False, 7.0)
    assert "budget of 7 passes" in run.message
    late = aq.minimize(
        make_problem(), Descent(STEP), engine=engine, tol=1e-30, max_time=1e-3
    )
    assert (late.status, late.success) == ("stopped", False)
    assert "max_time" in late.message
    assert (
        aq.replay(late, make_problem(), Descent(STEP)).schedule.commits
        == late.schedule.commits
    )


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_commits_that_were_asked_for_are_no_answer_of_an_exact_method(
    engine: Any,
) -> None:
    run = aq.minimize(make_problem(), Descent(STEP), engine=engine, commits=3)
    assert (run.status, run.success, run.schedule.commits) == ("completed", False, 3)
    assert "of the first" in run.message
    stochastic = aq.minimize(
        make_problem(), aq.AsyncSGD(1e-4, 5), engine=engine, commits=3
    )
    assert (stochastic.status, stochastic.success) == ("completed", True)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_a_stochastic_method_ends_at_its_target_or_says_that_it_missed_it(
    engine: Any,
) -> None:
    p = make_problem()
    start = p.value(np.zeros(4))
    target = p.optimum + 0.5 * (start - p.optimum)
    sgd = aq.AsyncSGD(STEP / 4, 20)
    run = aq.minimize(
        p,
        sgd,
        engine=engine,
        commits=2000,
        theta0=np.zeros(4),
        target=target,
        evaluate=10,
    )
    assert (run.status, run.success) == ("converged", True)
    assert run.schedule.commits % 10 == 0
    assert run.metrics["fun"][-1] <= target < run.metrics["fun"][-2]
    missed = aq.minimize(p, sgd, engine=engine, commits=20, target=p.optimum - 1.0)
    assert (missed.status, missed.success) == ("stopped", False)
    assert "did not reach the target" in missed.message


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
@pytest.mark.parametrize("share", [0.5, 0.1, 1e-3])
def test_an_exact_method_reports_the_point_at_which_its_target_was_reached(
    engine: Any, share: float
) -> None:
    p = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    target = p.optimum + share * (p.value(np.zeros(20)) - p.optimum)
    run = aq.minimize(p, engine=engine, theta0=np.zeros(20), target=target)
    assert (run.status, run.success) == ("converged", True)
    assert p.value(run.theta) == run.fun == run.metrics["fun"][-1] <= target
    assert aq.replay(run, p).theta.tobytes() == run.theta.tobytes()


def test_an_unknown_metric_is_named_before_anything_runs() -> None:
    with pytest.raises(aq.BadInput, match="no metric 'rmse'"):
        aq.minimize(
            make_problem(), aq.AsyncSGD(1e-4, 5), commits=10, target=1.0, metric="rmse"
        )


@pytest.mark.parametrize("name", ["tol", "max_passes", "max_time"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "1", True])
def test_limits_that_mean_nothing_are_refused(name: str, value: Any) -> None:
    with pytest.raises(aq.BadInput, match=name):
        Stopping(**{name: value})


@pytest.mark.parametrize(
    ("grad_norm", "value", "first", "decrease", "dtype", "flat"),
    [
        pytest.param(1e3, 10.0, 1e30, math.inf, float, False, id="steep, wild start"),
        pytest.param(1.0, 1e9, 1e3, math.inf, float, False, id="a constant in U"),
        pytest.param(1e-9, 10.0, 1e-9, 1e-16, float, True, id="starts at the minimum"),
        pytest.param(1e-2, 1e4, 1e4, math.inf, np.float32, True, id="float32"),
        pytest.param(1e-2, 1e4, 1e4, math.inf, float, False, id="float64"),
    ],
)
def test_convergence_is_judged_by_the_slope_against_U_and_against_the_first_slope(
    grad_norm: float,
    value: float,
    first: float,
    decrease: float,
    dtype: Any,
    flat: bool,
) -> None:
    point = np.zeros(3, dtype)
    standing = Standing(point, value, grad_norm, first, decrease, stalled=False)
    assert converged(standing, 1e-8) == flat


def test_metrics_that_are_no_dict_are_named() -> None:
    class Judged(aq.LeastSquares):
        def metrics(self, theta: Any) -> Any:
            return [1.0]

    problem = Judged(np.eye(8), np.arange(8.0))
    with pytest.raises(aq.BadInput, match="must return a dict of numbers, not list"):
        aq.minimize(problem, engine=aq.Threads(1))
