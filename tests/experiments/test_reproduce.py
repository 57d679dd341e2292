"""From specification to report: tables, figures drawn from them, verdicts, pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncqn.cli import main
from asyncqn.errors import BadInput
from asyncqn.experiments import fig2, fig3, fig5
from asyncqn.experiments.catalogue import MODULES, find
from asyncqn.experiments.drawing import panels
from asyncqn.experiments.experiment import FAILS, HOLDS, PARTLY, UNTESTABLE, Claim, Context, Experiment, judge
from asyncqn.experiments.report import write_html, write_page
from asyncqn.experiments.reproduce import load_result, load_results, run_experiment
from asyncqn.experiments.theory import slope


def tiny() -> Experiment:
    def draw(tables: dict[str, Any]) -> dict[str, Any]:
        figure, axes = panels(1, 1)
        axes[0][0].plot([r["x"] for r in tables["points"]], [r["y"] for r in tables["points"]])
        return {"tiny": figure}

    def compute(context: Context) -> dict[str, Any]:
        points = [{"x": x, "y": float(x * x)} for x in range(4)]
        return {"points": points, "parameters": [{"setting": "a | b", "found by": "<hand>"}]}

    def claims(tables: dict[str, Any]) -> list[Claim]:
        rising = all(a["y"] <= b["y"] for a, b in zip(tables["points"], tables["points"][1:], strict=False))
        return [Claim("y rises <with> x", "squares | here", judge(rising), "9 > 4 > 1")]

    return Experiment("tiny", "A tiny one", "For the test.", compute, draw, claims)


def test_an_experiment_leaves_tables_figures_and_its_manifest(tmp_path: Path) -> None:
    result = run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny")
    names = {path.name for path in (tmp_path / "tiny").iterdir()}
    assert {"points.parquet", "points.csv", "tiny.png", "tiny.svg", "experiment.json"} <= names
    assert result.claims[0].verdict == HOLDS
    assert result.manifest["command"] == "asyncqn reproduce tiny"
    assert {"asyncqn", "numpy", "python"} <= set(result.manifest["versions"])
    assert load_results(tmp_path, ["tiny", "absent"]) == [load_result(tmp_path / "tiny")]
    with pytest.raises(BadInput, match="no finished experiment"):
        load_result(tmp_path / "absent")


def test_the_report_needs_nothing_outside_itself_and_escapes_what_it_shows(tmp_path: Path) -> None:
    result = run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny")
    write_html([result], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"""(?:src|href)=['"](?!data:)""", text) == []
    assert "y rises &lt;with&gt; x" in text
    assert "&lt;hand&gt;" in text
    assert "1 statements were checked: 1 holds." in text


def test_the_page_has_one_row_per_claim_with_bars_escaped(tmp_path: Path) -> None:
    result = run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny")
    write_page([result], tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert r"| y rises <with> x | squares \| here | **holds** | 9 > 4 > 1 |" in text


def test_every_experiment_of_the_catalogue_has_the_name_it_is_called_by() -> None:
    assert [experiment.name for experiment in find(["all"])] == list(MODULES)
    with pytest.raises(BadInput, match="there is no experiment 'fig9'"):
        find(["fig9"])


def test_missing_tuned_parameters_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="make them with asyncqn tune"):
        Context(tmp_path, tuned_from=tmp_path).tuned("as-lbfgs-linear-gaussian")


def times(setting: str, kind: str, values: list[float | None]) -> list[dict[str, Any]]:
    return [
        {"setting": setting, "algorithm": kind, "variance": v, "time": t}
        for v, t in zip(fig2.VARIANCES, values, strict=True)
        for _ in range(2)
    ]


def test_the_paper_s_picture_makes_every_claim_of_figure_2_hold() -> None:
    flat, rising = [100.0] * 8, list(np.linspace(110.0, 200.0, 8))
    tables = {
        "times": [
            row
            for setting in fig2.SETTINGS
            for kind, curve in (("async-sgd", [300.0] * 8), ("mb-lbfgs", rising), ("as-lbfgs", flat))
            for row in times(setting, kind, curve)
        ],
        "quorum": [
            {"quorum": 1.0, "variance": v, "time": t} for v, t in zip(fig2.VARIANCES, rising, strict=True)
        ],
    }
    assert {claim.verdict for claim in fig2.claims(tables)} == {HOLDS}


def test_a_curve_that_was_never_reached_is_not_testable_and_no_winner() -> None:
    tables = {
        "times": [
            row
            for setting in fig2.SETTINGS
            for kind, curve in (
                ("async-sgd", [None] * 8),
                ("mb-lbfgs", [50.0] * 8),
                ("as-lbfgs", [100.0] * 8),
            )
            for row in times(setting, kind, curve)
        ],
        "quorum": [{"quorum": 1.0, "variance": v, "time": None} for v in fig2.VARIANCES],
    }
    found = fig2.claims(tables)
    verdicts = {claim.text.split(" (")[0]: claim.verdict for claim in found}
    assert verdicts["a-SGD is slower than both quasi-Newton methods when the workers are alike"] == UNTESTABLE
    assert verdicts["as-L-BFGS is the fastest of the three"] == FAILS
    assert verdicts["both asynchronous methods are robust against σ_w²"] == PARTLY


def test_the_fastest_step_is_chosen_among_those_that_always_arrive() -> None:
    grid = [
        {"rate": 1.0, "friction": 0.3, "time": 50.0},
        {"rate": 1.0, "friction": 0.3, "time": None},
        {"rate": 2.0, "friction": 0.3, "time": 80.0},
        {"rate": 2.0, "friction": 0.3, "time": 90.0},
    ]
    assert fig3._fastest(grid) == (2.0, 0.3)
    assert fig3._fastest(grid[:2]) is None


def test_the_reach_of_a_run_is_the_first_row_at_the_target() -> None:
    curve = [
        {
            "role": "paper",
            "workers": 2,
            "h": 1.0,
            "gamma": 0.1,
            "commit": c,
            "time": c / 2,
            "rmse": r,
            "grad_norm": g,
        }
        for c, r, g in ((0, 1.1, 9.0), (25, 0.95, 8.0), (50, 0.93, 7.0), (75, 0.94, 8.0))
    ]
    row = fig5._reach(curve)[0]
    assert (row["commits"], row["time"], row["last rmse"], row["rises"]) == (50, 25.0, 0.94, 1.0)


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


def test_the_generated_page_agrees_with_the_catalogue() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reproduction.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in MODULES if f"\n## {name}: " not in text] == []
    counted = sum(
        int(n) for n in re.findall(r"(\d+) (?:holds partly|holds|does not hold|not testable)", text[:1000])
    )
    assert counted == text.count("| **")


def test_results_are_plain_json(tmp_path: Path) -> None:
    run_experiment(tiny(), Context(tmp_path / "tiny"), "asyncqn reproduce tiny")
    document = json.loads((tmp_path / "tiny" / "experiment.json").read_text(encoding="utf-8"))
    assert document["tables"] == ["points", "parameters"]
