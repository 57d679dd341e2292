"""A simulated run that outlives its schedule goes on with a longer one, to the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import EXAMPLES, problem_for

import asyncqn as aq
from asyncqn.cluster.fit import stretched_to
from asyncqn.core.master import Master
from asyncqn.core.request import Request
from asyncqn.core.stopping import Stopping
from asyncqn.engines import simulator
from asyncqn.runs.execution import run_schedule

NEVER = Stopping(max_time=1e12)
"""A rule that might end the run, so that short schedules are tried first, and does not."""


@pytest.fixture
def stretches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Short schedules for runs of few commits; the list receives the number of every commit made."""
    monkeypatch.setattr(simulator, "_MAX_COMPUTATIONS", 20)
    monkeypatch.setattr(simulator, "_MIN_STRETCH", 8)
    made: list[int] = []
    commit = Master.commit

    def counted(self: Master, *arguments: Any) -> None:
        made.append(self.version + 1)
        commit(self, *arguments)

    monkeypatch.setattr(Master, "commit", counted)
    return made


def from_zero(request: Request, cluster: aq.Cluster) -> aq.Run:
    """The run on the last of the same lengths that it reaches, each computed from the start."""
    stretched = stretched_to(
        cluster, request.algorithm, request.commits, int(request.problem.n_data)
    )
    for length in simulator.schedule_lengths(request):
        schedule = aq.simulate(
            stretched, request.algorithm.stages, length, request.seed
        )
        engine = {"kind": "simulator", "workers": cluster.workers}
        run = run_schedule(replace(request, commits=length), schedule, engine=engine)
        if run.schedule.commits < length:
            break
    return run


def same(a: aq.Run, b: aq.Run) -> None:
    assert a.theta.tobytes() == b.theta.tobytes()
    assert a.schedule == b.schedule
    assert a.fingerprints.tolist() == b.fingerprints.tolist()
    assert (a.status, a.message, a.counters) == (b.status, b.message, b.counters)
    assert list(a.metrics) == list(b.metrics)
    for name in a.metrics:
        np.testing.assert_array_equal(a.metrics[name], b.metrics[name])


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_run_that_outlives_its_schedule_has_the_bits_of_one_that_does_not(
    name, stretches
) -> None:
    problem, algorithm = problem_for(name), EXAMPLES[name]
    cluster = aq.Cluster(workers=4, worker_std=0.5)
    request = Request(
        problem,
        algorithm,
        np.zeros(problem.dim),
        commits=100,
        seed=3,
        evaluate=7,
        stopping=NEVER,
    )
    run = aq.Simulator(cluster).minimize(request)
    assert simulator.schedule_lengths(request) == [6, 25, 100]
    made = len(stretches)
    same(run, from_zero(request, cluster))
    assert made < len(stretches) - made, "fewer commits are made again"


def test_few_commits_are_made_again_and_a_callback_hears_of_each_once(
    stretches,
) -> None:
    problem, told = aq.LinearGaussian.random(dim=5, n_data=40, seed=0), []
    cluster = aq.Cluster(workers=3, worker_std=0.1)
    request = Request(
        *(problem, aq.AsyncSGD(h=1e-3, batch=5), np.zeros(5)),
        commits=200,
        evaluate=3,
        stopping=NEVER,
        callback=lambda progress: told.append((progress.commit, progress.staleness)),
        keep=2,
    )
    run = aq.Simulator(cluster).minimize(request)
    assert simulator.schedule_lengths(request) == [12, 50, 200]
    assert len(stretches) < 220, "from zero it would be 262"
    assert [commit for commit, _ in told] == sorted({commit for commit, _ in told})
    assert run.keep is not None
    again = from_zero(replace(request, callback=None), cluster)
    assert again.keep is not None
    assert run.keep.theta.tobytes() == again.keep.theta.tobytes()
    assert run.keep.commit.tolist() == list(range(2, 201, 2))
    direct: list[tuple[int, float]] = []
    whole = aq.simulate(cluster, request.algorithm.stages, 200, 0)
    listening = replace(
        request, callback=lambda p: direct.append((p.commit, p.staleness))
    )
    run_schedule(listening, whole, engine={"kind": "simulator", "workers": 3})
    assert set(direct) <= set(told)


def test_a_worker_that_dies_or_joins_late_leads_to_the_same_run(stretches) -> None:
    problem = aq.LinearGaussian.random(dim=5, n_data=40, seed=0)
    for cluster in (
        aq.Cluster(workers=3, worker_std=0.3, deaths={1: 9.0}),
        aq.Cluster(workers=3, worker_std=0.3, joins={2: 12.0}),
    ):
        request = Request(
            *(problem, aq.AsyncSGD(h=1e-3, batch=5), np.zeros(5)),
            commits=150,
            evaluate=4,
            stopping=NEVER,
        )
        same(aq.Simulator(cluster).minimize(request), from_zero(request, cluster))
