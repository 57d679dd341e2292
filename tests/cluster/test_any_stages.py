"""Stages of one's own are simulated by the rules of real engines, which are those of the compiled queues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.cluster.any_stages import simulate_any
from asyncqn.core.stages import (
    ASYNCHRONOUS,
    Closes,
    Growth,
    Order,
    Stage,
    Stages,
    batches,
    blocks,
    fresh_rounds,
    not_older_than,
    rounds,
)

KNOWN: dict[str, tuple[Stages, dict[str, Any]]] = {
    "asynchronous": (ASYNCHRONOUS, {"message": 0.3, "master": 0.05}),
    "not older": ((not_older_than(2),), {"message": 0.3, "master": 0.05}),
    "fresh rounds": ((fresh_rounds(3),), {"message": 0.3, "master": 0.05}),
    "batches in turn": ((batches(7),), {"message": 0.3}),
    "batches by age": ((batches(7, order=Order.BY_AGE),), {"message": 0.3}),
    "batches at random": ((batches(7, order=Order.AT_RANDOM),), {"message": 0.3}),
    "growing batches": (
        (batches(9, order=Order.BY_AGE, growth=Growth(2)),),
        {"message": 0.3},
    ),
    "rounds of all": ((rounds(np.inf, 1.0),), {"message": 0.3, "master": 0.05}),
    "rounds with a quorum": ((rounds(0.4, 0.5),), {}),
    "blocks": ((blocks(5, 2.0),), {"message": 0.3}),
    "blocks with backups": ((blocks(3, 0.4),), {"message": 0.1}),
}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("workers", [1, 4])
def test_it_agrees_with_the_compiled_queues_on_the_stages_that_these_know(
    name: str, workers: int
) -> None:
    stages, times = KNOWN[name]
    cluster = aq.Cluster(workers=workers, worker_std=0.4, **times)
    wanted, found = (
        aq.simulate(cluster, stages, 60, 3),
        simulate_any(cluster, stages, 60, 3),
    )
    ends = [int(np.flatnonzero(s.commit == 60)[-1]) + 1 for s in (wanted, found)]
    a, b = (
        {n: c[:end] for n, c in s.arrays().items()}
        for s, end in zip((wanted, found), ends)
    )
    assert a.keys() == b.keys()
    for column in a:
        np.testing.assert_allclose(b[column], a[column], rtol=1e-12, err_msg=column)


def test_deaths_and_joins_agree_with_the_compiled_queue() -> None:
    cluster = aq.Cluster(
        workers=4,
        worker_std=0.4,
        deaths={1: 6.0, 3: 9.0},
        joins={2: 5.0},
        recoveries={3: 14.0},
    )
    wanted, found = (
        f(cluster, ASYNCHRONOUS, 60, 3) for f in (aq.simulate, simulate_any)
    )
    np.testing.assert_array_equal(found.worker, wanted.worker)
    np.testing.assert_allclose(found.time, wanted.time, rtol=1e-12)
    alone = aq.Cluster(workers=2, deaths={0: 5.0, 1: 7.0})
    assert (
        simulate_any(alone, ASYNCHRONOUS, 60, 3).commits
        == aq.simulate(alone, ASYNCHRONOUS, 60, 3).commits
        < 60
    )


OWN: dict[str, Stages] = {
    "rounds, then each update": (
        Stage(Closes.ROUND, 5, quorum=1.0),
        Stage(Closes.EACH_UPDATE),
    ),
    "each update, then fresh ones": (
        Stage(Closes.EACH_UPDATE, 10),
        Stage(Closes.ROUND, updates=2),
    ),
    "two cuts": (blocks(2, 1e9, commits=4), blocks(5, 1.0)),
    "blocks, then batches": (blocks(3, 1e9, commits=3), batches(6)),
    "batches twice": (batches(4, 9), batches(8, 7, Order.BY_AGE), blocks(4, 1e9, 2)),
}


@pytest.mark.parametrize("name", OWN)
def test_stages_of_ones_own_follow_their_rules(name: str) -> None:
    stages = OWN[name]
    schedule = aq.simulate(
        aq.Cluster(workers=3, worker_std=0.3, message=0.2), stages, 40, 1
    )
    assert schedule.commits == 40
    schedule.check_parts(stages)
    counts = np.bincount(schedule.commit)[1:]
    begin = 0
    for stage in stages:
        end = 40 if stage.commits is None else begin + stage.commits
        per_commit = set(counts[begin:end].tolist())
        if stage.closes is Closes.ALL_PARTS:
            assert per_commit == {stage.parts}
        elif stage.closes is Closes.EACH_UPDATE:
            assert per_commit == {1}
        else:
            assert per_commit == {stage.updates or 3}
        begin = end


class Rounds(aq.AsyncSGD):
    """Gradient steps that are summed in rounds at first, and applied one by one after."""

    stages = OWN["rounds, then each update"]

    def apply(self, iterate: Any, updates: Any, commit: Any) -> Any:
        for update in updates:
            iterate.theta[:] += update.d_theta
        return iterate


def test_an_algorithm_with_stages_of_its_own_runs_simulated_and_on_threads_and_replays() -> (
    None
):
    problem = aq.LinearGaussian.random(dim=5, n_data=40, seed=0)
    for engine in (aq.Simulator(aq.Cluster(workers=3, worker_std=0.3)), aq.Threads(3)):
        run = aq.minimize(problem, Rounds(h=1e-3, batch=8), engine=engine, commits=60)
        assert np.bincount(run.schedule.commit)[1:6].tolist() == [3] * 5
        assert run.fun < problem.value(run.theta0)
        assert (
            aq.replay(run, problem, Rounds(h=1e-3, batch=8)).theta.tobytes()
            == run.theta.tobytes()
        )


def test_a_link_is_refused_in_a_sentence() -> None:
    with pytest.raises(aq.BadInput, match="set link to 0"):
        aq.simulate(aq.Cluster(workers=2, link=0.1), OWN["two cuts"], 10, 0)


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        (
            (batches(3, 5), Stage(Closes.EACH_UPDATE)),
            "every stage cuts the data into parts, or none does",
        ),
        (
            (Stage(Closes.ROUND, blocks=3),),
            "blocks need a stage that commits each update",
        ),
        ((Stage(Closes.ALL_PARTS),), "blocks need a stage"),
    ],
)
def test_stages_without_a_meaning_are_refused(stages: Stages, sentence: str) -> None:
    with pytest.raises(aq.BadInput, match=sentence):
        aq.simulate(aq.Cluster(workers=2), stages, 10, 0)
