from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engines.runs import assert_replays

import asyncqn as aq
from asyncqn.algorithms.exact.exact_lbfgs import ExactLBFGS
from asyncqn.engines.threads import Threads
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
STAGED = StagedLBFGS(batches=6, warmup=9, blocks=4, curvature=10)
ALGORITHMS: dict[str, Any] = {
    "no warm-up": StagedLBFGS(batches=1, warmup=0, blocks=3, curvature=10),
    "growing": ExactLBFGS(blocks=4, samples=1),
    "blocks with eager backups": with_backups(ExactLBFGS(blocks=4), 1e-3),
    "blocks in pieces": with_backups(ExactLBFGS(blocks=3, pieces=4), 1e-3),
}


@pytest.mark.parametrize("workers", [2, 5])
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
