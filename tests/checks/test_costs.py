"""The choice of a method that never waits, and the costs by which it is made."""

from __future__ import annotations

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.checks.costs import Costs, measured_costs, stated_costs

PROBLEM = aq.LogisticRegression.random(n_data=4000, dim=5, seed=0)


def test_a_cluster_states_its_costs_by_rows() -> None:
    # Two workers at 1 and 3 rows' time: together they compute as two with 1.5 each.
    cluster = aq.Cluster(2, (2.0, 6.0), message=48.0, master=6.0, rows=2)
    costs = stated_costs(aq.Simulator(cluster))
    assert costs == Costs(message=32.0, master=4.0)
    slowed = aq.Threads(timing_model=cluster, time_unit=1e-3)
    assert stated_costs(slowed) == costs
    assert stated_costs(aq.Simulator(aq.Cluster(2))) == Costs()
    assert stated_costs(aq.Threads(2)) is None


def test_a_slow_gradient_makes_messages_cheap() -> None:
    class Slow(aq.LogisticRegression):
        def grad_with_value(
            self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray
        ) -> float:
            for _ in range(200 * len(rows)):
                np.dot(theta, theta)
            return super().grad_with_value(theta, rows, out)

    slow = Slow(PROBLEM.X, PROBLEM.y)
    costs = [
        measured_costs(problem, np.zeros(problem.dim), aq.Threads(2))
        for problem in (slow, PROBLEM)
    ]
    assert 100.0 * costs[0].message < costs[1].message
    assert 100.0 * costs[0].master < costs[1].master


def test_an_engine_says_what_a_message_takes() -> None:
    class Own:
        workers = 2

        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def minimize(self, request: aq.types.Request) -> aq.Run:
            return aq.Threads(2).minimize(request)

        def message_seconds(self, theta0: np.ndarray) -> float:
            return self.seconds

    class Silent(Own):
        message_seconds = None

    quick, slow = (
        measured_costs(PROBLEM, np.zeros(5), Own(seconds)) for seconds in (1e-5, 1.0)
    )
    assert quick.message < 1e-3 * slow.message
    # Without a word of the engine, a message takes a millisecond.
    assert (
        quick.message
        < measured_costs(PROBLEM, np.zeros(5), Silent(0.0)).message
        < slow.message
    )
    run = aq.minimize(PROBLEM, engine=Silent(0.0), waits=False)
    assert isinstance(run.algorithm, aq.TableLBFGS)


@pytest.mark.parametrize(
    "engine", [aq.Threads(3), aq.Processes(2)], ids=lambda e: type(e).__name__
)
def test_a_real_engine_measures_a_message(engine: aq.Threads | aq.Processes) -> None:
    seconds = engine.message_seconds(np.zeros(5))
    assert seconds is not None
    assert 0.0 < seconds < 10.0


@pytest.mark.parametrize(
    "engine",
    [aq.Simulator(aq.Cluster(5, 1.0, 0.3, message=10.0, rows=1)), aq.Threads(2)],
    ids=str,
)
def test_nobody_waits_where_that_is_asked_for(engine: aq.Engine) -> None:
    run = aq.minimize(PROBLEM, engine=engine, waits=False)
    assert run.status == "converged"
    assert isinstance(run.algorithm, aq.TableLBFGS)
    assert not any(stage.waits for stage in run.algorithm.stages)
    assert run.manifest["algorithm"]["parameters"]["parts"] == run.algorithm.parts
    again = aq.replay(run, problem=PROBLEM)
    assert again.theta.tobytes() == run.theta.tobytes()


def test_an_algorithm_that_waits_contradicts_it() -> None:
    with pytest.raises(
        aq.BadInput, match="waits=False, but ExactLBFGS waits for slow workers"
    ):
        aq.minimize(PROBLEM, aq.ExactLBFGS(2), engine=aq.Threads(2), waits=False)
    run = aq.minimize(
        PROBLEM,
        aq.AsyncSGD(h=1e-5, batch=10),
        engine=aq.Threads(2),
        commits=20,
        waits=False,
    )
    assert run.nit == 20
