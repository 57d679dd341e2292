"""The linear Gaussian suite: its problems, its timing, and rivals that the tuner treats alike."""

from __future__ import annotations

import numpy as np
import optuna
import pytest

from asyncqn.lab.tuning.spaces import SPACES, FixedTrial
from benchmarks.studies.linear_gaussian import suite


def cell(kind: str, spectrum: str = "flat 30-120", **changes: float) -> suite.Cell:
    return suite.Cell(algorithm=kind, spectrum=spectrum, variance=1.0, **changes)


def test_there_are_ten_spectra_and_each_problem_has_its_own():
    assert len(suite.SPECTRA) == 10
    for name in ("AR(0.9)", "three 1000 over 2-5", "power law 1000/k"):
        found = np.linalg.eigvalsh(suite.problem(name).precision)
        np.testing.assert_allclose(found, np.sort(suite.SPECTRA[name].eigenvalues()), rtol=1e-9)


def test_timing_is_the_papers_table_for_its_batches():
    expected = {"async-sgd": (10.0, 0.0), "mb-lbfgs": (10.0, 30.0), "as-lbfgs": (70.0, 0.0)}
    for kind, (mean, master) in expected.items():
        cluster = suite.cluster_of(kind, {"batch": 6}, 40, 1.0)
        assert (cluster.worker_mean, cluster.master, cluster.message) == (mean, master, 10.0)
    blocks = suite.cluster_of("block-lbfgs", {"blocks": 40}, 40, 1.0)
    assert (blocks.worker_mean, blocks.master) == (25.0, 30.0)


@pytest.mark.parametrize("kind", list(SPACES))
def test_every_point_of_a_search_space_is_a_valid_algorithm(kind):
    rival = cell(kind)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(20):
        rival.make(rival.suggest(study.ask(), 300.0))
    for point in suite.GOOD.get(kind, []):
        rival.make(rival.suggest(FixedTrial(point), 300.0))


def test_tuning_tries_the_paper_then_the_good_points_and_ranks_what_arrived():
    trials = suite.tuned(cell("async-sgd", limit=1500.0), budget=6)
    scores = [trial["score"] for trial in trials]
    assert scores == sorted(scores)
    tried = [{**trial["point"]} for trial in trials if "point" in trial]
    assert tried, "some of the good points arrive"
    assert all(point in suite.GOOD["async-sgd"] for point in tried)
    assert max(time for trial in trials for time in trial["times"]) <= 1500.0


def test_rivals_have_a_row_for_every_cell_with_their_budget(monkeypatch):
    monkeypatch.setattr(suite, "VARIANCES", (1.0,))
    monkeypatch.setattr(suite, "TEST_SEEDS", (0, 1))
    rows = suite.run_rivals("flat 30-120", budget=3)
    assert [row["kind"] for row in rows] == list(suite.RIVALS)
    assert {row["trials"] for row in rows} == {3}
    arrived = [row for row in rows if row["mean"] is not None]
    assert arrived
    assert all(row["runs"] == 2 and row["tuning_mean"] > 0 for row in arrived)


def test_block_lbfgs_reaches_epsilon_on_the_suites_easiest_and_hardest_spectrum():
    for name in ("flat 30-120", "log-uniform 2-1000"):
        settings = suite.block_settings(name, 40)
        assert settings == {"blocks": 40, "pieces": 4, "memory": 100}
        outcome = suite.time_of("block-lbfgs", settings, name, 900.0, 0, limit=4000.0)
        assert outcome.status == "reached"
