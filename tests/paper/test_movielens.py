"""Ratings of Figs. 4 and 5: the real set where it is stored, else the synthetic one, labelled as such."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncqn.cluster.simulate import simulate
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn_paper.movielens import (
    TABLE,
    Timing,
    label,
    measure_timing,
    measured_cluster,
    parameters,
    source,
    with_timeout,
)
from asyncqn_paper.settings import NAMES, algorithm
from asyncqn_paper.studies import EVALUATIONS, RatingsProblem
from asyncqn_recommender.data import fetch


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path))
    return tmp_path


def test_without_movielens_the_synthetic_set_is_used_and_called_synthetic(empty_cache: Path) -> None:
    assert source("1m") == "synthetic-1m"
    assert label(source("1m")) == "synthetic ratings of the 1M shape"


def test_a_stored_movielens_set_is_preferred(empty_cache: Path) -> None:
    archive = empty_cache / "ratings.csv"
    archive.write_text("userId,movieId,rating,timestamp\n1,1,4.0,0\n1,2,3.0,0\n2,1,5.0,0\n")
    fetch("ml-1m", archive)
    assert source("1m") == "ml-1m"
    assert label("ml-1m") == "MovieLens 1M"


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
    cluster = measured_cluster(timing, 3, link=False)
    assert (cluster.workers, cluster.worker_mean) == (3, (2.0, 2.0, 2.0))
    assert (cluster.message, cluster.master) == (0.5, 0.1)


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
