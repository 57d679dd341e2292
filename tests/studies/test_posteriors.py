"""The study of posteriors in small: the table it fills, its summary, a rival."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies.posteriors import summary, table


def test_a_table_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    cell = {"posterior": "a", "method": "sample", "workers": 4, "dim": 2}
    numbers = {
        "mean": 0.0123456,
        "right": True,
        "z": [0.5, -1.25],
        "z_sd": [0.0],
        "ess": 812.3,
    }
    rows = [
        {**cell, "seed": 0, **numbers},
        {**cell, "seed": 1, "error": "ValueError: x, y"},
    ]
    for row in rows:
        table.append(row, path)
    first, second = table.read(path)
    assert table.key(first) == ("a", "sample", 4, 0)
    assert (first["mean"], first["right"], first["z"], first["ess"]) == (
        0.01235,
        1,
        [0.5, -1.25],
        812.3,
    )
    assert second["error"] == "ValueError: x, y"
    assert table.read(tmp_path / "none.csv") == []


def test_the_summary_is_made_of_the_committed_table() -> None:
    rows = table.read()
    assert len({table.key(row) for row in rows}) == len(rows)
    finished = [row for row in rows if not row["error"]]
    lines = summary.by_method(finished)
    assert len({line["method"] for line in lines}) == len(lines) == len(summary.METHODS)
    assert summary.markdown(lines).count("\n") == len(lines) + 1
    assert all(
        line["`aq.sample` within the margins"]
        for line in summary.by_posterior(finished)
    )


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
    assert summary.kolmogorov_smirnov(list(z))[1] > 0.05
    assert summary.kolmogorov_smirnov(list(z + 0.3))[1] < 0.001
