"""The study of posteriors in small: the table it fills, its summary, a rival."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.studies.posteriors import hard_table, summary, table


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


def test_the_table_of_hard_posteriors_judges_by_its_rule() -> None:
    """A method that is worse than its rival by more than two standard errors misses the line."""

    def rows(method: str, errors: list[float]) -> list[dict[str, str]]:
        return [
            {"target": "t", "method": method, "seed": str(seed), "mean": str(error),
             "sd": "0.1", "ess": "100", "warned": "True", "error": ""}
            for seed, error in enumerate(errors)
        ]  # fmt: skip

    rivals = rows("nuts", [0.2, 0.3, 0.4]) + rows("gist", [0.9, 0.9, 0.9])
    close, far = rows("sample", [0.4, 0.4, 0.4]), rows("sample", [0.5, 0.5, 0.5])
    assert hard_table.lines(rivals + close)[0]["line"] == "met"
    assert hard_table.lines(rivals + far)[0]["line"] == "missed: mean"
    silent = [{**row, "warned": "False"} for row in close]
    assert "silent" in hard_table.lines(rivals + silent)[0]["line"]


def test_scores_of_a_normal_pass_and_shifted_ones_fail() -> None:
    z = np.random.default_rng(0).standard_normal(500)
    assert summary.kolmogorov_smirnov(list(z))[1] > 0.05
    assert summary.kolmogorov_smirnov(list(z + 0.3))[1] < 0.001
