"""Clusters fitted to recorded runs: a known cluster is found again, within the error of what was seen."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import pytest
from oracles import one_sentence

import asyncqn as aq
from asyncqn.cluster.fit import with_workers
from asyncqn.core.request import Request
from asyncqn.core.worker import WorkerSteps
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.measured import Measured
from asyncqn.errors import BadInput

PROBLEM = aq.LinearGaussian.random(dim=4, n_data=40, seed=0)
SGD = aq.AsyncSGD(h=1e-4, batch=5)


def recorded(cluster: aq.Cluster, algorithm: aq.Algorithm, commits: int) -> aq.Run:
    """What a real engine records whose times are exactly those of the cluster: no clock is involved."""
    request = Request(
        PROBLEM, algorithm, np.zeros(4), commits=commits, evaluate=commits
    )
    core = Coordinator(request, workers=cluster.workers, engine={"kind": "test"})
    core.begin()
    times = [
        iter(cluster.compute_times(0, w, 20 * commits)) for w in range(cluster.workers)
    ]
    arrivals: list[tuple[float, int, float, object]] = []
    free = 0.0

    def send(orders, now):
        for order in orders:
            local = algorithm.init_worker(PROBLEM, request.theta0)
            task = order.task(0)
            steps = WorkerSteps(algorithm, PROBLEM, core.master.limit)
            update = steps.compute(core.master.iterate, local, task)
            spent = next(times[order.worker])
            heapq.heappush(
                arrivals, (now + cluster.message + spent, order.worker, spent, update)
            )

    for _ in range(cluster.workers):
        send(core.ask(core.join(0.0), 0.0), 0.0)
    while not core.done:
        arrival, worker, spent, update = heapq.heappop(arrivals)
        begun, version = max(arrival, free), core.version
        orders = core.deliver(worker, update, begun, spent=spent)
        free = (
            begun
            + 2 * cluster.link
            + (cluster.master if core.version > version else 0.0)
        )
        core.served(begun, free, version)
        send(orders, free)
    states = {w: algorithm.init_worker(PROBLEM, request.theta0) for w in core.members}
    return core.finish(states)


@pytest.mark.parametrize("master", [0.2, 2.0])
def test_a_known_cluster_is_found_again(master):
    W, n = 6, 3000
    cluster = aq.Cluster(W, 8.0, 2.0, message=3.0, master=master)
    fitted = aq.Cluster.from_run(recorded(cluster, SGD, n))
    # A mean of n times with deviation 2 has the error 2 / sqrt(n); four of them, and as much for the message,
    # which is what is left of a cycle.  Under a full queue (master = 2: 12 of 13 units) it has no effect.
    error = 4 * 2.0 / np.sqrt(n)
    assert fitted.workers == W
    assert fitted.times.mean == pytest.approx(8.0, abs=error)
    assert fitted.times.std == pytest.approx(2.0, rel=4 / np.sqrt(2 * n) + 0.05)
    assert fitted.master == pytest.approx(master, rel=1e-9)
    assert fitted.link == 0.0
    assert fitted.rows == 5.0
    if master == 0.2:
        assert fitted.message == pytest.approx(3.0, abs=3 * error)
    pace = [aq.simulate(c, SGD.stages, n, 7).time[-1] for c in (cluster, fitted)]
    assert pace[1] == pytest.approx(pace[0], rel=0.02)


def test_workers_have_laws_of_their_own_where_asked():
    cluster = aq.Cluster(3, (2.0, 4.0, 16.0), (0.2, 0.4, 1.6), message=1.0)
    run = recorded(cluster, SGD, 1500)
    own = aq.Cluster.from_run(run, per_worker=True)
    np.testing.assert_allclose(own.means(), [2.0, 4.0, 16.0], rtol=0.05)
    assert isinstance(aq.Cluster.from_run(run).times, aq.times.LogNormal)
    twice = aq.Cluster.from_run(run, workers=6, per_worker=True)
    np.testing.assert_array_equal(twice.means(), np.tile(own.means(), 2))


def test_a_simulated_run_knows_its_cluster():
    cluster = aq.Cluster(
        4, times=aq.times.Exponential(2.0), message=1.0, deaths={3: 50.0}
    )
    run = aq.minimize(PROBLEM, SGD, engine=aq.Simulator(cluster), commits=50)
    assert aq.Cluster.from_run(run) == cluster
    assert aq.Cluster.from_run(run, workers=2) == replace(cluster, workers=2, deaths={})
    assert with_workers(aq.Cluster(2, (1.0, 3.0)), 3).means().tolist() == [
        1.0,
        3.0,
        1.0,
    ]


def test_a_real_run_is_fitted_and_keeps_its_pace():
    run = aq.minimize(PROBLEM, SGD, engine=aq.Threads(2), commits=400)
    fitted = aq.Cluster.from_run(run)
    simulated = aq.simulate(fitted, SGD.stages, 400, 0)
    assert fitted.message == 0.0 or simulated.time[-1] == pytest.approx(
        run.time, rel=0.01
    )


def test_times_follow_the_rows_of_the_algorithm():
    per_row = aq.Cluster(1, 0.5, rows=1)
    for algorithm, rows in (
        (aq.AsyncSGD(h=1e-4, batch=8), 8),
        (aq.ExactLBFGS(blocks=2), 20 * 2),
    ):
        run = aq.minimize(
            PROBLEM, algorithm, engine=aq.Simulator(per_row), commits=3, tol=None
        )
        np.testing.assert_allclose(
            run.schedule.commit_times(), 0.5 * rows * np.arange(1, 4)
        )


def test_a_run_without_measured_times_is_refused():
    run = recorded(aq.Cluster(2, 1.0), SGD, 5)
    del run.manifest["engine"]["measured"]
    with pytest.raises(BadInput, match="no measured computation times") as caught:
        aq.Cluster.from_run(run)
    assert one_sentence(caught.value)


def test_what_is_fixed_is_told_from_what_grows_with_the_rows() -> None:
    measured = Measured()
    rng = np.random.default_rng(0)
    for share in (1 / 64, 1 / 16, 1.0):
        for _ in range(200):
            measured.computed(0, 0.3 + 5.0 * share * rng.lognormal(0.0, 0.02), share)
    found = measured.to_json()["workers"]["0"]
    assert found["fixed"] == pytest.approx(0.3, rel=0.01)
    assert found["mean"] == pytest.approx(5.0, rel=0.01)
    alike = Measured()
    for _ in range(50):
        alike.computed(0, 2.0)
    assert alike.to_json()["workers"]["0"] == {
        "computations": 50,
        "mean": 2.0,
        "log_std": pytest.approx(0.0, abs=1e-6),
    }
