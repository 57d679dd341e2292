"""`asyncqn recommender similar`: list the items most similar to an item of a saved recommender."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncqn.cli import Output
from asyncqn_recommender.commands._options import Model
from asyncqn_recommender.commands.recommend import show_items


def similar(
    model: Model,
    item: Annotated[list[str], typer.Option(help="Id of an item; may be repeated.")],
    out: Output,
    n: Annotated[int, typer.Option("-n", help="Number of items.")] = 10,
) -> None:
    """List the items whose predicted ratings correlate best with those of an item."""
    from asyncqn_recommender.estimator import Recommender

    loaded = Recommender.load(model)
    lists = []
    for name in item:
        best = loaded.similar(name, n)
        known = loaded.item_ids_[loaded.model_.item_index([name])[0]].item()
        show_items(f"item {known}", best, out)
        lists.append({"item": known, "items": [other._asdict() for other in best]})
    out.result({"similar": lists} | (lists[0] if len(lists) == 1 else {}))
