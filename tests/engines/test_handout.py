from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core.parts_by_hand import PartsByHand
from engines.runs import assert_replays
from hypothesis import given
from hypothesis import strategies as st

import asyncqn as aq
from asyncqn.algorithms.exact.exact_lbfgs import ExactLBFGS
from asyncqn.cluster.virtual_time import VirtualTime, simulate
from asyncqn.core import stages
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request
from asyncqn.core.stages import AllParts, Stages
from asyncqn.core.worker import WorkerSteps
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.threads import Threads
from asyncqn.resume import resume
from asyncqn_recommender import ProfiledFactorization, StagedLBFGS


def ratings() -> ProfiledFactorization:
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 60, 900), rng.integers(0, 20, 900)
    return ProfiledFactorization(
        users, items, rng.integers(1, 6, 900), n_users=60, n_items=20, rank=3
    )


def with_backups(algorithm: ExactLBFGS, after: float) -> ExactLBFGS:
    """The same algorithm with blocks that are late after this many usual durations."""
    late = tuple(replace(stage, backup_after=after) for stage in algorithm.stages)
    # Where the cached property stores its value.
    vars(algorithm)["stages"] = late
    return algorithm


PROBLEM = ratings()
STAGED = StagedLBFGS(batches=6, warmup=9, blocks=4, curvature=10, delay=1)
ALGORITHMS: dict[str, Any] = {
    "staged": STAGED,
    "no warm-up": StagedLBFGS(batches=1, warmup=0, blocks=3, curvature=10),
    "blocks": ExactLBFGS(blocks=4),
    "growing": ExactLBFGS(blocks=4, samples=1),
    "blocks with eager backups": with_backups(ExactLBFGS(blocks=4), 1e-3),
    "blocks in pieces": with_backups(ExactLBFGS(blocks=3, pieces=4), 1e-3),
}


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_blocks_on_threads_equal_their_replay_bitwise(name: str, workers: int) -> None:
    for seed in range(3):
        run = aq.minimize(
            PROBLEM,
            ALGORITHMS[name],
            engine=Threads(workers),
            commits=20,
            seed=seed,
            tol=None,
        )
        assert run.status == "completed"
        assert_replays(run, PROBLEM)


def test_one_thread_with_blocks_equals_the_simulator_with_one_worker() -> None:
    for algorithm in (
        ALGORITHMS["staged"],
        ALGORITHMS["blocks"],
        ALGORITHMS["blocks in pieces"],
    ):
        threads = aq.minimize(PROBLEM, algorithm, engine=Threads(1), commits=15, seed=2)
        cluster = aq.Cluster(1, worker_mean=1.0)
        simulated = aq.minimize(
            PROBLEM, algorithm, engine=aq.Simulator(cluster), commits=15, seed=2
        )
        assert threads.theta.tobytes() == simulated.theta.tobytes()


@pytest.mark.parametrize("algorithm", [STAGED, ExactLBFGS(3, pieces=4)])
def test_sleeping_threads_that_die_leave_their_blocks_to_others(algorithm: Any) -> None:
    cluster = aq.Cluster(3, worker_mean=2.0, worker_std=1.0, deaths={0: 9.0, 2: 30.0})
    run = aq.minimize(
        PROBLEM,
        algorithm,
        engine=Threads(timing_model=cluster, time_unit=1e-3),
        commits=14,
        seed=0,
        tol=None,
    )
    assert run.status == "completed"
    assert_replays(run, PROBLEM)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_resumed_run_of_blocks_replays_as_a_whole(
    workers: int, tmp_path: Path
) -> None:
    for name in ("staged", "blocks", "blocks in pieces"):
        folder = tmp_path / name

        def stop(progress: Any) -> None:
            if progress.commit == 11:
                raise StopIteration

        options: dict[str, Any] = {
            "engine": Threads(workers),
            "commits": 20,
            "seed": 1,
            "evaluate": 1,
        }
        aq.minimize(
            PROBLEM,
            ALGORITHMS[name],
            callback=stop,
            checkpoint=folder,
            checkpoint_every=3,
            **options,
        )
        run = resume(folder, problem=PROBLEM, engine=Threads(workers))
        assert run.schedule.commits == 20
        assert_replays(run, PROBLEM)


@given(
    warmup=st.integers(0, 12),
    batches=st.integers(1, 5),
    blocks=st.integers(1, 5),
    workers=st.integers(1, 6),
    commits=st.integers(1, 25),
    seed=st.integers(0, 2**20),
    spread=st.sampled_from([0.0, 0.5, 3.0]),
)
def test_a_simulated_staged_schedule_warms_up_one_by_one_and_then_closes_whole_versions(
    warmup: int,
    batches: int,
    blocks: int,
    workers: int,
    commits: int,
    seed: int,
    spread: float,
) -> None:
    cluster = aq.Cluster(
        workers, worker_mean=1.0, worker_std=spread, message=0.1, master=0.01
    )
    cut = (
        stages.EachUpdate(blocks=batches, commits=warmup),
        stages.AllParts(blocks=blocks, backup_after=1.2),
    )
    simulated = VirtualTime(cluster, cut, seed)
    deque(simulated.turns(commits), maxlen=0)
    schedule = simulated.until(commits)
    assert schedule.commits == commits
    assert schedule.part is not None
    for commit in range(1, commits + 1):
        rows = schedule.commit == commit
        if commit <= warmup:
            assert rows.sum() == 1
            assert (schedule.part[rows] < batches).all()
        else:
            assert sorted(schedule.part[rows]) == list(range(blocks))
            assert (schedule.read[rows] == commit - 1).all()
    # In turn, and nothing is lost: every part was assigned as often as any other, up to one time.
    times = np.bincount(schedule.part[schedule.read < warmup], minlength=batches)
    assert times.max() - times.min() <= 1


@given(data=st.data())
def test_any_order_of_updates_and_losses_records_a_schedule_that_replays(
    data: st.DataObject,
) -> None:
    algorithm = data.draw(
        st.sampled_from(
            [STAGED, with_backups(ExactLBFGS(3), 1.0), ExactLBFGS(2, pieces=3)]
        )
    )
    theta0 = PROBLEM.initial(np.random.default_rng(0))
    request = Request(
        PROBLEM, algorithm, theta0, commits=data.draw(st.integers(1, 16)), evaluate=5
    )
    coordinator = Coordinator(request, workers=3, engine={"kind": "test"})
    coordinator.begin()
    steps = WorkerSteps(algorithm, PROBLEM, coordinator.master.limit)
    work: dict[int, Any] = {}
    states: dict[int, Any] = {}
    now = 0.0

    def carry(orders: Any) -> None:
        for order in orders:
            work[order.worker] = steps.compute(
                coordinator.master.iterate, states[order.worker], order.task(0)
            )

    for _ in range(3):
        worker = coordinator.join(now)
        states[worker] = algorithm.init_worker(PROBLEM, theta0)
        carry(coordinator.ask(worker, now))
    for _ in range(300):
        if coordinator.done:
            break
        now += data.draw(st.sampled_from([0.0, 0.3, 1.0]))
        carry(coordinator.tick(now))
        if not work:
            continue
        worker = data.draw(st.sampled_from(sorted(work)))
        update = work.pop(worker)
        if len(coordinator.members) > 1 and data.draw(st.integers(0, 20)) == 0:
            carry(coordinator.lost(worker, now))
        else:
            carry(coordinator.deliver(worker, update, now))
    else:
        coordinator.stop(Outcome.STOPPED, "long enough.")
    assert_replays(
        coordinator.finish({w: states[w] for w in coordinator.members}), PROBLEM
    )


def test_untouched_blocks_go_first_and_a_late_one_is_duplicated_after_its_patience() -> (
    None
):
    parts = PartsByHand(AllParts(blocks=2, backup_after=2.0))
    assert [parts.choose(0, 0, 0.0), parts.choose(1, 0, 0.0)] == [0, 1]
    assert parts.delivered(0, 0, 0, took=1.0)
    assert not parts.complete
    assert parts.choose(0, 0, 1.0) is None
    assert parts.rule.deadline == pytest.approx(2.0)
    assert parts.choose(0, 0, 2.0) == 1
    assert parts.delivered(1, 0, 0, took=2.5)
    assert parts.complete
    parts.opened(1)
    assert not parts.delivered(1, 0, 1, took=1.0)  # the duplicate comes too late
    assert parts.choose(1, 1, 3.0) == 1
    parts.lost(1, 1, 1, 1)
    assert parts.choose(0, 1, 3.0) == 0
    assert parts.choose(2, 1, 3.0) == 1


def test_what_a_lost_worker_leaves_of_its_block_need_not_be_waited_for() -> None:
    parts = PartsByHand(AllParts(blocks=2, backup_after=2.0, pieces=2))
    assert [parts.choose(0, 0, 0.0), parts.choose(1, 0, 0.0)] == [0, 2]
    assert parts.delivered(2, 0, 0, took=1.0)
    assert parts.choose(1, 0, 1.0) == 3
    parts.lost(1, 3, 0, 0)
    assert parts.choose(0, 0, 1.0) == 1, "its own block first"
    assert parts.choose(0, 0, 1.0) == 3


def followed(
    cluster: aq.Cluster, cut: Stages, commits: int, seed: int
) -> list[tuple[int, ...]]:
    """(worker, version, commit, part) as real engines would hand parts out on a cluster without messages."""
    stage = cut[-1]
    parts = PartsByHand(stage)
    drawn = [iter(cluster.compute_times(seed, w, 4000)) for w in range(cluster.workers)]
    pace = [0.0] * cluster.workers
    due: dict[
        int, tuple[float, float, int, int]
    ] = {}  # by worker: end, beginning, version, part
    rows: list[tuple[int, ...]] = []
    now, version = 0.0, 0
    while version < commits:
        for w in range(cluster.workers):
            if w not in due and (q := parts.choose(w, version, now)) is not None:
                if q % stage.pieces == 0 or (w, version, q - 1) not in {
                    (r[0], r[1], r[3]) for r in rows
                }:
                    pace[w] = float(next(drawn[w])) / stage.pieces
                due[w] = (now + pace[w], now, version, q)
        backups = [parts.rule.deadline] if len(due) < cluster.workers else []
        now = min([end for end, *_ in due.values()] + [t for t in backups if t > now])
        for w in sorted(w for w in due if due[w][0] == now):
            _, begun, read, q = due.pop(w)
            counts = parts.delivered(q, read, version, now - begun)
            rows.append((w, read, version + 1 if counts else 0, q))
            if counts and parts.complete:
                version += 1
                parts.opened(version)
    return rows


@given(
    workers=st.integers(1, 5),
    n=st.integers(1, 6),
    backup_after=st.sampled_from([0.5, 2.0, 3.0]),
    seed=st.integers(0, 999),
    spread=st.sampled_from([0.5, 2.0, 8.0]),
)
def test_real_engines_hand_out_what_the_simulator_does_on_the_same_times(
    workers: int, n: int, backup_after: float, seed: int, spread: float
) -> None:
    cluster = aq.Cluster(workers, worker_mean=4.0, worker_std=spread)
    cut = (AllParts(blocks=n, backup_after=backup_after),)
    schedule = simulate(cluster, cut, 8, seed)
    ours = followed(cluster, cut, 8, seed)
    assert schedule.part is not None
    theirs = list(
        zip(
            *(
                c.tolist()
                for c in (
                    schedule.worker,
                    schedule.read,
                    schedule.commit,
                    schedule.part,
                )
            )
        )
    )
    known = len(ours)  # after these, `simulate` lists what was under way at the end
    assert theirs[:known] == ours
