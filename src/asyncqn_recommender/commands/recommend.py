"""`asyncqn recommender recommend`: list the best items for users of a saved recommender."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from asyncqn.cli import Output
from asyncqn.errors import require
from asyncqn_recommender.commands._options import (
    Model,
    check_table_place,
    write_table,
)

if TYPE_CHECKING:
    from asyncqn_recommender.estimator import Recommender
    from asyncqn_recommender.model import Recommendation


def recommend(
    model: Model,
    output: Output,
    user: Annotated[
        list[str] | None, typer.Option(help="Id of a user; may be repeated.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All users of the model; needs --out.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write a table here, .csv or .parquet.", metavar="FILE"),
    ] = None,
    n: Annotated[int, typer.Option("-n", help="Number of items.")] = 10,
    include_seen: Annotated[
        bool,
        typer.Option("--include-seen", help="Include items that the user has rated."),
    ] = False,
) -> None:
    """List the items users would rate highest, with titles where the ratings had them."""
    from asyncqn_recommender.estimator import Recommender

    require(
        all_ != bool(user),
        "name the users: give either --user ID, which may be repeated, or --all.",
    )
    require(
        not all_ or out is not None,
        "--all needs a file: --out FILE.csv or FILE.parquet.",
    )
    if out is not None:
        check_table_place(out)
    loaded = Recommender.load(model)
    if out is None:
        lists = []
        for name in user or ():
            best = loaded.recommend(name, n, exclude_seen=not include_seen)
            lists.append(show_user(loaded, name, best, output))
        output.result({"users": lists} | (lists[0] if len(lists) == 1 else {}))
        return
    # Written as one table, so that a file is complete or not there.
    total = len(user or loaded.user_ids_)
    with output.progress("recommend", total) as advance:
        table = loaded.recommend_many(
            user, n, exclude_seen=not include_seen, progress=advance
        )
    write_table(out, table)
    # The first item of each list, so that every user counts once.
    baseline = int(((table["rank"] == 1) & (table["basis"] == "baseline")).sum())
    output.show(
        f"users: {total:,}, rows: {table.rows:,}, in {out}; without ratings, with the "
        f"baseline: {baseline:,}"
    )
    counts = {"users": total, "rows": table.rows, "baseline_users": baseline}
    output.result({"file": str(out), **counts})


def show_user(
    loaded: Recommender, name: str, best: list[Recommendation], output: Output
) -> dict[str, Any]:
    """Print the list of one user, and return it as plain data."""
    # The command line gives texts; the model may have integers as ids.
    place = int(loaded.model_.user_index([name])[0])
    user = name if place < 0 else loaded.user_ids_[place].item()
    basis = best[0].basis if best else "factors"
    if basis == "baseline":
        mean = "means" if loaded.feedback == "explicit" else "numbers of clicks"
        output.say(
            f"the model has no rating of user {name}: these are the items with the "
            f"highest {mean}"
        )
    show_items(f"user {user}", best, output)
    return {"user": user, "basis": basis, "items": [item._asdict() for item in best]}


def show_items(title: str, items: list[Recommendation], output: Output) -> None:
    """Print recommendations as a table."""
    output.show(title)
    table = RichTable("", "score", "item", "title", box=None)
    for place, item in enumerate(items, 1):
        table.add_row(str(place), f"{item.score:.2f}", str(item.id), item.title or "")
    output.show(table)
