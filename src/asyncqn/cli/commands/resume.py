"""`asyncqn resume DIR`: continue an interrupted or killed run from its last checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.options import AllowImports, CheckpointEvery, Save, parse_parameters
from asyncqn.cli.output import Output, check_run_folder
from asyncqn.cli.running import output_of_rank, show_run, under_mpiexec
from asyncqn.errors import BadInput, require

if TYPE_CHECKING:
    from asyncqn.runs.checkpoint import Saved
    from asyncqn.types import Algorithm


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of checkpoints.")],
    out: Output,
    change: Annotated[
        bool,
        typer.Option(
            "--change",
            help="Continue with other parameters, as a new segment of the run.",
        ),
    ] = False,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="KEY=VALUE",
            help="With --change: a new value of a parameter, as in -p h=1e-3; may be repeated.",
        ),
    ] = None,
    checkpoint_every: CheckpointEvery = 30.0,
    save: Save = None,
    allow_imports: AllowImports = False,
) -> None:
    """Continue a run from its newest complete checkpoint, up to the commits that were requested.

    With --change the run records which parameters it had from which commit on, so that it can be replayed.
    """
    from asyncqn.resume import resume as resume_run
    from asyncqn.runs.checkpoint_reading import load_checkpoint

    out, mistakes_at_rank_0 = output_of_rank(out, mpi=under_mpiexec())
    with mistakes_at_rank_0():
        check_run_folder(save)
        require(
            change == bool(parameter),
            "other parameters need both --change and -p KEY=VALUE: give both, or neither.",
        )
        # Read here as well as in `resume`, to report the commit and to know the total for the bar.
        saved = load_checkpoint(folder)
        algorithm = _changed(saved, parameter, allow_imports) if parameter else None
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
    go = partial(resume_run, folder, algorithm=algorithm, change=change, **options)
    code = show_run(
        go, commits, save, out, mistakes_at_rank_0, simulated=simulated, checkpoint=True
    )
    raise typer.Exit(code)


def _changed(saved: Saved, parameter: list[str], allow_imports: bool) -> Algorithm:
    """Return the algorithm of a checkpoint with other parameters."""
    from asyncqn.algorithms import algorithm_from_json

    before = saved.document["manifest"]["algorithm"]
    # Parameters that are not named keep the values of the checkpoint.
    parameters = {**(before["parameters"] or {}), **parse_parameters(parameter)}
    algorithm = algorithm_from_json(
        {**before, "parameters": parameters}, allow_imports=allow_imports
    )
    if algorithm is None:
        raise BadInput(
            f"the checkpoint's algorithm {before['kind']} is your own class: give --allow-imports, or use "
            "resume(folder, algorithm=..., change=True) in Python."
        )
    return algorithm
