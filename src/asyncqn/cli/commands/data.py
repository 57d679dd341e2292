"""`asyncqn data`: store a set of ratings under a name, or list what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from asyncqn.cli.output import Json, Output, Quiet
from asyncqn.data.cache import fetch, known_names, stored_path
from asyncqn.data.store import open_ratings, read_header
from asyncqn.errors import require


def register(app: typer.Typer) -> None:
    """Add the command `data`."""

    @app.command("data")
    def command(
        name: Annotated[str, typer.Argument(help="Name of a set, or 'list'.")],
        source: Annotated[
            Path | None, typer.Option("--from", help="Import this archive or file.", metavar="FILE")
        ] = None,
        skip_bad: Annotated[
            bool, typer.Option("--skip-bad", help="Skip bad rows instead of stopping.")
        ] = False,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """Store a set of ratings under a name: MovieLens, synthetic, or your own; 'list' shows all names."""
        out = Output(json, quiet)
        if name == "list":
            require(source is None, "'list' shows the names: choose another one for --from.")
            out.result(data_list(None if json else out.stdout))
        else:
            out.result(
                data(name, source, skip_bad, out.console if json or quiet else out.stdout, out.console)
            )


def data(
    name: str,
    source: Path | None = None,
    skip_bad: bool = False,
    console: Console | None = None,
    remarks: Console | None = None,
) -> dict[str, Any]:
    """Store `name` unless it is stored, and describe it to `console`; `remarks` hears how it goes."""

    def tell(listener: Console | None, sentence: str) -> None:
        if listener is not None:
            listener.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def say(sentence: str) -> None:
        tell(console, sentence)

    path = fetch(name, source, skip_bad=skip_bad, say=lambda sentence: tell(remarks or console, sentence))
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
        "skipped": int(origin.get("skipped", 0)),
        "digest": ratings.digest,
        "origin": origin,
    }
    say(
        f"{name}: {len(ratings):,} ratings of {ratings.n_users:,} users on {ratings.n_items:,} items, "
        f"mean {summary['mean']:.2f}, {summary['skipped']} bad rows skipped"
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
