"""`asyncqn share FILE...`: serve tables to workers on machines that share no disk."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer

from asyncqn.cli.ending import INTERRUPTED
from asyncqn.cli.output import Output
from asyncqn.errors import require
from asyncqn.models.data_file import SUFFIXES, read_table
from asyncqn.models.server import DataServer

PLUGINS = "asyncqn.tables"
"""Entry points that read other files: functions from a name or path to the columns of a table."""


def share(
    files: list[str],
    out: Output,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 0,
) -> None:
    """Serve tables to workers on other machines, as flight://HOST:PORT/NAME, until interrupted.

    A table has the name of its file, without folder and suffix. If the environment variable
    ASYNCQN_DATA_TOKEN is set, readers must present the same token.

    Parameters
    ----------
    files : list of str
        CSV or Parquet files, ratings or stored sets, also as NAME=FILE.
    host : str
        Address to listen on; any but this machine's own needs a token.
    port : int
        Port; 0 takes a free one.
    """
    tables = {}
    for word in files:
        name, equals, file = word.partition("=")
        if not equals:
            name, file = Path(word).name.partition(".")[0], word
        require(
            bool(name) and "/" not in name,
            f"{word[:200]!r} has no name to share it by: write NAME={word[:200]}.",
        )
        require(name not in tables, f"two tables are named {name!r}: write NAME=FILE.")
        tables[name] = table_in(file)
    with DataServer(tables, host=host, port=port) as server:
        places = [f"{server.address}/{name}" for name in tables]
        out.show("\n".join(f"sharing {place}" for place in places))
        out.result({"address": server.address, "tables": places})
        try:
            server.wait()
        except KeyboardInterrupt:
            # The one object of --json has been printed.
            raise SystemExit(INTERRUPTED) from None


def table_in(file: str) -> Any:
    """Return the table in a CSV or Parquet file, or what a plug-in reads there."""
    tabular = [suffix for suffix, kind in SUFFIXES.items() if kind != "libsvm"]
    plugins = entry_points(group=PLUGINS)
    if not plugins or {*Path(file.lower()).suffixes} & {*tabular}:
        return read_table(Path(file))
    (plugin, *_) = plugins
    return plugin.load()(file)
