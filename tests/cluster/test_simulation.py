"""The simulator against an independent SimPy model, a plain model of rounds, and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import one_sentence, plain_rounds, simpy_asynchronous

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.virtual_time import simulate
from asyncqn.core.stages import ASYNCHRONOUS, AllParts, Round
from asyncqn.errors import BadInput

# Both models add the same times in another order: a relative difference of a few roundings per commit.
ROUNDING = 1e-11


def agree(schedule, rows):
    assert schedule.worker.tolist() == [row[0] for row in rows]
    assert schedule.read.tolist() == [row[1] for row in rows]
    np.testing.assert_allclose(schedule.time, [row[-1] for row in rows], rtol=ROUNDING)


@settings(max_examples=25)
@given(
    st.integers(1, 6), st.floats(0, 3), st.floats(0, 3), st.floats(0.1, 4), st.data()
)
def test_asynchronous_commits_agree_with_simpy_on_random_clusters(
    W, message, master, std, data
):
    at = st.dictionaries(st.integers(0, W - 1), st.floats(0.5, 60), max_size=W)
    joins = {w: t for w, t in data.draw(at).items() if w > 0}
    deaths, link = data.draw(at), data.draw(st.sampled_from([0.0, 0.3]))
    recoveries = {w: deaths[w] + t for w, t in data.draw(at).items() if w in deaths}
    cluster = Cluster(
        W, 2.0, std, message, master, deaths, joins, recoveries=recoveries, link=link
    )
    agree(simulate(cluster, ASYNCHRONOUS, 80, 5), simpy_asynchronous(cluster, 80, 5))


@settings(max_examples=40)
@given(
    st.integers(1, 6),
    st.floats(0, 3),
    st.floats(0, 3),
    st.floats(0.1, 8),
    st.floats(0, 9),
    st.data(),
)
def test_rounds_agree_with_the_plain_model_on_random_clusters(
    W, message, master, std, timeout, data
):
    at = st.dictionaries(st.integers(0, W - 1), st.floats(0.5, 60), max_size=W)
    joins = {w: t for w, t in data.draw(at).items() if w > 0}
    quorum = data.draw(st.sampled_from([0.1, 0.5, 0.75, 1.0]))
    deaths = data.draw(at)
    recoveries = {w: deaths[w] + t for w, t in data.draw(at).items() if w in deaths}
    cluster = Cluster(
        W, 2.0, std, message, master, deaths, joins, recoveries=recoveries
    )
    rows = plain_rounds(cluster, timeout, quorum, 30, 9)
    schedule = simulate(cluster, Round(timeout=timeout, quorum=quorum), 30, 9)
    delivered = schedule.commit > 0
    assert list(zip(schedule.worker[delivered], schedule.commit[delivered])) == [
        (row[0], row[2]) for row in rows if row[2] > 0
    ]
    # Those that are under way at the end are no rows of the schedule.
    end = schedule.time.max(initial=0.0)
    assert schedule.dropped == sum(row[2] == 0 and row[3] <= end for row in rows)


@pytest.mark.parametrize("W", [1, 2, 7, 40])
@pytest.mark.parametrize(
    ("std", "master"), [(0.0, 0.0), (1.0, 0.0), (20.0, 0.3), (1.0, 3.0)]
)
def test_mean_staleness_tends_to_workers_minus_one(W, std, master):
    N = 5000
    schedule = simulate(Cluster(W, 5.0, std, 1.0, master), ASYNCHRONOUS, N, 1)
    staleness = schedule.staleness
    # A worker's commits tile the versions, so its staleness sums to (its last commit) - (its number
    # of commits).  Over all workers the sum is W N - N less what lies after the last commits: the
    # W computations in flight at the end, the sum of whose ages is the whole difference.
    last = [schedule.commit[schedule.worker == w].max(initial=0) for w in range(W)]
    assert staleness.sum() == sum(last) - N
    assert abs(staleness.mean() - (W - 1)) <= sum(N - n for n in last) / N + 1e-12
    if std <= 1.0:
        # In flight at the end: about W^2/2 commits of age in all; thrice that is a wide berth.
        assert abs(staleness.mean() - (W - 1)) <= 1.5 * W * W / N


def test_a_deterministic_cluster_has_its_closed_form():
    W, mu, tau, mu_m = 4, 5.0, 1.0, 0.25
    schedule = simulate(Cluster(W, mu, 0.0, tau, mu_m), ASYNCHRONOUS, 40, 0)
    # All arrive together and queue once; from then on each returns after its own service, in order,
    # every mu + tau + mu_m, and nobody waits again.
    cycle, place = np.divmod(np.arange(40), W)
    np.testing.assert_allclose(
        schedule.time, (cycle + 1) * (mu + tau) + cycle * mu_m + (place + 1) * mu_m
    )
    assert schedule.worker.tolist() == (np.arange(40) % W).tolist()
    assert schedule.staleness.tolist() == [0, 1, 2, 3] + [3] * 36


def test_a_deterministic_round_takes_compute_and_messages_and_master():
    schedule = simulate(
        Cluster(3, [1.0, 2.0, 4.0], 0.0, 0.5, 0.25),
        Round(timeout=np.inf, quorum=0.5),
        10,
        0,
    )
    np.testing.assert_allclose(schedule.commit_times(), 4.75 * np.arange(1, 11))
    assert schedule.dropped == 0
    # With a timeout of 2 from the broadcast, worker 0 alone is in time: its update arrives at 1.5.
    early = simulate(
        Cluster(3, [1.0, 2.0, 4.0], 0.0, 0.5, 0.25),
        Round(timeout=2.0, quorum=0.3),
        1,
        0,
    )
    np.testing.assert_allclose(early.commit_times(), [2.0 + 0.25])
    assert early.worker[early.commit == 1].tolist() == [0]


def test_a_link_carries_one_message_after_the_other():
    W, mu, tau, mu_m, b, N = 5, 20.0, 2.0, 1.0, 0.5, 6
    cluster = Cluster(W, mu, 0.0, tau, mu_m, link=b)
    # The workers get their first messages b apart, and their updates come b apart, faster than an exchange
    # of 2 b + mu_m: the first commit is at b + tau + mu + b + mu_m, and then one follows per exchange.
    one_by_one = simulate(cluster, ASYNCHRONOUS, W, 0).commit_times()
    np.testing.assert_allclose(
        one_by_one, b + tau + mu + b + mu_m + (2 * b + mu_m) * np.arange(W)
    )
    # A broadcast takes W b, the updates come b apart and are received at once: the last after (W + 1) b.
    for stage in (
        Round(timeout=np.inf, quorum=1.0),
        AllParts(blocks=W, backup_after=1e9),
    ):
        times = simulate(cluster, stage, N, 0).commit_times()
        np.testing.assert_allclose(
            times, ((W + 1) * b + tau + mu + mu_m) * np.arange(1, N + 1)
        )
    # Every piece is charged: W blocks of two pieces are 2 W updates, and where pieces are short they queue.
    short = Cluster(W, 0.2, 0.0, 0.0, mu_m, link=b)
    version = simulate(
        short, AllParts(blocks=W, backup_after=1e9, pieces=2), 1, 0
    ).commit_times()[0]
    assert version >= W * b + 2 * W * b + mu_m - 1e-9


@pytest.mark.parametrize(
    ("sending", "replies", "broadcasts"),
    [("each", 1, 7), ("tree", 1, 3), ("free", 0, 0)],
)
def test_what_the_master_sends_costs_it_one_message_each_a_tree_or_nothing(
    sending, replies, broadcasts
):
    W, mu, tau, mu_m, b, N = 7, 20.0, 2.0, 1.0, 0.5, 6
    cluster = Cluster(W, mu, 0.0, tau, mu_m, link=b, sending=sending)
    # One by one: the first worker has its message after one reply, and each exchange costs an update, a
    # commit and a reply.  (Updates come in faster than that.)
    times = simulate(cluster, ASYNCHRONOUS, W, 0).commit_times()
    expected = (
        replies * b + tau + mu + b + mu_m + (b + replies * b + mu_m) * np.arange(W)
    )
    np.testing.assert_allclose(times, expected)
    # Rounds: 7 workers hear of a broadcast after 7, 3 or 0 messages.  In a tree 1, 2 and 4 workers hear of it
    # in the three turns: the second of the pair and then the four wait; without any cost all seven do.
    queue = {"each": 1, "tree": 5, "free": 7}[sending]
    times = simulate(cluster, Round(timeout=np.inf, quorum=1.0), N, 0).commit_times()
    np.testing.assert_allclose(
        times, ((broadcasts + queue) * b + tau + mu + mu_m) * np.arange(1, N + 1)
    )


def test_an_open_busy_master_waits_as_the_m_d_1_queue():
    """Many slow workers with spread times are nearly a Poisson stream: W_q = rho mu_m / (2 (1 - rho))."""
    W, mu_m, load, N = 400, 1.0, 0.5, 200_000
    mean = W * mu_m / load
    cluster = Cluster(W, mean, mean, 0.0, mu_m)
    schedule = simulate(cluster, ASYNCHRONOUS, N, 3)
    # A worker's waits are what its commit times show beyond its drawn times and its services.
    waits = []
    for w in range(W):
        commits = schedule.time[schedule.worker == w]
        computing = np.cumsum(cluster.compute_times(3, w, commits.size))
        waits.append((commits[-1] - computing[-1]) / commits.size - mu_m)
    rho = N / schedule.time[-1] * mu_m
    expected = rho * mu_m / (2 * (1 - rho))
    # Finite W takes about 1/W of the load away; N/(correlation time of ~10) waits leave about 1 %,
    # and the common start adds a transient below 2 %.
    assert np.mean(waits) == pytest.approx(expected, rel=0.08)


def test_equal_seeds_give_equal_schedules_and_others_do_not():
    cluster = Cluster(4, [1.0, 2.0, 10.0, 0.3], [0.1, 1.0, 5.0, 0.3], message=0.2)
    assert simulate(cluster, ASYNCHRONOUS, 50, 1) == simulate(
        cluster, ASYNCHRONOUS, 50, 1
    )
    assert simulate(cluster, ASYNCHRONOUS, 50, 1) != simulate(
        cluster, ASYNCHRONOUS, 50, 2
    )


@pytest.mark.parametrize("commits", [0, -1, 1.5, "many", 2**31])
def test_a_useless_number_of_commits_is_refused(commits):
    with pytest.raises(BadInput, match="commits must be") as caught:
        simulate(Cluster(1), ASYNCHRONOUS, commits, 0)
    assert one_sentence(caught.value)
