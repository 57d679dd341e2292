"""Ratings of Figs. 4 and 5: the paper's parameters, and times by who pays for messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncqn.cluster.simulate import simulate
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn_paper.movielens import (
    TABLE,
    Timing,
    measure_timing,
    measured_cluster,
    parameters,
    with_timeout,
)
from asyncqn_paper.settings import EVERYONE, NAMES, NOBODY, UPDATES_ONLY, algorithm
from asyncqn_paper.studies import EVALUATIONS, RatingsProblem


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("size", list(TABLE))
@pytest.mark.parametrize("kind", list(NAMES))
def test_the_paper_s_parameters_are_valid_with_batches_of_a_hundredth(size: str, kind: str) -> None:
    given = parameters(size, 1_000_209)[kind]
    assert given["batch"] == 10_002
    algorithm(kind, given)


def test_only_rounds_get_a_timeout_from_the_measured_times() -> None:
    timing = Timing(2.0, 0.1, 0.5)
    given = parameters("1m", 1000)
    mb, sgd = given["mb-lbfgs"], given["async-sgd"]
    assert with_timeout(mb, algorithm("mb-lbfgs", mb), timing)["timeout"] == 1.2 * 2.0
    assert with_timeout(sgd, algorithm("async-sgd", sgd), timing) == sgd


@pytest.mark.parametrize(
    ("payer", "link", "message"), [(NOBODY, 0.0, 0.5), (EVERYONE, 0.25, 0.0), (UPDATES_ONLY, 0.25, 0.25)]
)
def test_an_exchange_takes_as_long_whoever_pays_for_it(payer: str, link: float, message: float) -> None:
    cluster = measured_cluster(Timing(2.0, 0.1, 0.5), 3, payer)
    assert (cluster.workers, cluster.worker_mean, cluster.master) == (3, 2.0, 0.1)
    assert (cluster.link, cluster.message) == (link, message)


def test_measured_times_are_positive_and_as_lbfgs_sends_twice_as_much(empty_cache: Path) -> None:
    given = parameters("1m", 12_000)
    sgd = measure_timing("synthetic-demo", "async-sgd", given["async-sgd"])
    langevin = measure_timing("synthetic-demo", "as-lbfgs", given["as-lbfgs"])
    assert min(*sgd, *langevin) > 0.0
    assert langevin.message == 2 * sgd.message


@pytest.mark.parametrize("message", [1e-6, 1e-3])
def test_a_study_looks_as_often_where_workers_wait_for_the_link(empty_cache: Path, message: float) -> None:
    timing = Timing(2e-3, 1e-6, message)._asdict()
    problem = RatingsProblem(algorithm="async-sgd", ratings="synthetic-demo", limit=4.0, **timing)
    commits = simulate(problem.cluster({}), ASYNCHRONOUS, 12_000, 0).commit_times().searchsorted(2.0)
    assert 2.0 * commits / problem.evaluate == pytest.approx(EVALUATIONS, rel=0.2)
