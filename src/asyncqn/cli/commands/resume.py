"""`asyncqn resume DIR`: continue a run from its last checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli.options import AllowImports, Generated, Section
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.results import held_out_scores
from asyncqn.cli.running import SIMULATOR, output_of_rank, show_run, under_mpiexec
from asyncqn.resume import resume as resume_run
from asyncqn.runs.checkpoint_reading import load_checkpoint

LIMITS = ("commits", "max_passes", "max_time", "target", "tol")


def resume(
    folder: Path,
    limits: Annotated[Section, Generated(resume_run, LIMITS)],
    out: Output,
    checkpoint_every: float = 30.0,
    save: Path | None = None,
    allow_imports: AllowImports = False,
) -> None:
    """Continue a run from its newest complete checkpoint, to its own end or to a later one.

    Parameters
    ----------
    folder : Path
        Folder of checkpoints.
    """
    out, once = output_of_rank(out, mpi=under_mpiexec())
    with once():
        check_run_folder(save)
        # Read here as well as in `resume`, to report the commit and to know the total for the bar.
        saved = load_checkpoint(folder)
    manifest = saved.document["manifest"]
    commits = limits.get("commits", int(manifest["commits"]))
    out.say(f"continuing from commit {saved.commit} of {commits}")
    begin = partial(
        resume_run,
        folder,
        checkpoint_every=checkpoint_every,
        allow_imports=allow_imports,
        **limits,
    )
    code = show_run(
        begin,
        commits,
        save,
        out,
        once,
        simulated=manifest["engine"]["kind"] == SIMULATOR,
        results=held_out_scores,
    )
    raise typer.Exit(code)
