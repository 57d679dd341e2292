"""What somebody needs who comes with ratings: files as they are, names of columns, and updates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli.calls import call

from asyncqn.errors import BadInput
from asyncqn_recommender import Recommender, synthetic_ratings

RATINGS = synthetic_ratings(60, 40, 900, seed=0)


def frame_of(ratings) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "user": ratings.user_ids[ratings.users],
            "item": ratings.item_ids[ratings.items],
            "rating": ratings.values,
            "timestamp": np.arange(len(ratings)),
        }
    )


def test_columns_of_a_frame_may_have_any_names_and_are_remembered() -> None:
    frame = frame_of(RATINGS)
    odd = frame.rename(columns={"user": "reader", "item": "novel", "rating": "points"})
    plain = Recommender(2, passes=3).fit(frame.drop(columns="timestamp"))
    named = Recommender(2, passes=3).fit(
        odd, user="reader", item="novel", rating="points"
    )
    assert named.item_factors_.tobytes() == plain.item_factors_.tobytes()
    assert named.rmse(odd) == plain.rmse(frame) == named.rmse(frame)
    with pytest.raises(BadInput, match="there is no column 'stars' for the rating"):
        Recommender(2).fit(odd, user="reader", item="novel", rating="stars")
    with pytest.raises(BadInput, match="rating must be a text or None, not 3"):
        Recommender(2).fit(odd, rating=3)


def test_a_saved_model_learns_from_further_ratings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old, new = RATINGS.split(0.2, seed=1)
    Recommender(2, passes=4).fit(old).save(tmp_path / "model")
    more = frame_of(new)[["user", "item", "rating"]]
    more.loc[len(more)] = [5001, 9001, 4.0]
    more.to_csv(tmp_path / "new.csv", index=False)
    words = [
        "recommender",
        "update",
        tmp_path / "model",
        tmp_path / "new.csv",
        "--json",
        "-q",
    ]
    code, out, err = call(capfd, *words, "--out", tmp_path / "later")
    assert code == 0, err
    numbers = json.loads(out)
    assert (numbers["ratings"], numbers["new_users"], numbers["new_items"]) == (
        len(more),
        1,
        1,
    )
    assert numbers["rmse_after"] < numbers["rmse_before"]
    by_hand = Recommender.load(tmp_path / "model").partial_fit(more)
    later = Recommender.load(tmp_path / "later")
    assert later.item_factors_.tobytes() == by_hand.item_factors_.tobytes()
    assert call(capfd, *words)[0] == 0
    assert 5001 in Recommender.load(tmp_path / "model").user_ids_
    code, _, err = call(
        capfd, "recommender", "update", tmp_path / "nothing", tmp_path / "new.csv"
    )
    assert (code, err.count("\n")) == (2, 1)
