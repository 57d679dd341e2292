"""`asyncqn recommender update MODEL RATINGS`: learn from further ratings, also of new users and items."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from asyncqn.cli import Output
from asyncqn_recommender.commands._options import (
    How,
    Model,
    Saved,
    Source,
    check_model_place,
    read,
)


def update(
    model: Model,
    data: Source,
    how: How,
    output: Output,
    out: Saved = None,
    rounds: Annotated[
        int, typer.Option(help="Number of times that items and users are solved.")
    ] = 2,
) -> None:
    """Learn from further ratings without fitting the rest again, and save the model.

    Rows of users and items with new ratings are solved exactly, in turn. A new rating of a known pair
    replaces the old one; clicks add up. After many updates, fit the model again. Without --out the model is
    saved in its own folder.
    """
    from asyncqn_recommender.estimator import Recommender

    check_model_place(out)
    loaded = Recommender.load(model)
    clicks = bool(how.get("clicks")) or loaded.feedback == "implicit"
    reading = read(data, output, how, clicks)
    users = len(loaded.user_ids_)
    items = len(loaded.item_ids_)
    # Before the update, so that the two numbers show what it gained.
    before = None if clicks else loaded.rmse(reading.ratings)
    loaded.partial_fit(reading.ratings, rounds=rounds)
    numbers: dict[str, Any] = {
        "ratings": len(reading.ratings),
        "new_users": len(loaded.user_ids_) - users,
        "new_items": len(loaded.item_ids_) - items,
        "rmse_before": before,
        "rmse_after": None if clicks else loaded.rmse(reading.ratings),
        "skipped": reading.skipped,
        "repeated": reading.repeated,
        "model": str(loaded.save(out or model)),
    }
    output.numbers(numbers)
    output.result(numbers)
