"""Saved models: the same model, or one sentence on what is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from recommender_cases import RATINGS, TRAIN, ids
from sealed import data_file

from asyncqn.errors import BadInput, DamagedFile
from asyncqn_recommender.estimator import Recommender


@pytest.fixture(scope="module")
def model() -> Recommender:
    return Recommender(rank=3, workers=2, seed=0).fit(TRAIN)


def test_a_saved_model_is_the_same_model(model: Recommender, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    again = Recommender.load(tmp_path / "m")
    users, items, _ = ids(RATINGS)
    assert (again.predict(users, items) == model.predict(users, items)).all()
    user = int(TRAIN.user_ids[3])
    assert again.recommend(user) == model.recommend(user)
    assert again.get_params() == model.get_params()
    assert (again.n_iter_, again.status_, again.fun_) == (
        model.n_iter_,
        model.status_,
        model.fun_,
    )
    assert (again.history_["loss"] == model.history_["loss"]).all()
    again.save(tmp_path / "m")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"], (
        "an older model is replaced, nothing else remains"
    )
    texts = (
        Recommender(1, workers=1)
        .fit((["ann", "bob"], ["x", "y"], [1.0, 5.0]))
        .save(tmp_path / "t")
    )
    assert Recommender.load(texts).user_ids_.tolist() == ["ann", "bob"]
    again.set_params(warm_start=True).fit(TRAIN)


def test_damaged_models_are_refused_in_one_sentence(
    model: Recommender, tmp_path: Path
) -> None:
    good = model.save(tmp_path / "good")

    def damaged(change: Any) -> None:
        folder = tmp_path / "bad"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        change(folder)
        with pytest.raises(DamagedFile) as error:
            Recommender.load(folder)
        assert "\n" not in str(error.value)

    def edit(**changes: Any) -> Any:
        def change(folder: Path) -> None:
            document = json.loads((folder / "model.json").read_text()) | changes
            (folder / "model.json").write_text(json.dumps(document))

        return change

    damaged(lambda folder: data_file(folder).unlink())
    damaged(
        lambda folder: data_file(folder).write_bytes(data_file(good).read_bytes()[:-7])
    )
    damaged(lambda folder: (folder / "model.json").write_text("{"))
    damaged(lambda folder: (folder / "model.json").write_text("[]"))
    damaged(edit(format=99))
    damaged(edit(kind="other"))
    damaged(edit(trust=0.5))
    for wrong in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match=r"no model\.json|no such folder"):
            Recommender.load(wrong)


def test_a_model_is_never_saved_over_something_else(
    model: Recommender, tmp_path: Path
) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    for place in (tmp_path, tmp_path / "letter.txt", tmp_path / "letter.txt" / "m"):
        with pytest.raises(BadInput):
            model.save(place)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]
