"""From specification to report: tables, figures drawn from them, verdicts, pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncqn.cli.main import main
from asyncqn.errors import BadInput
from asyncqn_paper.catalogue import MODULES, find
from asyncqn_paper.claims import HOLDS, Outcome, outcome
from asyncqn_paper.drawing import panels, shaded, spread
from asyncqn_paper.experiment import Context, Experiment
from asyncqn_paper.page import write_page
from asyncqn_paper.report import write_html
from asyncqn_paper.reproduce import (
    folder_of,
    load_result,
    load_results,
    publish,
    published,
    run_experiment,
)
from asyncqn_paper.theory import slope


def compute(context: Context) -> dict[str, Any]:
    points = [{"x": x, "y": float(x * x)} for x in range(4)]
    return {"points": points, "parameters": [{"setting": "a | b", "found by": "<hand>"}]}


def tiny() -> Experiment:
    def draw(tables: dict[str, Any]) -> dict[str, Any]:
        figure, axes = panels(1, 1)
        axes[0][0].plot([r["x"] for r in tables["points"]], [r["y"] for r in tables["points"]])
        return {"tiny": figure}

    def outcomes(tables: dict[str, Any]) -> list[Outcome]:
        rising = all(a["y"] <= b["y"] for a, b in zip(tables["points"], tables["points"][1:], strict=False))
        return [outcome("fig2-mb", "squares | <here>", rising, "9 > 4 > 1")]

    def headline(tables: dict[str, Any]) -> list[str]:
        return ["Squares & co."]

    return Experiment("tiny", "A tiny one", "For the test.", compute, draw, outcomes, headline=headline)


def test_bands_are_percentiles_or_three_standard_deviations(tmp_path: Path) -> None:
    values = np.arange(11.0)
    assert spread(values) == (1.0, 9.0)
    with shaded("sigma"):
        low, high = spread(values)
    assert (low, high) == pytest.approx((5.0 - 3.0 * values.std(), 5.0 + 3.0 * values.std()))
    assert spread(values) == (1.0, 9.0)
    result = run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny", "sigma")
    assert "Bands here: three standard deviations" in result.about


def test_unknown_bands_are_refused_in_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["reproduce", "order", "--bands", "wide", "--output", str(tmp_path / "out")])
    assert "--bands must be percentiles or sigma" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_experiment_leaves_tables_figures_and_its_manifest(tmp_path: Path) -> None:
    result = run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny")
    names = {path.name for path in (tmp_path / "tiny").iterdir()}
    assert {"points.parquet", "points.csv", "tiny.png", "tiny.svg", "experiment.json"} <= names
    assert result.outcomes[0].verdict == HOLDS
    assert result.manifest["command"] == "asyncqn reproduce tiny"
    assert {"asyncqn", "numpy", "python"} <= set(result.manifest["versions"])
    assert load_results(tmp_path, ["tiny", "absent"]) == [load_result(tmp_path / "tiny")]
    with pytest.raises(BadInput, match="no finished experiment"):
        load_result(tmp_path / "absent")


def test_a_full_run_is_shown_where_there_is_one(tmp_path: Path) -> None:
    for full, shown in ((False, "quick"), (True, "full")):
        context = Context(folder_of(tmp_path, "tiny", full), full=full)
        run_experiment(tiny(), context, "asyncqn reproduce tiny")
        assert load_results(tmp_path, ["tiny"])[0].manifest["size"] == shown


def test_the_report_needs_nothing_outside_itself_and_escapes_what_it_shows(tmp_path: Path) -> None:
    result = run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny")
    write_html([result], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"""(?:src|href)=['"](?!data:|#)""", text) == []
    assert "squares | &lt;here&gt;" in text
    assert "&lt;hand&gt;" in text
    assert text.index("Squares &amp; co.") < text.index("<h2>Claims")
    assert "holds: 1;" in text


def test_the_page_has_one_row_per_claim_with_bars_escaped(tmp_path: Path) -> None:
    result = run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny")
    write_page([result], tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert (
        text.count("mb-L-BFGS gets slower as σ_w² grows | Fig. 2 | ![green](figures/green.svg) **holds** |")
        == 1
    )
    settings = (tmp_path / "sensitivity.md").read_text(encoding="utf-8")
    assert r"- holds with squares \| <here>: 9 > 4 > 1." in settings
    assert "fig2-mb,holds,squares | <here>,9 > 4 > 1," in (tmp_path / "sensitivity.csv").read_text("utf-8")
    assert (tmp_path / "figures" / "tiny.png").read_bytes() == (tmp_path / "tiny" / "tiny.png").read_bytes()


def test_every_experiment_of_the_catalogue_has_the_name_it_is_called_by() -> None:
    assert [experiment.name for experiment in find(["all"])] == list(MODULES)
    with pytest.raises(BadInput, match="there is no experiment 'fig9'"):
        find(["fig9"])


def test_missing_tuned_parameters_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="make it with python -m asyncqn_paper tune"):
        Context(tmp_path, tuned_from=tmp_path).tuned("as-lbfgs-linear-gaussian")


def test_a_slope_is_exact_on_a_power_law_and_its_error_vanishes_there() -> None:
    x = np.geomspace(1, 100, 9)
    b, error = slope(x, 3.0 * x**-0.5)
    # Rounding of logarithms and of nine products: some units of the last place.
    assert abs(b + 0.5) < 1e-14
    assert error < 1e-14


def test_an_unknown_experiment_is_one_sentence_on_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "fig9"])
    assert end.value.code == 2
    assert "there is no experiment 'fig9'" in capsys.readouterr().err


def test_a_page_is_made_of_published_tables_alone(tmp_path: Path) -> None:
    result = run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny")
    publish(result, tmp_path / "tables")
    assert {path.name for path in (tmp_path / "tables" / "tiny").iterdir()} == {
        "points.parquet", "parameters.parquet", "tables.json"}  # fmt: skip
    again = published([tiny()], tmp_path / "tables", tmp_path / "scratch")
    assert (again[0].outcomes, again[0].manifest) == (result.outcomes, result.manifest)
    drawn = [(folder / "tiny.png").read_bytes() for folder in (again[0].folder, result.folder)]
    assert drawn[0] == drawn[1]


def test_results_are_plain_json(tmp_path: Path) -> None:
    run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny")
    document = json.loads((tmp_path / "tiny" / "experiment.json").read_text(encoding="utf-8"))
    assert document["tables"] == ["points", "parameters"]
