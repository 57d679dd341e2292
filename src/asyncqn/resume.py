"""resume: go on with a run from its last checkpoint, to the total it was asked for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

from asyncqn.algorithms import algorithm_from_json, algorithm_to_json
from asyncqn.algorithms.fit import check_fit
from asyncqn.engines.named import engine_from_json
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import BadInput, DamagedFile, require
from asyncqn.minimize import ShowProgress, Verbose, showing
from asyncqn.parameters import AllowImports, CheckpointEvery, Folder, checked, parameter
from asyncqn.runs.checkpoint import Checkpoints, Saved
from asyncqn.runs.checkpoint_reading import load_checkpoint
from asyncqn.runs.manifest import problem_entry, rebuild_inputs, request_again
from asyncqn.runs.replay import needs_algorithm, needs_problem
from asyncqn.runs.run import Run
from asyncqn.runs.segments import check_change, differences
from asyncqn.storage.serialise import to_json
from asyncqn.types import Algorithm, Callback, Engine, Problem


@checked
def resume(
    folder: Annotated[Folder, parameter("Of the checkpoints")],
    problem: Annotated[Problem | None, parameter("None: the checkpoint's own")] = None,
    algorithm: Annotated[Algorithm | None, parameter("None: the checkpoint's own")] = None,
    *,
    engine: Annotated[Engine | None, parameter("None: the one that wrote the checkpoint")] = None,
    callback: Annotated[Callback | None, parameter("Called with a `Progress` after evaluations")] = None,
    checkpoint_every: CheckpointEvery = 30.0,
    allow_imports: AllowImports = False,
    change: Annotated[bool, parameter("Whether to go on with something else")] = False,
    progress: ShowProgress = None,
    verbose: Verbose = False,
) -> Run:
    """Go on from the newest whole checkpoint in `folder`, which goes on receiving checkpoints.

    The problem and the algorithm are rebuilt where the checkpoint knows how, else must be given, and must
    be those of the checkpoint.
    engine: by default the one that wrote it; the simulator's checkpoints need the simulator.
    allow_imports: whether a user's own classes, which the run names as "module:Class", are imported.
    change: go on with another problem, or with other parameters of the same algorithm, from this commit on;
    `runs.segments` says what is carried over.  The run records its segments, and its replay follows them.
    progress, verbose: as in `minimize`.  A `Patience` is the checkpoint's own.

    >>> import tempfile
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> def stop(progress):
    ...     if progress.commit >= 100:
    ...         raise StopIteration
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=aq.Threads(2), commits=200,
    ...                         callback=stop, checkpoint=folder)
    ...     run = aq.resume(folder)
    >>> run.status, run.nit
    ('completed', 200)
    """
    saved = load_checkpoint(folder)
    about, theta0 = saved.document["manifest"], saved.arrays["theta0"]
    problem, algorithm = _what_to_go_on_with(folder, saved, problem, algorithm, allow_imports, change)
    simulated = about["engine"]["kind"] == "simulator"
    chosen = engine if engine is not None else engine_from_json(about["engine"])
    require(
        simulated == isinstance(chosen, Simulator),
        "a simulated run goes on only on the simulator, a real one only on a real engine.",
    )
    require(
        not isinstance(chosen, Simulator) or to_json(chosen.cluster) == about["engine"].get("cluster"),
        "a simulated run goes on only on the cluster it began on: its schedule is a function of it.",
    )
    total = None if about.get("open_ended") else int(about["commits"])
    told = [] if callback is None else [callback]
    with (
        closing(Checkpoints(folder, checkpoint_every, saved)) as checkpoints,
        showing(told, chosen, progress, verbose, total, "resume") as tell,
    ):
        asked = request_again(about, problem, algorithm, theta0, callback=tell, checkpoints=checkpoints)
        return chosen.minimize(asked)


def _what_to_go_on_with(
    folder: str | Path,
    saved: Saved,
    problem: Problem | None,
    algorithm: Algorithm | None,
    allow_imports: bool,
    change: bool,
) -> tuple[Problem, Algorithm]:
    """The problem and the algorithm, given or rebuilt, compared with those of the checkpoint."""
    given, all_its_own = problem, problem is None and algorithm is None
    about = saved.document["manifest"]
    problem, algorithm = rebuild_inputs(folder, about, problem, algorithm, allow_imports)
    if problem is None:
        raise BadInput(needs_problem("checkpoint", "resume(folder, problem=...)", about))
    if algorithm is None:
        raise BadInput(needs_algorithm("checkpoint", "resume(folder, algorithm=...)", about))
    theta0 = saved.arrays["theta0"]
    if int(problem.dim) != theta0.size:
        sentence = f"the checkpoint is of dimension {theta0.size} but the problem has dim = {problem.dim}"
        if given is None:
            raise DamagedFile(f"{folder} cannot be used: {sentence}.")
        raise BadInput(f"{sentence}: pass the problem that was being minimised.")
    try:
        check_fit(algorithm, problem)
    except BadInput as error:
        if all_its_own:
            raise DamagedFile(f"{folder} cannot be used: {error}") from None
        raise
    differs = differences(saved, problem_entry(problem), algorithm_to_json(algorithm), theta0, given)
    if differs and not change and all_its_own:
        raise DamagedFile(
            f"the checkpoint contradicts itself, or another version wrote it ({'; '.join(differs)}): "
            f"change=True goes on from commit {saved.commit} with what can be made of it."
        )
    if differs and not change:
        raise BadInput(
            f"the checkpoint is of another run ({'; '.join(differs)}): pass what it was written with, or "
            f"change=True to go on with something else from commit {saved.commit} on."
        )
    if differs:
        check_change(saved, problem, algorithm, algorithm_from_json(about["algorithm"]))
    return problem, algorithm
