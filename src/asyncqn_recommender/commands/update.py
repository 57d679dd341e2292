"""`asyncqn recommender update MODEL RATINGS`: learn from further ratings, also of new users and items."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from asyncqn.cli import Output
from asyncqn_recommender.commands._options import How, Source, read
from asyncqn_recommender.commands.fit import check_places


def update(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model.")],
    data: Source,
    how: How,
    output: Output,
    out: Annotated[
        Path | None,
        typer.Option(help="Save the model here.  [in its own folder]", metavar="DIR"),
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="Number of times that items and users are solved.")
    ] = 2,
) -> None:
    """Learn from further ratings without fitting the rest again, and save the model.

    Rows of users and items with new ratings are solved exactly, in turn. A new rating of a known pair
    replaces the old one; clicks add up. After many updates, fit the model again.
    """
    from asyncqn_recommender.estimator import Recommender

    check_places(out, None)
    loaded = Recommender.load(model)
    clicks = how.pop("clicks", False) or loaded.feedback == "implicit"
    found = read(data, output, {**how, "clicks": clicks})
    users = len(loaded.user_ids_)
    items = len(loaded.item_ids_)
    # Before the update, so that the two numbers show what it gained.
    before = None if clicks else loaded.rmse(found.ratings)
    loaded.partial_fit(found.ratings, rounds=rounds)
    numbers: dict[str, Any] = {
        "ratings": len(found.ratings),
        "new_users": len(loaded.user_ids_) - users,
        "new_items": len(loaded.item_ids_) - items,
        "rmse_before": before,
        "rmse_after": None if clicks else loaded.rmse(found.ratings),
        "skipped": found.skipped,
        "repeated": found.repeated,
        "model": str(loaded.save(out or model)),
    }
    output.numbers(numbers)
    output.result(numbers)
