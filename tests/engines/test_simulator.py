"""A simulated run draws its schedule as it goes on, and continues from a checkpoint to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines.runs import assert_replays
from examples import EXAMPLES, problem_for

import asyncqn as aq
from asyncqn.core.request import Request
from asyncqn.core.stopping import Stopping
from asyncqn.resume import resume

CLUSTERS = {
    "plain": aq.Cluster(4, worker_std=0.5, message=0.2, master=0.05),
    "a worker dies": aq.Cluster(3, worker_std=0.3, deaths={1: 9.0}),
    "a worker joins": aq.Cluster(3, worker_std=0.3, joins={2: 12.0}),
    "a worker is back": aq.Cluster(
        3, worker_std=0.3, deaths={1: 9.0}, recoveries={1: 15.0}
    ),
    "a busy link": aq.Cluster(4, worker_std=0.5, message=0.2, link=0.3),
}


def same(a: aq.Run, b: aq.Run) -> None:
    assert a.theta.tobytes() == b.theta.tobytes()
    assert a.schedule == b.schedule
    assert a.fingerprints.tolist() == b.fingerprints.tolist()
    assert (a.status, a.message, a.counters) == (b.status, b.message, b.counters)
    assert list(a.metrics) == list(b.metrics)
    for name in a.metrics:
        np.testing.assert_array_equal(a.metrics[name], b.metrics[name])


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
def test_a_run_that_ends_early_has_the_beginning_of_the_schedule(
    cluster: aq.Cluster,
) -> None:
    problem = aq.LinearGaussian.random(dim=5, n_data=40, seed=0)
    method = aq.AsyncSGD(h=1e-3, batch=5)
    request = Request(
        *(problem, method, np.zeros(5)),
        commits=10**9,
        evaluate=None,
        stopping=Stopping(max_passes=20.0),
    )
    run = aq.Simulator(cluster).minimize(request)
    whole = aq.simulate(cluster, method.stages, 400, 0)
    ended = int(np.flatnonzero(run.schedule.commit)[-1]) + 1
    assert run.schedule.commits == run.nit < 400
    for name, column in run.schedule.arrays().items():
        np.testing.assert_array_equal(column[:ended], whole.arrays()[name][:ended])
    # What was under way is computed, and dropped.
    assert 0 < len(run.schedule) - ended <= cluster.workers
    assert_replays(run, problem)


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
@pytest.mark.parametrize("name", ["as-lbfgs", "mb-lbfgs timeout"])
def test_a_stopped_run_goes_on_from_its_checkpoint_to_the_same_bits(
    name: str, cluster: aq.Cluster, tmp_path: Path
) -> None:
    problem, algorithm = problem_for(name), EXAMPLES[name]
    options: dict[str, Any] = {"commits": 40, "evaluate": 5, "seed": 2}
    engine = aq.Simulator(cluster)

    def stop(progress: Any) -> None:
        if progress.commit == 15:
            raise StopIteration

    whole = aq.minimize(problem, algorithm, engine=engine, **options)
    aq.minimize(
        *(problem, algorithm),
        engine=engine,
        callback=stop,
        checkpoint=tmp_path / "c",
        checkpoint_every=4,
        **options,
    )
    same(resume(tmp_path / "c", problem=problem, algorithm=algorithm), whole)
