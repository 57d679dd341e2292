"""`asyncqn resume DIR`: continue an interrupted run from its last checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli.options import AllowImports, CheckpointEvery, Save
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.running import SIMULATOR, output_of_rank, show_run, under_mpiexec


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of checkpoints.")],
    out: Output,
    checkpoint_every: CheckpointEvery = 30.0,
    save: Save = None,
    allow_imports: AllowImports = False,
) -> None:
    """Continue a run from its newest complete checkpoint, up to the commits that were requested."""
    from asyncqn.cli.results import held_out_scores
    from asyncqn.resume import resume as resume_run
    from asyncqn.runs.checkpoint_reading import load_checkpoint

    out, once = output_of_rank(out, mpi=under_mpiexec())
    with once():
        check_run_folder(save)
        # Read here as well as in `resume`, to report the commit and to know the total for the bar.
        saved = load_checkpoint(folder)
    manifest = saved.document["manifest"]
    commits = int(manifest["commits"])
    out.say(f"continuing from commit {saved.commit} of {commits}")
    begin = partial(
        resume_run,
        folder,
        checkpoint_every=checkpoint_every,
        allow_imports=allow_imports,
    )
    code = show_run(
        begin,
        commits,
        save,
        out,
        once,
        simulated=manifest["engine"]["kind"] == SIMULATOR,
        checkpoint=True,
        results=held_out_scores,
    )
    raise typer.Exit(code)
