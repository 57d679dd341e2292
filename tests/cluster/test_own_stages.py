"""Sequences of stages that no algorithm of ours has, and a kind of stage that no file of ours knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import one_sentence

import asyncqn as aq
from asyncqn.core.stages import (
    AllParts,
    EachUpdate,
    FreshRound,
    Growth,
    Round,
    Stage,
    Stages,
)

OWN: dict[str, Stages] = {
    "rounds, then each update": (
        Round(5),
        EachUpdate(),
    ),
    "each update, then fresh ones": (
        EachUpdate(10),
        FreshRound(updates=2),
    ),
    "two cuts": (
        AllParts(blocks=2, backup_after=1e9, commits=4),
        AllParts(blocks=5, backup_after=1.0),
    ),
    "blocks, then batches": (
        AllParts(blocks=3, backup_after=1e9, commits=3),
        EachUpdate(blocks=6),
    ),
    "batches twice": (
        EachUpdate(blocks=4, commits=9),
        EachUpdate(blocks=8, commits=7, order="age"),
        AllParts(blocks=4, backup_after=1e9, pieces=2),
    ),
}


@pytest.mark.parametrize("link", [0.0, 0.05])
@pytest.mark.parametrize("name", OWN)
def test_stages_of_ones_own_follow_their_rules(name: str, link: float) -> None:
    stages = OWN[name]
    cluster = aq.Cluster(workers=3, worker_std=0.3, message=0.2, link=link)
    schedule = aq.simulate(cluster, stages, 40, 1)
    assert schedule.commits == 40
    schedule.check_parts(stages)
    counts = np.bincount(schedule.commit)[1:]
    begin = 0
    for stage in stages:
        end = 40 if stage.commits is None else begin + stage.commits
        per_commit = set(counts[begin:end].tolist())
        # All three workers answer in a round.
        assert per_commit == {3 if isinstance(stage, Round) else stage.rows}
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


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        (
            (EachUpdate(blocks=3, commits=5), EachUpdate()),
            "every stage cuts the data into parts, or none does",
        ),
        ((EachUpdate(3), FreshRound(3)), "the last stage, and no other, has no end"),
        (EachUpdate(max_delay=-1), "max_delay must be at least 0"),
        (EachUpdate(blocks=3, growth=Growth(4)), "growth needs"),
        (FreshRound(updates=0), "updates must be at least 1"),
        (AllParts(pieces=0), "blocks and pieces must be at least 1"),
        ("gossip", "stages must be a list whose items are each a Stage or a Stage"),
    ],
)
def test_stages_without_a_meaning_are_refused(stages: Any, sentence: str) -> None:
    with pytest.raises(aq.BadInput, match=sentence) as caught:
        aq.simulate(aq.Cluster(workers=2), stages, 10, 0)
    assert one_sentence(caught.value)


class NoRule(Stage):
    """A stage that does not say which updates make a commit."""


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "stages must be a tuple"),
        ((), "stages must be a tuple"),
        ((NoRule(),), "NoRule has no rule of its own"),
    ],
)
def test_wrong_stages_of_an_algorithm_are_a_sentence_on_every_engine(
    given: Any, sentence: str
) -> None:
    class Wrong(aq.AsyncSGD):
        stages = given

    problem = aq.LinearGaussian.random(dim=5, n_data=40, seed=0)
    for engine in (aq.Simulator(aq.Cluster(workers=2)), aq.Threads(2)):
        with pytest.raises(aq.BadInput, match=sentence):
            aq.minimize(problem, Wrong(h=1e-3, batch=8), engine=engine, commits=5)
