"""Simulated versions of fixed blocks: what the schedule promises, closed forms, and a plain twin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn import Cluster, Schedule, simulate
from asyncqn.core.stages import AllParts, Stage

SLACK = 1e-9
"""Times of a few hundred are sums of some hundred terms: rounding stays below 1e-9."""


def test_steady_times_give_the_closed_form_of_waves():
    for workers, n_blocks, pieces in [
        (4, 4, 1),
        (4, 8, 1),
        (3, 7, 1),
        (1, 5, 1),
        (4, 4, 4),
        (3, 7, 2),
    ]:
        cluster = Cluster(workers, worker_mean=7.0, message=2.0, master=3.0)
        schedule = simulate(
            cluster, AllParts(blocks=n_blocks, backup_after=3.0, pieces=pieces), 10, 0
        )
        version = math.ceil(n_blocks / workers) * 9.0 + 3.0
        np.testing.assert_allclose(
            schedule.commit_times(), version * np.arange(1, 11), atol=SLACK
        )
        assert schedule.dropped == 0, "where times are steady no backup is needed"


def test_with_as_many_blocks_as_workers_everybody_keeps_its_rows():
    schedule = simulate(
        Cluster(6, 5.0, 1.0, master=50.0), AllParts(blocks=6, backup_after=1e9), 30, 1
    )
    np.testing.assert_array_equal(schedule.worker, schedule.part)


def length(
    std: float,
    backup_after: float,
    pieces: int = 1,
    mean: float | tuple[float, ...] = 25.0,
) -> float:
    """The mean time of a version of 40 blocks on 40 workers."""
    cluster = Cluster(40, mean, std, message=10.0, master=30.0)
    stage = AllParts(blocks=40, backup_after=backup_after, pieces=pieces)
    return float(simulate(cluster, stage, 100, 3).time[-1]) / 100


def test_backups_shorten_versions_where_times_scatter_and_cost_nothing_where_they_do_not():
    assert length(30.0, 3.0) < 0.65 * length(30.0, 1e9)
    assert length(1.0, 3.0) == length(1.0, 1e9)


def test_pieces_make_versions_shorter_still_and_change_nothing_where_times_are_steady():
    for std in (200.0**0.5, 30.0):
        assert length(std, 2.0, 4) < 0.9 * length(std, 2.0)
    # A worker that is four times slower than all others: 100 + 40 units without any help.
    uneven = (100.0, *[25.0] * 39)
    assert length(1.0, 2.0, 4, uneven) < 0.9 * length(1.0, 2.0, 1, uneven)
    assert length(0.0, 2.0, 4) == pytest.approx(25.0 + 10.0 + 30.0, rel=1e-12)
    # The times drawn are those of whole blocks, so without help pieces change nothing but rounding.
    assert length(1.0, 2.0, 4) == pytest.approx(length(1.0, 2.0), rel=1e-12)


def test_a_helper_begins_at_the_end_of_a_slow_block_and_its_worker_comes_to_meet_it():
    # Worker 0 takes 1 per piece and worker 1 takes 1.8.  At 4 worker 0 begins piece 7, delivered at 5, then
    # a copy of piece 6, which worker 1 ends before it, at 5.4.
    cluster = Cluster(2, worker_mean=(4.0, 7.2), master=1.0)
    schedule = simulate(cluster, AllParts(blocks=2, backup_after=1e-9, pieces=4), 1, 0)
    assert schedule.part.tolist() == [0, 4, 1, 2, 5, 3, 7, 6, 6]
    assert schedule.worker.tolist() == [0, 1, 0, 0, 1, 0, 0, 1, 0]
    assert schedule.commit.tolist() == [1] * 8 + [0]
    np.testing.assert_allclose(schedule.commit_times(), [6.4])


def test_a_worker_that_hears_of_a_new_version_gives_up_the_rest_of_its_block():
    # Worker 0 has its own block delivered at 6 and pieces 7, 6 and 5 at 9, 12 and 15.  Version 1 opens at 16
    # and is heard of at 17, when worker 1 is in its second piece, from 11 to 21.
    cluster = Cluster(2, worker_mean=(4.0, 40.0), message=2.0, master=1.0)
    schedule = simulate(cluster, AllParts(blocks=2, backup_after=1e-9, pieces=4), 40, 0)
    slow = schedule.worker == 1
    assert schedule.part[slow & (schedule.read == 0)].tolist() == [4, 5]
    np.testing.assert_allclose(schedule.commit_times()[0], 16.0)


def plain_model(cluster: Cluster, pattern: Stage, versions: int, seed: int) -> Schedule:
    """The same rules from the words of the docstrings, for workers that never die."""
    W, half, p, B = cluster.workers, cluster.message / 2, pattern.pieces, pattern.blocks
    drawn = [
        iter(cluster.compute_times(seed, w, 60 * versions + 100)) for w in range(W)
    ]
    work: dict[int, Hand] = {}
    durations: list[float] = []
    rows, now = [], 0.0
    for n in range(versions):
        out: dict[int, list[float]] = {
            q: [] for q in range(B * p)
        }  # hand-outs of pieces not delivered
        end = None
        waiting: list[int] = []
        while (
            end is None
            or min((hand.arrival for hand in work.values()), default=math.inf) <= end
        ):
            events = [hand.arrival for hand in work.values()]
            if end is None:
                mean, std = (
                    (np.mean(durations), np.std(durations)) if durations else (0.0, 0.0)
                )
                help_after = max(0.0, float(pattern.backup_after * mean - 6 * std))
                for w in sorted(set(range(W)) - set(work)):
                    untouched = [
                        b
                        for b in range(B)
                        if all(out.get(b * p + i) == [] for i in range(p))
                    ]
                    late = [
                        q
                        for q in out
                        if out[q] and now >= out[q][-1] + help_after - SLACK
                    ]
                    if untouched:
                        b = min(untouched, key=lambda b: (b - w) % B)
                        pieces = [b * p + i for i in range(p)]
                    elif late:
                        missing = [sum(q // p == b for q in out) for b in range(B)]
                        pieces = [min(late, key=lambda q: (len(out[q]), -missing[q // p], out[q][-1],
                                                           (q // p - w) % B, -q))]  # fmt: skip
                    else:
                        continue
                    for q in pieces:
                        out[q].append(now)
                    work[w] = Hand(n, pieces, next(drawn[w]) / p, now + half, half)
                    events.append(work[w].arrival)
                if len(work) < W:
                    events += [out[q][-1] + help_after for q in out
                               if out[q] and out[q][-1] + help_after > now + SLACK]  # fmt: skip
            now = min(events)
            for w in sorted(w for w in work if work[w].arrival == now):
                hand = work[w]
                q = hand.pieces.pop(0)
                durations.append(2 * half + p * hand.pace)
                useful = end is None and hand.version == n and q in out
                if useful:
                    del out[q]
                waiting.append(len(rows))
                rows.append([w, hand.version, n + 1 if useful else 0, math.nan, q])
                hand.begun += hand.pace
                if not hand.pieces or hand.begun >= hand.heard:
                    del work[w]
                if end is None and not out:
                    end = now + cluster.master
        for row in waiting:
            rows[row][3] = end
        for hand in work.values():
            hand.heard = min(hand.heard, end + half)
        now = end
    columns = list(zip(*rows))
    return Schedule(
        *(np.array(c, float if i == 3 else np.int32) for i, c in enumerate(columns))
    )


@dataclass
class Hand:
    """The pieces that a worker has in hand; the first is under way since `begun`."""

    version: int
    pieces: list[int]
    pace: float
    begun: float
    half: float
    heard: float = math.inf

    @property
    def arrival(self) -> float:
        return self.begun + self.pace + self.half


# Without a spread, rounding decides which of two equal times is the earlier one.
@given(
    st.integers(1, 6),
    st.floats(0.1, 12.0),
    st.integers(1, 9),
    st.sampled_from([0.3, 2.0, 3.0]),
    st.integers(1, 4),
    st.integers(0, 999),
)
def test_the_simulator_agrees_with_a_plain_model_of_the_same_rules(
    workers, std, n_blocks, backup_after, pieces, seed
):
    cluster = Cluster(workers, worker_mean=6.0, worker_std=std, message=1.0, master=2.0)
    pattern = AllParts(blocks=n_blocks, backup_after=backup_after, pieces=pieces)
    expected = plain_model(cluster, pattern, 6, seed)
    schedule = simulate(cluster, pattern, 6, seed)
    known = len(expected)  # after these, `simulate` lists what was under way at the end
    for name in ("worker", "read", "commit", "part"):
        np.testing.assert_array_equal(
            getattr(schedule, name)[:known], getattr(expected, name)
        )
    np.testing.assert_allclose(schedule.time[:known], expected.time, atol=SLACK)
