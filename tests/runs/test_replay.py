"""A recorded run equals its replay, bitwise: every algorithm, every kind of simulated cluster."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from examples import EXAMPLES, problem_for
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Quadratic, one_sentence, thetas_of

from asyncqn import (
    ASLBFGS,
    MBLBFGS,
    SGD,
    SGLD,
    AsyncSGD,
    Cluster,
    LinearGaussian,
    Simulator,
    minimize,
)
from asyncqn.errors import BadInput, ReplayMismatch
from asyncqn.runs.archive import load_run
from asyncqn.runs.replay import first_difference, replay

CLUSTERS = {
    "equal": Cluster(5, 2.0, 1.0),
    "busy master": Cluster(8, 2.0, 1.0, 0.3, 0.9),
    "unequal": Cluster(4, [1.0, 2.0, 8.0, 0.5], [0.1, 3.0, 1.0, 0.5], 0.2, 0.05),
    "coming and going": Cluster(
        6,
        2.0,
        1.5,
        0.2,
        0.05,
        deaths={0: 20.0, 5: 3.0},
        joins={2: 11.0, 3: 25.0, 4: 1.0},
        recoveries={0: 30.0},
    ),
    "busy link": Cluster(4, 2.0, 0.5, 0.2, 0.05, link=0.3),
    "all gone": Cluster(3, 2.0, 1.0, deaths={0: 20.0, 1: 25.0, 2: 30.0}),
}


def make_problem(dtype=np.float64):
    return LinearGaussian.random(
        10, 60, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0), dtype=dtype
    )


def assert_identical(a, b):
    assert first_difference(a, b) is None
    assert a.theta.tobytes() == b.theta.tobytes()
    assert a.theta.dtype == b.theta.dtype
    assert a.fingerprints.tobytes() == b.fingerprints.tobytes()
    assert a.counters == b.counters
    assert a.schedule == b.schedule
    assert a.metrics.columns == b.metrics.columns
    for name in a.metrics:
        assert a.metrics[name].tobytes() == b.metrics[name].tobytes(), name
    assert a.fun == b.fun


def assert_saved_and_replayed(run, problem, folder):
    """In memory, and from disk: rebuilt there where the problem says how."""
    assert_identical(run, replay(run))
    run.save(folder)
    given = problem if problem.reference() is None else None
    assert_identical(run, load_run(folder, problem=given))
    assert_identical(run, replay(folder, given))


@pytest.mark.parametrize(
    ("cluster", "dtype"),
    [*((cluster, np.float64) for cluster in CLUSTERS), ("unequal", np.float32)],
)
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_a_run_equals_its_replay_bitwise(name, cluster, dtype, tmp_path):
    problem = problem_for(name, dtype)
    run = minimize(
        problem, EXAMPLES[name], engine=Simulator(CLUSTERS[cluster]), commits=60, seed=5
    )
    assert run.schedule.commits == 60 or run.status != "completed"
    assert run.theta.dtype == dtype
    assert_saved_and_replayed(run, problem, tmp_path / "run")


@settings(max_examples=30)
@given(
    st.sampled_from(list(EXAMPLES)),
    st.sampled_from(sorted(CLUSTERS)),
    st.integers(0, 30),
    st.integers(1, 7),
    st.integers(0, 99),
)
def test_a_run_stopped_by_its_callback_equals_its_replay_bitwise(
    algorithm, cluster, stop, every, seed
):
    def callback(progress):
        if progress.commit >= stop:
            raise StopIteration

    run = minimize(
        problem_for(algorithm),
        EXAMPLES[algorithm],
        engine=Simulator(CLUSTERS[cluster]),
        commits=60,
        seed=seed,
        callback=callback,
        evaluate=every,
    )
    if run.message.startswith("the callback"):
        evaluated = math.ceil(stop / every) * every
        first = (
            stop if run.manifest["exact"] else evaluated
        )  # exact methods know U between two evaluations
        assert run.status == "stopped"
        assert first <= run.schedule.commits <= evaluated or cluster == "all gone"
    assert_identical(run, replay(run))


@pytest.mark.parametrize(
    "algorithm",
    [
        ASLBFGS(0.5, 0.05, 1e3, 3, 12, 4),
        AsyncSGD(0.5, 6),
        SGD(0.5, 6),
        SGLD(0.5, 1.0, 6),
        MBLBFGS(1e3, 3, 12, 4, timeout=1.0, quorum=0.2, initial_scale=1.0),
    ],
    ids=lambda a: type(a).__name__,
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_diverged_run_equals_its_replay_bitwise(algorithm, dtype, tmp_path):
    engine = Simulator(CLUSTERS["coming and going"])
    run = minimize(make_problem(dtype), algorithm, engine=engine, commits=3000, seed=5)
    assert run.status == "diverged"
    assert np.isfinite(run.theta).all()
    again = replay(run)
    assert_identical(run, again)
    assert (again.status, again.message) == (run.status, run.message)
    assert_identical(run, replay(run.save(tmp_path / "run")))


def mismatch(run, **changes):
    with pytest.raises(ReplayMismatch, match="first differs at commit") as caught:
        replay(run, **changes)
    assert one_sentence(caught.value)
    return int(str(caught.value).split("at commit ")[1].split(" ")[0])


def short_run(commits=40):
    return minimize(
        make_problem(),
        EXAMPLES["async-sgd"],
        engine=Simulator(CLUSTERS["equal"]),
        commits=commits,
        seed=5,
    )


def first_differing_theta(a, b):
    return next(n for n in range(len(a)) if a[n].tobytes() != b[n].tobytes())


@pytest.mark.parametrize("name", ["as-lbfgs", "async-sgd", "mb-lbfgs timeout"])
def test_a_replay_with_one_changed_number_names_the_first_commit_that_differs(name):
    p = make_problem()
    engine = Simulator(CLUSTERS["equal"])
    run, thetas = thetas_of(p, EXAMPLES[name], engine, 200, seed=5)
    y = p.y.copy()
    y[17] = np.nextafter(y[17], np.inf) + 1e-9
    changed = LinearGaussian(p.A, y, 2.0)
    _, others = thetas_of(
        changed, EXAMPLES[name], engine, 200, seed=5, theta0=run.theta0
    )
    expected = first_differing_theta(thetas, others)
    assert expected > 1 or name.startswith("mb"), (
        "the changed row is not in the very first subsample"
    )
    assert mismatch(run, problem=changed) == expected


def test_a_recorded_bit_that_flipped_is_found_at_its_commit():
    run = short_run()
    fingerprints = run.fingerprints.copy()
    fingerprints[22] ^= 1
    assert mismatch(replace(run, fingerprints=fingerprints)) == 23
    theta = run.theta.copy()
    theta.view(np.uint8)[0] ^= 1
    assert mismatch(replace(run, theta=theta)) == 40
    assert mismatch(replace(run, fingerprints=run.fingerprints[:-1])) == 40


def test_a_mismatch_names_versions_that_changed():
    run = short_run(9)
    other = make_problem()
    changed = LinearGaussian(other.A, other.y + 1.0, 2.0)
    unknown = {name: entry for name, entry in run.manifest.items() if name != "data"}
    with pytest.raises(
        ReplayMismatch, match=r"since the recording the problem differs"
    ):
        replay(replace(run, manifest=unknown), problem=changed)
    old = {**unknown, "versions": {**run.manifest["versions"], "numpy": "1.0"}}
    with pytest.raises(ReplayMismatch, match=r"since the recording numpy 1\.0 is now"):
        replay(replace(run, manifest=old), problem=changed)


def refused(words, run, **given):
    with pytest.raises(BadInput, match=words) as caught:
        replay(run, **given)
    assert one_sentence(caught.value)


def test_what_cannot_be_rebuilt_must_be_given(tmp_path):
    class Mine(AsyncSGD):
        pass

    p = Quadratic.random()
    run = minimize(p, Mine(1e-3, 4), engine=Simulator(Cluster(2)), commits=20, seed=0)
    folder = run.save(tmp_path / "run")
    refused(r"how to rebuild its problem \(Quadratic\)", folder)
    refused(r"algorithm \(Mine\) is not one of asyncqn's", folder, problem=p)
    assert_identical(run, replay(folder, problem=p, algorithm=Mine(1e-3, 4)))
