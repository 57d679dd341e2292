"""The search for parameters of the paper's methods, and the studies that come with the package."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest

from asyncqn.errors import BadInput
from asyncqn_paper.settings import NAMES, algorithm
from asyncqn_paper.tuning import TUNED, goal_of, search, suggest, tuned


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("problem", ["rows-alike-8", "synthetic-demo"])
def test_every_suggestion_is_an_algorithm_with_the_papers_batches(
    kind: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path))
    goal = goal_of(kind, problem)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(10):
        parameters = suggest(study.ask(), kind, goal)
        assert parameters["batch"] == goal.printed["batch"]
        assert parameters["h"] > 0.0
        algorithm(kind, parameters)


def test_a_search_continues_from_its_file(tmp_path: Path) -> None:
    storage = tmp_path / "runs" / "tuned.db"
    for trials in (2, 4):
        study = search("async-sgd", "rows-alike-2", 2, storage, workers=4)
        assert len(study.trials) == trials
    assert study.best_trial.user_attrs["parameters"]["batch"] == 6


def test_a_method_or_a_study_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="there is no method 'sgd' to tune"):
        goal_of("sgd", "rows-alike-8")
    with pytest.raises(BadInput, match="there is no study none"):
        tuned("none")


@pytest.mark.parametrize(
    "path", sorted(TUNED.glob("*.json")), ids=lambda path: path.stem
)
def test_the_best_of_every_study_makes_an_algorithm(path: Path) -> None:
    document = json.loads(path.read_text())
    assert document["best"]["status"] == "complete"
    assert document["budget"] == len(document["trials"])
    algorithm(document["problem"]["algorithm"], tuned(path.stem))


@pytest.mark.parametrize("size", ["", "-10m", "-20m"])
def test_studies_of_ratings_had_equal_budgets_and_goals(size: str) -> None:
    goals, budgets = set(), set()
    for kind in NAMES:
        document = json.loads(
            (TUNED / f"{kind}-matrix-factorization{size}.json").read_text()
        )
        problem = document["problem"]
        goals.add(
            (
                problem["ratings"],
                problem["rmse"],
                problem["limit"],
                problem["seeds"],
                problem["workers"],
            )
        )
        # Forty trials for each method, or six for each number that was searched.
        budgets.add(
            document["budget"] / (len(document["best"]["point"]) if size else 1)
        )
    assert len(goals) == len(budgets) == 1
