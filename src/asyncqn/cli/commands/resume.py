"""`asyncqn resume`: go on with an interrupted or killed run from its last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli.commands.run import show_run, speaking, under_mpiexec
from asyncqn.cli.options import AllowImports
from asyncqn.cli.output import Json, Quiet, check_run_folder


def register(app: typer.Typer) -> None:
    """Add the command to the program."""

    @app.command()
    def resume(
        folder: Annotated[Path, typer.Argument(help="Folder of checkpoints.")],
        checkpoint_every: Annotated[float, typer.Option(help="Seconds between two checkpoints.")] = 30.0,
        save: Annotated[Path | None, typer.Option(help="Save the run in this folder.", metavar="DIR")] = None,
        allow_imports: AllowImports = False,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """Go on from the newest whole checkpoint, to the number of commits the run was asked for."""
        from asyncqn.core.checkpoint import load_checkpoint
        from asyncqn.resume import resume as resume_run

        out, one_voice = speaking(json, quiet, mpi=under_mpiexec())
        with one_voice():
            if save is not None:
                check_run_folder(save)
            saved = load_checkpoint(folder)
        commits = int(saved.document["manifest"]["commits"])
        out.say(f"going on from commit {saved.commit} of {commits}")
        raise typer.Exit(
            show_run(
                lambda callback: resume_run(
                    folder,
                    callback=callback,
                    checkpoint_every=checkpoint_every,
                    allow_imports=allow_imports,
                ),
                commits, save, out, one_voice,
            )
        )  # fmt: skip
