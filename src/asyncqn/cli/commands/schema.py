"""`asyncqn schema`: the JSON schema of a job file, for editors that complete and check TOML."""

from __future__ import annotations

import json

import typer


def register(app: typer.Typer) -> None:
    """Add the command `schema`."""

    @app.command()
    def schema() -> None:
        """Print the JSON schema of a job file; name it in the first line: #:schema ./job.schema.json."""
        from asyncqn.cli.jobfile import job_schema

        typer.echo(json.dumps(job_schema(), indent=1))
