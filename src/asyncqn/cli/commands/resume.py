"""`asyncqn resume DIR`: continue an interrupted or killed run from its last checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from asyncqn.cli.options import AllowImports, CheckpointEvery, Save
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.running import output_of_rank, show_run, under_mpiexec


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of checkpoints.")],
    out: Output,
    checkpoint_every: CheckpointEvery = 30.0,
    save: Save = None,
    allow_imports: AllowImports = False,
) -> None:
    """Continue a run from its newest complete checkpoint, up to the commits that were requested."""
    from asyncqn.resume import resume as resume_run
    from asyncqn.runs.checkpoint_reading import load_checkpoint

    out, mistakes_at_rank_0 = output_of_rank(out, mpi=under_mpiexec())
    with mistakes_at_rank_0():
        check_run_folder(save)
        # Read here as well as in `resume`, to report the commit and to know the total for the bar.
        saved = load_checkpoint(folder)
    manifest = saved.document["manifest"]
    commits, simulated = (
        int(manifest["commits"]),
        manifest["engine"]["kind"] == "simulator",
    )
    out.say(f"continuing from commit {saved.commit} of {commits}")
    options: dict[str, Any] = {
        "checkpoint_every": checkpoint_every,
        "allow_imports": allow_imports,
    }
    go = partial(resume_run, folder, **options)
    code = show_run(
        go, commits, save, out, mistakes_at_rank_0, simulated=simulated, checkpoint=True
    )
    raise typer.Exit(code)
