"""Execute a schedule in the numerical loop and return a `Run`, with checkpoints where they are requested.

The simulator and the replay end here.  `core.execute` computes the numbers and knows nothing of files;
`CheckpointWriter` watches its loop and writes them.
"""

from __future__ import annotations

from typing import Any

from asyncqn.core.execute import Loop, Turns, execute
from asyncqn.core.request import Request
from asyncqn.core.schedule import Schedule
from asyncqn.core.stopping import Ended
from asyncqn.runs.checkpoint import Checkpoints
from asyncqn.runs.conclude import conclude
from asyncqn.runs.draws import rows_to_keep
from asyncqn.runs.manifest import EngineManifest, run_manifest
from asyncqn.runs.run import Run
from asyncqn.runs.snapshot import restore_loop, save_loop


def run_schedule(
    request: Request,
    schedule: Turns,
    *,
    engine: EngineManifest,
) -> Run:
    """Execute a schedule and return the `Run`.

    Parameters
    ----------
    request : Request
        The arguments of the run; its checkpoints are written, and it continues from their last one.
    schedule : Schedule or VirtualTime
        Who reads which version, and which commit delivers it.
    engine : EngineManifest
        The manifest's entry for the engine; `workers` and `wire` affect the numbers.
    """
    if isinstance(schedule, Schedule):
        schedule.check_parts(request.algorithm.stages)
    manifest, checkpoints = run_manifest(request, engine), request.checkpoints
    # The wire matters in a replay, too: float32 messages were rounded, and the numbers follow from that.
    finished = execute(
        request,
        schedule,
        workers=engine.get("workers", 0),
        wire=engine.get("wire") or "exact",
        kept=rows_to_keep(request),
        watch=None if checkpoints is None else CheckpointWriter(checkpoints, manifest),
    )
    return conclude(finished, manifest)


class CheckpointWriter:
    """Writes the checkpoints of a loop, and restores the loop from the one that the run continues from."""

    def __init__(self, checkpoints: Checkpoints, manifest: dict[str, Any]) -> None:
        self.checkpoints, self.manifest = checkpoints, manifest
        self.last = -1
        """The commit of the last checkpoint that was written."""

    def begin(self, loop: Loop) -> None:
        """Prepare the folder, and restore the loop from its checkpoint, if there is one."""
        self.checkpoints.prepare()
        if self.checkpoints.start is not None:
            restore_loop(loop, self.checkpoints.start)

    def committed(self, loop: Loop) -> None:
        """Write a checkpoint if one is due; after a signal, end the run with it."""
        checkpoints, version = self.checkpoints, loop.master.version
        # Between two commits, where the state is a function of the schedule.
        if checkpoints.interrupted or checkpoints.due(version):
            self.write(loop)
            # A signal at the last commit changes nothing: the run is complete.
            if checkpoints.interrupted and version < loop.master.commits:
                raise Ended(*checkpoints.ending(version))

    def write(self, loop: Loop) -> None:
        """Write a checkpoint."""
        self.last = loop.master.version
        self.checkpoints.write(save_loop(loop, self.manifest))

    def stopped(self, loop: Loop) -> None:
        """Write a last checkpoint, from which `resume` continues to later limits."""
        if self.last != loop.master.version:
            self.write(loop)
