"""`asyncqn schema`: the JSON schema of a job file, for editors that complete and check TOML."""

from __future__ import annotations

from json import dumps

import typer

from asyncqn.cli.output import Output


def schema(out: Output) -> None:
    """Print the JSON schema of a job file; name it in the first line: #:schema ./job.schema.json."""
    from asyncqn.cli.jobfile import job_schema

    typer.echo(dumps(job_schema(), indent=1))  # JSON it is, asked for or not
