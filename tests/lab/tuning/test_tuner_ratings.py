"""The tuner on ratings: time to an RMSE, timings kept in the study, points that carry over to other sets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncqn.cli.main import run_commands
from asyncqn.errors import BadInput
from asyncqn.lab.tuning.spaces import FixedTrial
from asyncqn.lab.tuning.tuner import evaluate, load_study, tune
from asyncqn.storage.serialise import to_json
from asyncqn_paper import movielens
from asyncqn_paper.movielens import Timing, size_of
from asyncqn_paper.settings import NAMES, algorithm
from asyncqn_paper.studies import TUNED, RatingsProblem, carried
from asyncqn_recommender.data import fetch

NAME = "ml-100k"
TIMES = (1e-3, 1e-5, 1e-4)


@pytest.fixture(autouse=True)
def few_ratings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """3000 ratings of 60 users and 40 films, with a pattern of rank one that can be learnt."""
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    users, films = rng.integers(1, 61, 3000), rng.integers(1, 41, 3000)
    values = np.clip(np.round(3 + np.sin(users) + np.cos(films) + 0.3 * rng.standard_normal(3000)), 1, 5)
    rows = "".join(
        f"{u},{m},{v:.1f},{k}\n" for k, (u, m, v) in enumerate(zip(users, films, values, strict=True))
    )
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + rows)
    fetch(NAME, tmp_path / "ratings.csv", skip_bad=True)
    movielens.model.cache_clear()
    yield
    movielens.model.cache_clear()


def easy(kind: str, **changes: Any) -> RatingsProblem:
    times = Timing(*TIMES)._asdict()
    problem = RatingsProblem(algorithm=kind, ratings=NAME, **times, workers=4, rmse=0.95, limit=0.5, seeds=2)
    return replace(problem, **changes)


def test_a_study_starts_with_the_paper_and_goes_on_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    short = tune(easy("async-sgd"), 3, path=path, processes=1)
    assert short.trials[0]["parameters"]["h"] == movielens.TABLE["1m"][0]
    longer = tune(easy("async-sgd"), 8, path=path, processes=1)
    assert longer.trials[:3] == short.trials
    assert load_study(path).problem == to_json(easy("async-sgd"))
    best = longer.best
    assert best is not None
    assert len(best["times"]) == 2
    assert max(best["times"]) <= 0.5


def test_a_run_that_blows_up_is_a_diverged_trial() -> None:
    problem = easy("async-sgd")
    wild = {**problem.first(), "h": 1e3 / problem.curvature()}
    trial = evaluate(problem, wild, math.inf)
    assert trial["status"] == "diverged"
    assert trial["times"] == [None]
    assert math.isfinite(trial["score"])


def test_a_goal_out_of_reach_is_too_slow_and_no_best() -> None:
    study = tune(easy("async-sgd", rmse=0.01, limit=0.05, seeds=1), 1, processes=1)
    assert study.trials[0]["status"] == "too slow"
    assert study.best is None


@pytest.mark.parametrize("kind", list(NAMES))
@pytest.mark.parametrize("rho", [None, 3.0])
def test_every_point_is_a_valid_algorithm_and_a_kept_rho_stays(kind: str, rho: float | None) -> None:
    import optuna

    problem = easy(kind, rho=rho)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(20):
        trial = study.ask()
        given = problem.suggest(trial, 300.0)
        algorithm(kind, given)
        assert "rho_share" not in trial.params or rho is None
        assert rho is None or given.get("rho", rho) == rho
        study.tell(trial, 0.0)


def test_a_point_carried_to_its_own_set_is_itself_and_else_follows_curvature_and_times() -> None:
    problem = easy("mb-lbfgs")
    point = {"rho_share": 10.0, "r": 0.5, "timeout_share": 1.5, "quorum": 0.7, "cosine_floor": 0.3}
    point["epsilon_share"] = 1e-3
    best = {"parameters": problem.suggest(FixedTrial(point), problem.curvature()), "point": point}
    document = {"best": best, "problem": to_json(problem)}
    assert carried(document, NAME, Timing(*TIMES)) == best["parameters"]
    slower = carried(document, NAME, Timing(2e-3, 1e-5, 1e-4))
    assert slower["timeout"] == 2 * best["parameters"]["timeout"]
    assert slower["h"] == best["parameters"]["h"]
    stiff = problem.suggest(FixedTrial(point), 2 * problem.curvature())
    assert math.isclose(stiff["rho"], best["parameters"]["rho"] / 2)
    assert carried({**document, "best": {"parameters": {"h": 1.0}}}, NAME, Timing(*TIMES)) == {"h": 1.0}


def test_a_set_without_a_row_in_the_paper_s_table_takes_that_of_1m() -> None:
    assert [size_of(name) for name in ("ml-1m", "synthetic-10m", "ml-100k")] == ["1m", "10m", "1m"]


@pytest.mark.parametrize("change", [{"rmse": 0.0}, {"limit": -1.0}, {"worker": 0.0}, {"rho": -1.0}])
def test_impossible_problems_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        easy("as-lbfgs", **change)


def paper(arguments: list[str]) -> None:
    """`python -m asyncqn_paper`."""
    run_commands("asyncqn_paper.commands", "python -m asyncqn_paper", arguments)


def test_the_command_states_its_timing_and_a_study_that_goes_on_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.json"
    arguments = ["tune", "as-lbfgs", "--problem", "matrix-factorization", "--ratings", NAME, "--workers", "3"]
    arguments += ["--rmse", "1.1", "--limit", "0.2", "--seeds", "1", "--processes", "1", "--json", "--quiet"]
    for budget, timing in (("1", ["--timing", "1e-3,1e-5,1e-4"]), ("2", [])):
        with pytest.raises(SystemExit) as end:
            paper([*arguments, "--budget", budget, "--output", str(path), *timing])
        assert end.value.code == 0
        printed = json.loads(capsys.readouterr().out)
        assert "--timing 0.001,1e-05,0.0001" in printed["command"]
        assert sum(printed["trials"].values()) == int(budget)


def test_without_a_timing_it_is_measured_to_three_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.json"
    arguments = ["tune", "async-sgd", "--problem", "matrix-factorization", "--ratings", NAME, "--budget", "1"]
    with pytest.raises(SystemExit) as end:
        paper(
            [
                *arguments,
                "--limit",
                "0.01",
                "--seeds",
                "1",
                "--processes",
                "1",
                "--output",
                str(path),
                "--json",
            ]
        )
    assert end.value.code == 0
    problem = RatingsProblem(**load_study(path).problem)
    assert min(problem.timing) > 0.0
    assert all(t == float(f"{t:.3g}") for t in problem.timing)
    assert problem.workers == 10


def test_a_timing_that_is_none_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        paper(["tune", "async-sgd", "--problem", "matrix-factorization", "--timing", "fast"])
    assert end.value.code == 2
    assert "--timing must be three times in seconds" in capsys.readouterr().err


STUDIES = [*(f"{kind}-matrix-factorization" for kind in NAMES), "as-lbfgs-matrix-factorization-W20"]


@pytest.mark.parametrize("name", STUDIES)
def test_the_studies_of_figures_4_and_5_had_equal_budgets_and_goals(name: str) -> None:
    document = json.loads((TUNED / f"{name}.json").read_text())
    asked = document["problem"]
    assert document["budget"] == len(document["trials"]) == 40
    assert (asked["ratings"], asked["rmse"], asked["limit"], asked["seeds"]) == ("ml-1m", 0.91, 0.5, 2)
    assert asked["workers"] == (20 if name.endswith("W20") else 10)
    assert document["best"]["status"] == "complete"
    assert "--timing" in document["command"]


@pytest.mark.parametrize("size", ["10m", "20m"])
def test_studies_of_the_larger_sets_had_six_trials_for_each_number_and_one_goal(size: str) -> None:
    goals = set()
    for kind in NAMES:
        document = json.loads((TUNED / f"{kind}-matrix-factorization-{size}.json").read_text())
        asked, best = document["problem"], document["best"]
        assert document["budget"] == len(document["trials"]) == 6 * len(best["point"])
        assert (asked["ratings"], asked["seeds"], asked["workers"]) == (f"synthetic-{size}", 1, 10)
        assert best["status"] == "complete"
        goals.add((asked["rmse"], asked["limit"]))
    assert len(goals) == 1
