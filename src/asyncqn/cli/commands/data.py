"""`asyncqn data`: store a set of ratings under a name, or list what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from asyncqn.cli.options import grouped
from asyncqn.cli.output import Json, Output, Quiet
from asyncqn.cli.ratings_options import ReadingOptions
from asyncqn.data.cache import fetch, known_names, stored_path
from asyncqn.data.store import open_ratings, read_header
from asyncqn.errors import require


@grouped
def data(
    name: Annotated[str, typer.Argument(help="Name of a set, or 'list'.")],
    reading: ReadingOptions,
    source: Annotated[
        Path | None, typer.Option("--from", help="Import this archive or file.", metavar="FILE")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Store a set of ratings under a name: MovieLens, synthetic, or your own; 'list' shows all names."""
    out = Output(json, quiet)
    if name == "list":
        require(source is None, "'list' shows the names: choose another one for --from.")
        out.result(data_list(None if json else out.stdout))
        return
    how = reading.given()
    require(
        source is not None or not set(how) - {"skip_bad"},
        "columns, delimiter and duplicates are of a file: name it with --from FILE.",
    )
    out.result(store_set(name, source, out.console if json or quiet else out.stdout, out.console, **how))


def store_set(
    name: str,
    source: Path | None = None,
    console: Console | None = None,
    remarks: Console | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Store `name` unless it is stored, and describe it to `console`; `remarks` hears how it goes.

    `reading`: how the file is read, in the words of `read_ratings`.
    """

    def tell(listener: Console | None, sentence: str) -> None:
        if listener is not None:
            listener.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def say(sentence: str) -> None:
        tell(console, sentence)

    path = fetch(name, source, **reading, say=lambda sentence: tell(remarks or console, sentence))
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
    say(
        f"{name}: {len(ratings):,} ratings of {ratings.n_users:,} users on {ratings.n_items:,} items, "
        f"mean {summary['mean']:.2f}, bad rows skipped: {summary['skipped']}, repeated ratings dropped: "
        f"{summary['repeated']}, {'with' if summary['times'] else 'without'} times"
    )
    say(f"stored in {path}")
    return summary


def data_list(console: Console | None = None) -> dict[str, Any]:
    """All names that can be asked for, and which are stored."""
    names = known_names()
    rows = [
        {"name": name, "stored": stored, "path": str(stored_path(name)) if stored else None}
        for name, stored in names.items()
    ]
    if console is not None:
        for row in rows:
            line = f"{row['name']:<16} {'stored' if row['stored'] else 'not stored'}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return {"sets": rows}
