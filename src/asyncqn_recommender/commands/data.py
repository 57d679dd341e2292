"""`asyncqn recommender data`: store a set of ratings under a name, or list all names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from asyncqn.cli import Output
from asyncqn.errors import require
from asyncqn_recommender.commands._options import How
from asyncqn_recommender.data.cache import fetch, known_names, stored_path
from asyncqn_recommender.data.store import open_ratings, read_header


def data(
    name: Annotated[str, typer.Argument(help="Name of a set, or 'list'.")],
    how: How,
    out: Output,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Import this archive or file.", metavar="FILE"),
    ] = None,
) -> None:
    """Store a set of ratings under a name: MovieLens, synthetic, or your own; 'list' shows all names."""
    if name == "list":
        require(
            source is None, "'list' shows the names: choose another name for --from."
        )
        out.result(data_list(out))
        return
    how = {key: value for key, value in how.items() if value}
    require(
        source is not None or not set(how) - {"skip_bad"},
        "columns, delimiter and duplicates apply to a file: give it with --from FILE.",
    )
    out.result(store_set(name, source, out, **how))


def store_set(
    name: str, source: Path | None, out: Output, **reading: Any
) -> dict[str, Any]:
    """Store `name` unless it is stored, and describe it; `reading` holds arguments of `read_ratings`."""
    path = fetch(name, source, **reading, say=out.say)
    ratings = open_ratings(path)
    origin = read_header(path).origin
    summary = {
        "name": name,
        "path": str(path),
        "ratings": len(ratings),
        "users": ratings.n_users,
        "items": ratings.n_items,
        "mean": round(float(ratings.values.mean(dtype="float64")), 4),
        "lowest": float(ratings.values.min()),
        "highest": float(ratings.values.max()),
        "titles": ratings.titles is not None,
        "times": ratings.times is not None,
        "skipped": int(origin.get("skipped", 0)),
        "repeated": int(origin.get("repeated", 0)),
        "digest": ratings.digest,
        "origin": origin,
    }
    out.show(
        f"{name}: {len(ratings):,} ratings of {ratings.n_users:,} users on {ratings.n_items:,} items, "
        f"mean {summary['mean']:.2f}, bad rows skipped: {summary['skipped']}, repeated ratings dropped: "
        f"{summary['repeated']}, {'with' if summary['times'] else 'without'} times\nstored in {path}"
    )
    return summary


def data_list(out: Output) -> dict[str, Any]:
    """Print all known names, and whether they are stored."""
    rows = [
        {
            "name": name,
            "stored": stored,
            "path": str(stored_path(name)) if stored else None,
        }
        for name, stored in known_names().items()
    ]
    for row in rows:
        out.show(f"{row['name']:<16} {'stored' if row['stored'] else 'not stored'}")
    return {"sets": rows}
