"""What-if: another schedule with the same rows and noise, and what it shows about a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import one_sentence
from scipy import stats

import asyncqn as aq
from asyncqn.cli.main import main
from asyncqn.core.stages import ASYNCHRONOUS, Round
from asyncqn.core.streams import Stream
from asyncqn.errors import BadInput
from asyncqn.lab.blame import student

PROBLEM = aq.LinearGaussian.random(dim=6, n_data=60, seed=0)
SGD = aq.AsyncSGD(h=1e-4, batch=6)
CLUSTER = aq.Cluster(5, worker_std=0.4, message=0.1)


def simulated(
    algorithm: aq.Algorithm = SGD, commits: int = 120, **more: object
) -> aq.Run:
    return aq.minimize(
        PROBLEM,
        algorithm,
        engine=aq.Simulator(CLUSTER),
        commits=commits,
        seed=3,
        **more,
    )


def test_nothing_changed_gives_the_run_itself_and_every_answer_replays():
    run = simulated()
    again = run.what_if()
    assert again.theta.tobytes() == run.theta.tobytes()
    for other in (
        run.what_if(fresh=True),
        run.what_if(without_worker=2),
        run.what_if(workers=9),
        run.what_if(algorithm=aq.AsyncSGD(h=2e-4, batch=6)),
        run.what_if(seed=8),
    ):
        assert (
            aq.replay(other).theta.tobytes()
            == other.theta.tobytes()
            != run.theta.tobytes()
        )


def test_fresh_reads_are_those_of_the_serial_loop_over_the_same_streams():
    run = simulated()
    fresh = run.what_if(fresh=True)
    assert not fresh.schedule.staleness.any()
    np.testing.assert_array_equal(fresh.schedule.worker, run.schedule.worker)
    theta, steps = run.theta0.copy(), {}
    for worker in run.schedule.worker[run.schedule.commit > 0].tolist():
        k = steps[worker] = steps.get(worker, -1) + 1
        rows = Stream(3, worker, k).rows(60, np.empty(6, np.int64))
        g = np.empty(6)
        PROBLEM.grad(theta, rows, g)
        theta -= SGD.h * g
    np.testing.assert_allclose(fresh.theta, theta, rtol=1e-12)


@settings(max_examples=20)
@given(
    st.integers(2, 6),
    st.integers(0, 5),
    st.sampled_from([*ASYNCHRONOUS, Round(timeout=1.0, quorum=0.5)]),
    st.integers(0, 99),
)
def test_a_worker_taken_out_leaves_the_others_as_they_were(W, gone, stage, seed):
    cluster = aq.Cluster(W, worker_std=0.7, message=0.2)
    schedule = aq.simulate(cluster, stage, 30, seed)
    left = schedule.without_worker(gone)
    kept = schedule.worker != gone
    assert (left.worker != gone).all()
    np.testing.assert_array_equal(left.worker, schedule.worker[kept])
    np.testing.assert_array_equal(left.time, schedule.time[kept])
    # Commits are numbered anew in their order; a read is as many of them as were there before.
    before = np.unique(schedule.commit[kept & (schedule.commit > 0)])
    np.testing.assert_array_equal(
        left.read, np.searchsorted(before, schedule.read[kept], "right")
    )
    assert left.commits == before.size


def test_another_cluster_or_number_of_workers_is_simulated():
    run = simulated()
    slow = aq.Cluster(5, 10.0)
    assert run.what_if(cluster=slow).schedule == aq.simulate(slow, SGD.stages, 120, 3)
    assert run.what_if(workers=2).schedule.workers == 2
    with pytest.warns(aq.StabilityWarning, match="of 6 and of 12 rows the same time"):
        blocks = run.what_if(algorithm=aq.ExactLBFGS(blocks=5))
    assert blocks.status == "converged"
    assert blocks.manifest["engine"]["what_if"] == {"algorithm": "ExactLBFGS"}


def test_a_run_on_threads_is_asked_on_what_it_recorded(tmp_path: Path):
    run = aq.minimize(PROBLEM, SGD, engine=aq.Threads(2), commits=60, seed=1)
    run.save(tmp_path / "run")
    loaded = aq.load_run(tmp_path / "run")
    assert (
        loaded.what_if(fresh=True).theta.tobytes()
        == run.what_if(fresh=True).theta.tobytes()
    )
    assert loaded.what_if(workers=4).schedule.workers == 4


@pytest.mark.filterwarnings("ignore::asyncqn.errors.StabilityWarning")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"without_worker": 7}, "no worker 7"),
        ({"workers": 2, "cluster": CLUSTER}, "not both"),
        ({"seed": -1}, "seed must be"),
        ({"algorithm": aq.ExactLBFGS(blocks=5), "without_worker": 1}, "all parts"),
    ],
)
def test_an_impossible_change_is_refused_in_one_sentence(change, words):
    with pytest.raises(BadInput, match=words) as caught:
        simulated(commits=20).what_if(**change)
    assert one_sentence(caught.value)


@pytest.mark.parametrize("degrees", [1, 2, 7, 60])
def test_the_quantile_of_student_is_that_of_the_tables(degrees):
    assert student(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-5)


def test_blame_on_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    simulated(commits=40).save(tmp_path / "run")
    with pytest.raises(SystemExit) as end:
        main(["blame", str(tmp_path / "run"), "--seeds", "2", "--json", "-q"])
    told = json.loads(capfd.readouterr().out)
    assert (end.value.code, told["metric"]) == (0, "fun")
    assert [effect["what"] for effect in told["effects"]] == [
        "staleness",
        *(f"worker {w}" for w in range(5)),
    ]
    for wrong, words in (
        (["--seeds", "1"], "at least 2"),
        (["--metric", "rmse"], "no metric 'rmse'"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["blame", str(tmp_path / "run"), *wrong])
        assert end.value.code == 2
        assert words in capfd.readouterr().err


def test_blame_is_the_mean_difference_of_runs_with_equal_seeds():
    run = simulated(commits=40)
    (effect,) = aq.blame(run, seeds=3, workers=[]).effects
    seed = run.manifest["seed"]
    differences = [
        run.what_if(seed=s, fresh=True).fun - run.what_if(seed=s).fun
        for s in range(seed, seed + 3)
    ]
    assert effect.what == "staleness"
    assert effect.difference == pytest.approx(np.mean(differences))
    assert effect.low < effect.difference < effect.high


def test_blame_of_a_run_that_diverged_is_refused():
    wild = aq.AsyncSGD(h=10.0, batch=6)
    engine = aq.Simulator(CLUSTER)
    run = aq.minimize(PROBLEM, wild, engine=engine, commits=200, check=False)
    assert run.status == "diverged"
    with pytest.raises(BadInput, match="the run diverged"):
        aq.blame(run, seeds=2)
