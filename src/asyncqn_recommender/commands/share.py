"""`asyncqn recommender share SET...`: serve ratings to workers on machines that share no disk."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from asyncqn.cli import Output
from asyncqn.errors import require


def share(
    sets: Annotated[
        list[str],
        typer.Argument(help="Stored sets, or files as NAME=FILE.", metavar="SET..."),
    ],
    out: Output,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; any but this machine's own needs a token."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 0,
) -> None:
    """Serve ratings to workers on other machines, as flight://HOST:PORT/NAME, until interrupted.

    If the environment variable ASYNCQN_DATA_TOKEN is set, readers must present the same token.
    """
    from asyncqn_recommender.data.cache import load
    from asyncqn_recommender.data.server import DataServer

    named = {}
    for word in sets:
        name, _, file = word.partition("=")
        require(
            bool(name) and "/" not in name,
            f"{word[:200]!r} has no name to share it by: write NAME={word}.",
        )
        # A bare word is the name of a stored set, and is shared under it.
        named[name] = load(file or name)
    with DataServer(named, host=host, port=port) as server:
        out.result(
            {
                "address": server.address,
                "sets": [f"{server.address}/{name}" for name in named],
            }
        )
        for name in named:
            out.show(f"sharing {server.address}/{name}")
        sys.stdout.flush()  # a program that waits for the address reads a pipe
        with out.until_interrupted():
            server.wait()
