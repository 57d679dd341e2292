"""Updates committed one by one: old ones are dropped, rounds close on fresh ones, parts have an order."""

from __future__ import annotations

import numpy as np
from core.parts_by_hand import PartsByHand
from core.test_schedule import clusters
from hypothesis import given
from hypothesis import strategies as st

from asyncqn import Cluster
from asyncqn.cluster.virtual_time import simulate
from asyncqn.core.schedule import Schedule
from asyncqn.core.stages import (
    ASYNCHRONOUS,
    EachUpdate,
    FreshRound,
    Growth,
    Stage,
)

STAGES = {
    "asynchronous": ASYNCHRONOUS[0],
    "not older than 0": EachUpdate(max_delay=0),
    "not older than 2": EachUpdate(max_delay=2),
    "fresh rounds of 3": FreshRound(updates=3),
    "in turn": EachUpdate(blocks=5),
    "by age": EachUpdate(blocks=8, order="age"),
    "by age, few parts": EachUpdate(blocks=2, order="age", max_delay=3),
    "by age, growing": EachUpdate(blocks=30, order="age", growth=Growth(4)),
    "at random, growing": EachUpdate(
        blocks=9, order="random", growth=Growth(2), max_delay=1
    ),
}

stages = st.sampled_from(sorted(STAGES)).map(STAGES.__getitem__)


@given(clusters(), stages, st.integers(1, 40), st.integers(0, 99))
def test_no_update_that_is_committed_is_older_than_its_stage_allows(
    cluster: Cluster, stage: Stage, commits: int, seed: int
) -> None:
    schedule = simulate(cluster, stage, commits, seed)
    if isinstance(stage, FreshRound):
        assert (schedule.staleness == 0).all()
        _, updates = np.unique(schedule.commit[schedule.commit > 0], return_counts=True)
        assert (updates == stage.rows).all()
    elif isinstance(stage, EachUpdate) and stage.max_delay is not None:
        assert (schedule.staleness <= stage.max_delay).all()
    else:
        assert schedule.dropped == 0
    assert Schedule.from_arrays(schedule.arrays()) == schedule


def test_a_round_of_one_fresh_update_is_a_commit_that_allows_no_delay() -> None:
    cluster = Cluster(5, 2.0, 3.0, message=0.3, master=0.1, deaths={1: 20.0})
    assert simulate(cluster, FreshRound(updates=1), 60, 3) == simulate(
        cluster, EachUpdate(max_delay=0), 60, 3
    )


def test_in_a_round_that_closes_on_updates_a_fast_worker_sends_more_than_once() -> None:
    schedule = simulate(Cluster(2, [1.0, 10.0]), FreshRound(updates=3), 4, 0)
    first = schedule.worker[schedule.commit == 1]
    assert first.tolist() == [0, 0, 0]


def test_by_age_the_part_that_was_computed_from_the_oldest_version_goes_first() -> None:
    parts = PartsByHand(EachUpdate(blocks=3, order="age"))
    assert [parts.choose(w, 0, 0.0) for w in range(2)] == [0, 1]
    parts.delivered(1, 0, 0)
    assert parts.choose(1, 1, 0.0) == 2, "nobody has computed it"
    parts.delivered(2, 1, 1)
    assert parts.choose(1, 2, 0.0) == 1, (
        "its update read version 0, that of part 2 version 1"
    )
    parts.lost(0, 0, 0, 2)
    assert parts.choose(0, 2, 0.0) == 0, "an update that was dropped made it no younger"
    parts.lost(0, 0, 2, 2)
    assert [parts.choose(w, 2, 0.0) for w in (0, 2)] == [0, 2]
    assert parts.choose(3, 2, 0.0) == 1, (
        "all are being computed: the one handed out longest ago"
    )


def test_by_age_a_part_that_stays_with_a_slow_worker_goes_to_another() -> None:
    parts = PartsByHand(EachUpdate(blocks=3, order="age"))
    assert parts.choose(0, 0, 0.0) == 0
    handed = []
    for version in range(12):
        part = parts.choose(1, version, 0.0)
        assert part is not None
        handed.append(part)
        parts.delivered(part, version, version)
    # Part 0 is given up with the sixth hand-out after it, twice the parts there are; then they go round.
    assert handed == [1, 2, 1, 2, 1, 0, 2, 1, 0, 2, 1, 0]
    parts.delivered(0, 0, 0)
    assert [parts.choose(w, 12, 0.0) for w in range(3)] == [2, 1, 0], (
        "the late update frees nothing"
    )


def test_parts_become_active_as_updates_come() -> None:
    parts, active = PartsByHand(EachUpdate(blocks=9, order="age", growth=Growth(2))), []
    for version in range(20):
        part = parts.choose(0, version, 0.0)
        assert part is not None
        parts.delivered(part, version, version)
        active.append(part)
    # The next part comes once updates >= 3 * 2 + 2 (active - 2): after 6, 8, 10, ... updates.
    assert [active.index(part) for part in range(9)] == [0, 1, 6, 8, 10, 12, 14, 16, 18]


def test_a_resumed_hand_out_knows_the_ages_and_how_far_the_parts_have_grown() -> None:
    stage = EachUpdate(blocks=12, order="age", growth=Growth(3))
    schedule = simulate(Cluster(2, 1.0, 0.5), stage, 25, 0)
    resumed = PartsByHand(stage)
    assert schedule.part is not None
    kept = schedule.commit > 0
    resumed.rule.resume(schedule.read, schedule.part, kept)
    newest = np.full(12, -1)
    np.maximum.at(newest, schedule.part, schedule.read)
    active = 3 + (25 - 9) // 2 + 1
    oldest_first = sorted(range(active), key=lambda part: (newest[part], part))
    assert [resumed.choose(w, 25, 0.0) for w in range(active)] == oldest_first


def test_parts_at_random_cover_all_and_depend_on_the_seed() -> None:
    drawn = {}
    for seed in (0, 1):
        parts = PartsByHand(EachUpdate(blocks=4, order="random"), seed)
        drawn[seed] = [parts.choose(0, k, 0.0) for k in range(400)]
    # 100 of each expected, with a standard deviation of sqrt(400 * 3 / 16) < 9.
    assert (np.abs(np.bincount(drawn[0]) - 100) < 5 * 9).all()
    assert drawn[0] != drawn[1]
