"""Schedules: what a valid one promises, and that every kind of corruption is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import one_sentence

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.virtual_time import simulate
from asyncqn.core.schedule import Schedule
from asyncqn.core.stages import ASYNCHRONOUS, Round
from asyncqn.errors import BadInput


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    W = draw(st.integers(1, 7))
    means = draw(st.lists(st.floats(0.5, 5.0), min_size=W, max_size=W))
    stds = draw(st.lists(st.sampled_from([0.0, 0.3, 3.0]), min_size=W, max_size=W))
    later = st.dictionaries(st.integers(0, W - 1), st.floats(0.0, 40.0), max_size=W)
    joins = {w: t for w, t in draw(later).items() if w > 0}
    return Cluster(
        W, means, stds, message=draw(st.sampled_from([0.0, 0.5, 4.0])),
        master=draw(st.sampled_from([0.0, 0.1, 2.0])), deaths=draw(later), joins=joins,
    )  # fmt: skip


patterns = st.one_of(
    st.just(ASYNCHRONOUS),
    st.builds(
        Round,
        timeout=st.sampled_from([0.0, 1.0, 5.0, np.inf]),
        quorum=st.sampled_from([0.01, 0.5, 0.8, 1.0]),
    ),
)


@given(clusters(), patterns, st.integers(1, 60), st.integers(0, 2**63 - 1))
def test_every_simulated_schedule_keeps_the_invariants(cluster, pattern, commits, seed):
    schedule = simulate(cluster, pattern, commits, seed)
    delivered = schedule.commit > 0
    assert schedule.commits <= commits
    assert np.array_equal(
        np.unique(schedule.commit[delivered]), np.arange(1, schedule.commits + 1)
    )
    assert (schedule.read[delivered] < schedule.commit[delivered]).all()
    assert (schedule.staleness >= 0).all()
    assert (np.diff(schedule.time) >= 0).all()
    assert (np.diff(schedule.commit_times()) >= 0).all()
    assert schedule.commit_times().size == schedule.commits
    for w in range(cluster.workers):
        mine = schedule.worker == w
        ends = np.where(delivered, schedule.commit, schedule.read)[mine]
        assert (schedule.read[mine][1:] >= ends[:-1]).all(), (
            "one computation in flight per worker"
        )
        assert not mine.any() or schedule.time[mine][0] >= cluster.joins.get(w, 0.0)
    if pattern != ASYNCHRONOUS:
        assert (schedule.staleness == 0).all(), (
            "a round's updates are computed on its own broadcast"
        )
        assert schedule.staleness.size + schedule.dropped == len(schedule)
    else:
        assert schedule.dropped == 0
        assert len(schedule) == schedule.commits
    assert Schedule.from_arrays(schedule.arrays()) == schedule


@given(clusters(), patterns, st.data())
def test_a_part_of_a_schedule_is_a_schedule_with_the_same_past(cluster, pattern, data):
    schedule = simulate(cluster, pattern, 40, 3)
    commit = data.draw(st.integers(0, schedule.commits))
    part = schedule.until(commit)
    assert part.commits == commit
    assert np.array_equal(part.commit_times(), schedule.commit_times()[:commit])
    ours, all_ = part.commit > 0, (schedule.commit > 0) & (schedule.commit <= commit)
    assert np.array_equal(part.worker[ours], schedule.worker[all_])
    assert np.array_equal(part.read[ours], schedule.read[all_])
    assert (part.read < max(commit, 1)).all(), (
        "nobody has begun on the last version yet"
    )
    assert part.until(commit) == part


VALID = {
    "worker": np.array([0, 1, 0, 1]),
    "read": np.array([0, 0, 1, 2]),
    "commit": np.array([1, 2, 3, 4]),
    "time": np.array([1.0, 1.5, 2.0, 3.0]),
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"read": [0, 0, 1]}, "column 'read' must have 4 entries"),
        ({"part": [0]}, "column 'part' must have 4 entries"),
        ({"worker": [[0, 1], [0, 1]]}, "column 'worker' must have 4 entries"),
        ({"worker": [0, -1, 0, -1]}, "must not be negative"),
        ({"worker": [0.0, 1.0, 0.0, 1.0]}, "must hold integers"),
        ({"read": [0, 0, 1, 2**32 + 2]}, "beyond 32 bits"),
        ({"read": [0, -1, 1, 2]}, "no version is before 0"),
        ({"time": [1.0, 2.0, np.nan, 3.0]}, "must be finite"),
        ({"time": [1.0, 2.0, 1.9, 3.0]}, "must not decrease"),
        ({"commit": [1, 2, 4, 5]}, "without gaps"),
        ({"commit": [1, 3, 2, 4]}, "without gaps"),
        ({"commit": [-1, 1, 2, 3]}, "without gaps"),
        ({"read": [0, 2, 1, 2]}, "older than its own commit"),
        ({"read": [0, 1, 1, 0]}, "older than the one it had read before"),
    ],
)
def test_a_corrupt_schedule_is_refused_in_one_sentence(change, words):
    Schedule(**VALID)
    with pytest.raises(BadInput, match=words) as caught:
        Schedule(
            **{**VALID, **{name: np.array(column) for name, column in change.items()}}
        )
    assert one_sentence(caught.value)


def test_a_missing_column_is_named():
    with pytest.raises(BadInput, match="not worker, commit, time") as caught:
        Schedule.from_arrays({k: v for k, v in VALID.items() if k != "read"})
    assert one_sentence(caught.value)


def test_staleness_counts_the_commits_in_between():
    schedule = Schedule(**VALID)
    assert schedule.staleness.tolist() == [0, 1, 1, 1]
    assert np.bincount(schedule.staleness).tolist() == [1, 3]
    assert schedule.workers == 2
    assert len(schedule) == 4


def test_per_worker_summaries_add_up():
    schedule = simulate(
        Cluster(4, [1, 2, 3, 4], 0.5), Round(timeout=1.5, quorum=0.25), 60, 0
    )
    summaries = schedule.per_worker()
    assert sum(s.delivered for s in summaries) == schedule.staleness.size
    assert sum(s.dropped for s in summaries) == schedule.dropped > 0
    assert [s.worker for s in summaries] == [0, 1, 2, 3]


def test_schedules_compare_by_content_with_their_parts():
    a = Schedule(**VALID)
    assert a == Schedule(**VALID)
    assert a != Schedule(**{**VALID, "time": VALID["time"] + 1})
    assert a != Schedule(**VALID, part=np.zeros(4, int))
    assert Schedule(**VALID, part=np.zeros(4, int)) == Schedule(
        **VALID, part=np.zeros(4, int)
    )
    assert a != "a schedule"


def test_a_schedule_is_shown_in_one_line() -> None:
    schedule = Schedule([0, 1, 0], [0, 0, 1], [1, 2, 3], [1.0, 1.5, 2.0])
    assert repr(schedule) == (
        "Schedule(3 computations by 2 workers, 3 commits, staleness 0.667 on average and at most 1, "
        "until time 2)"
    )
    assert repr(Schedule.serial(0)).startswith("Schedule(0 computations by 0 workers")
