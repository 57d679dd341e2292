"""`asyncqn recommend`: the best items for a user of a saved recommender."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as RichTable
from rich.text import Text

from asyncqn.cli.output import Json, Output, Quiet

if TYPE_CHECKING:
    from asyncqn.recommender.model import Recommendation


def register(app: typer.Typer) -> None:
    """Add the command `recommend`."""

    @app.command()
    def recommend(
        model: Annotated[Path, typer.Argument(help="Folder of a saved model.")],
        user: Annotated[str, typer.Option(help="Id of the user.")],
        n: Annotated[int, typer.Option("-n", help="How many items.")] = 10,
        include_seen: Annotated[
            bool, typer.Option("--include-seen", help="Also items that the user has rated.")
        ] = False,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """List the items a user would rate highest, with titles where the ratings had them."""
        from asyncqn.recommender.estimator import Recommender

        out = Output(json, quiet)
        loaded = Recommender.load(model)
        best = loaded.recommend(user, n, exclude_seen=not include_seen)
        if not json:
            out.show(table(best))
        known = loaded.user_ids_[loaded.model_.user_index([user])[0]].item()
        out.result({"user": known, "items": [item._asdict() for item in best]})


def table(items: list[Recommendation]) -> RichTable:
    """Recommendations as a table; titles are data, so no markup in them is obeyed."""
    drawn = RichTable("", "score", "item", "title", box=None)
    for place, item in enumerate(items, 1):
        drawn.add_row(str(place), f"{item.score:.2f}", Text(str(item.id)), Text(item.title or ""))
    return drawn
