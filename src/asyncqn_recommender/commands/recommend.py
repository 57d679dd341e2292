"""`asyncqn recommender recommend`: list the best items for users of a saved recommender."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from asyncqn.cli import Output
from asyncqn.errors import require

if TYPE_CHECKING:
    from asyncqn_recommender.estimator import Recommender
    from asyncqn_recommender.model import Recommendation


def recommend(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model.")],
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
        all_ or bool(user),
        "name the users: give --user ID, which may be repeated, or --all.",
    )
    require(not (all_ and user), "--all and --user exclude each other: leave one out.")
    require(
        not all_ or out is not None,
        "--all needs a file: --out FILE.csv or FILE.parquet.",
    )
    if out is not None:
        output.result(
            _write(model, out, None if all_ else user, n, not include_seen, output)
        )
        return
    loaded = Recommender.load(model)
    lists = [_one(loaded, name, n, not include_seen, output) for name in user or ()]
    output.result({"users": lists} | (lists[0] if len(lists) == 1 else {}))


def _one(
    loaded: Recommender, name: str, n: int, exclude_seen: bool, output: Output
) -> dict[str, Any]:
    """Print the list of one user, and return it as plain data."""
    best = loaded.recommend(name, n, exclude_seen=exclude_seen)
    # The command line gives texts; the model may have integers as ids.
    place = int(loaded.model_.user_index([name])[0])
    known = name if place < 0 else loaded.user_ids_[place].item()
    basis = best[0].basis if best else "factors"
    if basis == "baseline":
        output.say(
            f"the model has no rating of user {name}: these are the items with the {_means(loaded)}"
        )
    output.show(f"user {known}")
    output.show(table(best))
    return {"user": known, "basis": basis, "items": [item._asdict() for item in best]}


def _write(
    model: Path,
    place: Path,
    users: list[str] | None,
    n: int,
    exclude_seen: bool,
    output: Output,
) -> dict[str, Any]:
    """Write the lists of these users, or of all."""
    from asyncqn.storage import check_output
    from asyncqn_recommender.data.tables import check_table_name, write_table
    from asyncqn_recommender.estimator import Recommender

    # Both checks come before the model is loaded and the lists are made.
    check_table_name(place)
    check_output(place)
    loaded = Recommender.load(model)
    total = len(loaded.user_ids_) if users is None else len(users)
    with output.progress("recommend", total) as advance:
        lists = loaded.recommend_many(
            users, n, exclude_seen=exclude_seen, progress=advance
        )
    write_table(place, lists)
    # The first item of each list, so that every user counts once.
    unknown = (lists["rank"] == 1) & (lists["basis"] == "baseline")
    baseline = int(unknown.sum())
    if baseline:
        output.say(
            f"users without ratings, who receive the items with the {_means(loaded)}: {baseline:,}"
        )
    output.show(f"users: {total:,}, rows: {lists.rows:,}, in {place}")
    return {
        "file": str(place),
        "users": total,
        "rows": lists.rows,
        "baseline_users": baseline,
    }


def _means(loaded: Recommender) -> str:
    """Return what decides the lists of users without ratings."""
    return "highest means" if loaded.feedback == "explicit" else "most clicks"


def table(items: list[Recommendation]) -> RichTable:
    """Return recommendations as a table."""
    titled = any(item.title for item in items)
    drawn = RichTable("", "score", "item", *(["title"] if titled else []), box=None)
    for place, item in enumerate(items, 1):
        title = [item.title or ""] if titled else []
        drawn.add_row(str(place), f"{item.score:.2f}", str(item.id), *title)
    return drawn
