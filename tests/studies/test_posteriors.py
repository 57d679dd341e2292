"""The study of posteriors in small: right moments, warnings, what uneven workers gain, the table it fills."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import asyncqn as aq
from benchmarks.studies.posteriors import further, lockstep, long, page, table


@pytest.mark.parametrize(
    "case",
    [
        lambda: further.regression(60, 6),
        lambda: further.logistic(500, 4, draws=20_000),
        further.modes,
    ],
    ids=["regression", "logistic", "modes"],
)
def test_further_posteriors_are_drawn_right_or_told(case) -> None:
    good, line = further.judge(case(), 3000, seed=0)
    assert good, line


def test_moments_that_are_off_are_called_wrong() -> None:
    case = further.regression(60, 6)
    good, _ = further.judge(case._replace(mean=case.mean + 0.3 * case.sd), 3000, seed=0)
    assert not good


def test_the_gain_over_lockstep_follows_from_the_law_of_step_times() -> None:
    clusters = lockstep.laws()
    by_formula = {name: lockstep.predicted(cluster) for name, cluster in clusters.items()}
    assert by_formula["1 to 4, geometric, no jitter"] == pytest.approx(
        4.0 * np.mean(1.0 / np.geomspace(1.0, 4.0, 16)), rel=1e-6
    )
    assert by_formula["half of them 4, the others 1, no jitter"] == pytest.approx(2.5, rel=1e-6)
    name = "1 to 4, geometric, 50 % jitter"
    even = aq.Cluster(workers=16, worker_mean=lockstep.slowest(clusters[name]), worker_std=0.0)
    measured = lockstep.ess_per_time(clusters[name], 3000) / lockstep.ess_per_time(even, 3000)
    assert measured == pytest.approx(by_formula[name], rel=0.3)


def test_a_table_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    cell = {"posterior": "a", "method": "sample", "workers": 4, "dim": 2}
    numbers = {"mean": 0.0123456, "right": True, "z": [0.5, -1.25], "z_sd": [0.0], "ess": 812.3}
    rows = [{**cell, "seed": 0, **numbers}, {**cell, "seed": 1, "error": "ValueError: x, y"}]
    for row in rows:
        table.append(row, path)
    first, second = table.read(path)
    assert table.key(first) == ("a", "sample", 4, 0)
    assert (first["mean"], first["right"], first["z"], first["ess"]) == (0.01235, 1, [0.5, -1.25], 812.3)
    assert second["error"] == "ValueError: x, y"
    assert table.read(tmp_path / "none.csv") == []


def test_the_page_is_that_of_the_committed_table() -> None:
    template = (Path(page.__file__).with_name("page.txt")).read_text(encoding="utf-8")
    text = page.page(page.Results(table.read()), template)
    assert page.PAGE.read_text(encoding="utf-8") == text
    keys = [table.key(row) for row in table.read()]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", ["scaled", "rotated", "walk"])
def test_the_moments_of_long_posteriors_are_those_of_their_precision(name: str) -> None:
    problem, mean, sd = long.LONG[name](40)
    at_zero = problem.function(np.zeros(40))[1]
    precision = np.array([problem.function(e)[1] - at_zero for e in np.eye(40)])
    np.testing.assert_allclose(precision, precision.T, atol=1e-10 * np.abs(precision).max())
    np.testing.assert_allclose(np.sqrt(np.diag(np.linalg.inv(precision))), sd, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.solve(precision, -at_zero), mean, atol=1e-9)


def test_the_long_logistic_posterior_is_a_product_of_its_groups() -> None:
    problem, mean, sd = long.logistic(40)
    theta = np.random.default_rng(0).standard_normal(40)
    slopes = [
        (problem.function(theta + e)[0] - problem.function(theta - e)[0]) / 2e-5 for e in 1e-5 * np.eye(40)
    ]
    np.testing.assert_allclose(problem.function(theta)[1], slopes, atol=1e-5)
    assert (mean[:20] == mean[20:]).all()
    assert (sd[:20] == sd[20:]).all()
    moved = theta + np.eye(40)[3]
    change = problem.function(moved)[1] - problem.function(theta)[1]
    assert (change[10:] == 0.0).all()
    assert change[:10].any()


def test_a_rival_gets_the_best_of_its_steps() -> None:
    pytest.importorskip("jax")
    from benchmarks.studies.posteriors import rivals
    from benchmarks.studies.posteriors.compare import moments
    from benchmarks.studies.posteriors.density import Density, normal, numbered
    from benchmarks.studies.posteriors.rows import Case

    draws = np.random.default_rng(0).standard_normal((4, 2000, 2))
    density = Density(2, lambda t: normal(t, 0.0, 1.0), lambda t: numbered("x", t))
    case = Case(density, ["x[1]", "x[2]"], moments(list(draws)))
    row = rivals.METHODS["sgld"](case, 4, 3000, 0)
    assert row["step"] in rivals.STEPS["sgld"]
    others = [rivals._run(case, "sgld", 4, 3000, 0, h) for h in rivals.STEPS["sgld"]]
    assert any(other is not None and other["mean"] == row["mean"] for other in others)
    assert 0.5 < row["sd"] < 2.0


def test_scores_of_a_normal_pass_and_shifted_ones_fail() -> None:
    z = np.random.default_rng(0).standard_normal(500)
    assert page.kolmogorov_smirnov(list(z))[1] > 0.05
    assert page.kolmogorov_smirnov(list(z + 0.3))[1] < 0.001
