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
    how = {key: value for key, value in how.items() if value}
    require(
        source is not None or not set(how) - {"skip_bad"},
        "columns and duplicates apply to a file: give it with --from FILE.",
    )
    if name != "list":
        out.result(store_set(name, source, out, **how))
        return
    require(source is None, "'list' shows the names: choose another name for --from.")
    rows = []
    for known, stored in known_names().items():
        out.show(f"{known:<16} {'stored' if stored else 'not stored'}")
        path = str(stored_path(known)) if stored else None
        rows.append({"name": known, "stored": stored, "path": path})
    out.result({"sets": rows})


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
    out.numbers({key: summary[key] for key in ("mean", "skipped", "repeated", "times")})
    out.show(f"{name}: {ratings}\nstored in {path}")
    return summary
