"""The study of hard posteriors judges by its rule."""

from __future__ import annotations

from benchmarks.studies.posteriors import table


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
    assert table.lines(rivals + close)[0]["line"] == "met"
    assert table.lines(rivals + far)[0]["line"] == "missed: mean"
    silent = [{**row, "warned": "False"} for row in close]
    assert "silent" in table.lines(rivals + silent)[0]["line"]
