"""The event queue of fixed blocks: what the schedule promises, closed forms, and a plain twin."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asyncqn import Cluster, Schedule, simulate
from asyncqn.types import Blocks

clusters = st.builds(
    Cluster,
    workers=st.integers(1, 9),
    worker_mean=st.floats(0.5, 20.0),
    worker_std=st.floats(0.0, 30.0),
    message=st.floats(0.0, 5.0),
    master=st.floats(0.0, 10.0),
)
SLACK = 1e-9
"""Times of a few hundred are sums of some hundred terms: rounding stays below 1e-9."""


@given(clusters, st.integers(1, 15), st.sampled_from([0.5, 1.5, 3.0, 1e9]), st.integers(0, 2**40))
def test_every_version_has_every_block_once_and_nothing_stale(cluster, n_blocks, backup_after, seed):
    schedule = simulate(cluster, Blocks(n_blocks, backup_after, 1.0), 12, seed)
    assert schedule.commits == 12
    assert not schedule.staleness.any()
    for commit in range(1, 13):
        assert sorted(schedule.part[schedule.commit == commit]) == list(range(n_blocks))
    wasted = schedule.commit == 0
    assert ((schedule.part[wasted] >= 0) & (schedule.part[wasted] < n_blocks)).all()


@given(clusters, st.integers(2, 12), st.floats(0.05, 0.95), st.integers(0, 2**40))
def test_with_a_quorum_every_commit_has_enough_fresh_blocks_and_answers_never_go_back(
    cluster, n_blocks, quorum, seed
):
    schedule = simulate(cluster, Blocks(n_blocks, 3.0, quorum), 15, seed)
    needed = math.ceil(quorum * n_blocks - 1e-9)
    newest = np.full(n_blocks, -1)
    for commit in range(1, schedule.commits + 1):
        rows = np.flatnonzero(schedule.commit == commit)
        assert (schedule.read[rows] == commit - 1).sum() == needed
        for row in rows:
            assert schedule.read[row] > newest[schedule.part[row]]
            newest[schedule.part[row]] = schedule.read[row]


def test_steady_times_give_the_closed_form_of_waves():
    for workers, n_blocks in [(4, 4), (4, 8), (3, 7), (1, 5)]:
        cluster = Cluster(workers, worker_mean=7.0, message=2.0, master=3.0)
        schedule = simulate(cluster, Blocks(n_blocks, 3.0, 1.0), 10, 0)
        version = math.ceil(n_blocks / workers) * 9.0 + 3.0
        np.testing.assert_allclose(schedule.commit_times(), version * np.arange(1, 11), atol=SLACK)
        assert schedule.dropped == 0, "where times are steady no backup is needed"


def test_with_as_many_blocks_as_workers_everybody_keeps_its_rows():
    schedule = simulate(Cluster(6, 5.0, 1.0, master=50.0), Blocks(6, 1e9, 1.0), 30, 1)
    np.testing.assert_array_equal(schedule.worker, schedule.part)


def test_backups_shorten_versions_where_times_scatter_and_cost_nothing_where_they_do_not():
    def length(std: float, backup_after: float) -> float:
        cluster = Cluster(40, worker_mean=25.0, worker_std=std, message=10.0, master=30.0)
        return float(simulate(cluster, Blocks(40, backup_after, 1.0), 100, 3).time[-1]) / 100

    assert length(30.0, 3.0) < 0.65 * length(30.0, 1e9)
    assert length(1.0, 3.0) == length(1.0, 1e9)


def test_the_blocks_of_a_dead_worker_are_computed_by_the_others():
    cluster = Cluster(3, worker_mean=5.0, worker_std=0.1, deaths={0: 12.0, 1: 27.0}, joins={2: 8.0})
    schedule = simulate(cluster, Blocks(3, 3.0, 1.0), 8, 0)
    assert schedule.commits == 8
    assert set(schedule.worker[schedule.commit == 8]) == {2}


def test_a_cluster_whose_workers_all_die_ends_early():
    schedule = simulate(Cluster(2, worker_mean=5.0, deaths={0: 22.0, 1: 23.0}), Blocks(2, 3.0, 1.0), 10, 0)
    assert schedule.commits == 4


def plain_model(cluster: Cluster, n_blocks: int, backup_after: float, versions: int, seed: int) -> Schedule:
    """The same rules from the words of the docstring, for quorum 1 and workers that never die."""
    W, half = cluster.workers, cluster.message / 2
    drawn = [iter(cluster.compute_times(seed, w, 60 * versions + 100)) for w in range(W)]
    task: dict[int, tuple[float, int, int, float]] = {}  # worker -> (arrival, version, block, handed out)
    durations: list[float] = []
    rows, now = [], 0.0
    for n in range(versions):
        out: dict[int, list[float]] = {b: [] for b in range(n_blocks)}  # hand-outs of open blocks
        end = None
        waiting: list[int] = []
        while end is None or min((t[0] for t in task.values()), default=math.inf) <= end:
            if end is None:
                mean = float(np.mean(durations)) if durations else 0.0
                patience = max(0.0, backup_after * mean - 6 * float(np.std(durations)) if durations else 0.0)
                for w in sorted(set(range(W)) - set(task)):
                    untouched = [b for b in out if not out[b]]
                    late = [b for b in out if out[b] and now >= out[b][-1] + patience - SLACK]
                    if untouched:
                        b = min(untouched, key=lambda b: (b - w) % n_blocks)
                    elif late:
                        b = min(late, key=lambda b: (len(out[b]), out[b][-1], (b - w) % n_blocks))
                    else:
                        continue
                    out[b].append(now)
                    task[w] = (now + half + next(drawn[w]) + half, n, b, now)
                events = [t[0] for t in task.values()]
                if len(task) < W:
                    events += [out[b][-1] + patience for b in out if out[b][-1] + patience > now + SLACK]
                now = min(events)
            else:
                now = min(t[0] for t in task.values())
            for w in sorted(w for w in task if task[w][0] == now):
                _, version, b, handed = task.pop(w)
                durations.append(now - handed)
                useful = end is None and version == n and b in out
                if useful:
                    del out[b]
                waiting.append(len(rows))
                rows.append([w, version, n + 1 if useful else 0, math.nan, b])
                if end is None and not out:
                    end = now + cluster.master
        for row in waiting:
            rows[row][3] = end
        now = end
    columns = list(zip(*rows))
    return Schedule(*(np.array(c, float if i == 3 else np.int32) for i, c in enumerate(columns)))


@given(
    st.integers(1, 6),
    st.floats(0.0, 12.0),
    st.integers(1, 9),
    st.sampled_from([0.3, 2.0, 3.0]),
    st.integers(0, 999),
)
def test_the_kernel_agrees_with_a_plain_model_of_the_same_rules(workers, std, n_blocks, backup_after, seed):
    cluster = Cluster(workers, worker_mean=6.0, worker_std=std, message=1.0, master=2.0)
    expected = plain_model(cluster, n_blocks, backup_after, 6, seed)
    schedule = simulate(cluster, Blocks(n_blocks, backup_after, 1.0), 6, seed)
    known = len(expected)  # after these, `simulate` lists what was under way at the end
    for name in ("worker", "read", "commit", "part"):
        np.testing.assert_array_equal(getattr(schedule, name)[:known], getattr(expected, name))
    np.testing.assert_allclose(schedule.time[:known], expected.time, atol=SLACK)
