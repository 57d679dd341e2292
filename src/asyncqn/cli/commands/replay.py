"""`asyncqn replay RUN`: compute a saved run again and check that every bit agrees."""

from __future__ import annotations

from pathlib import Path

import typer

from asyncqn.cli.ending import BAD_INPUT, complain
from asyncqn.cli.options import AllowImports
from asyncqn.cli.output import Output
from asyncqn.errors import ReplayMismatch
from asyncqn.runs.replay import replay as replay_run


def replay(run: Path, out: Output, allow_imports: AllowImports = False) -> None:
    """Compute a saved run again from its schedule; fail unless it is identical bit for bit.

    Parameters
    ----------
    run : Path
        Folder of a saved run.
    """
    try:
        again = replay_run(run, allow_imports=allow_imports)
    except ReplayMismatch as mismatch:
        sentence = str(mismatch)
        # "error" as for every failure of the program, and "message" as in the result of a run.
        reasons = {"message": sentence, "error": sentence}
        out.result({"identical": False, "run": str(run), **reasons})
        complain(sentence)
        raise typer.Exit(BAD_INPUT) from None
    commits = again.schedule.commits
    out.show(f"identical: {commits} commits of {run} were computed again, bit for bit.")
    out.result({"identical": True, "run": str(run), **again.summary()})
