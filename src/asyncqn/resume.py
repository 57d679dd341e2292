"""resume: continue a run from its last checkpoint, up to the commits that were requested."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from asyncqn.algorithms import algorithm_from_json, algorithm_to_json
from asyncqn.algorithms.fit import check_fit
from asyncqn.engines.named import engine_from_json
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import BadInput, DamagedFile, require
from asyncqn.minimize import showing
from asyncqn.parameters import CheckpointEvery, Folder, checked
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
    folder: Folder,
    problem: Problem | None = None,
    algorithm: Algorithm | None = None,
    *,
    engine: Engine | None = None,
    callback: Callback | None = None,
    checkpoint_every: CheckpointEvery = 30.0,
    allow_imports: bool = False,
    change: bool = False,
    progress: bool | None = None,
    verbose: bool = False,
) -> Run:
    """Continue a run from its newest complete checkpoint; the same folder receives further checkpoints.

    Parameters
    ----------
    folder : path
        Folder of the checkpoints.
    problem : Problem, optional
        The checkpoint's problem; by default it is rebuilt, where the checkpoint describes it.
    algorithm : Algorithm, optional
        The checkpoint's algorithm; by default it is rebuilt, where the checkpoint describes it.
    engine : Engine, optional
        Where the workers run; by default the engine that wrote the checkpoint. A simulator's checkpoint
        needs a simulator.
    callback : callable, optional
        Called with a `Progress` after every evaluation. A `Patience` is restored from the checkpoint.
    checkpoint_every : int or float, default 30.0
        Interval between two checkpoints: an int counts commits, a float counts seconds.
    allow_imports : bool, default False
        Whether a user's own classes, which the run names as "module:Class", are imported. This runs their
        code.
    change : bool, default False
        Whether `problem` and `algorithm` may differ from the checkpoint's: the run then continues with
        another problem, or with other parameters of the same algorithm. The run records from which commit on
        it had which inputs, and its replay follows this record.
    progress : bool, optional
        Whether to show a progress bar on stderr; by default on a terminal or in a notebook, after half a
        second of work.
    verbose : bool, default False
        Whether to write plain lines to stderr, at most one per second.

    Returns
    -------
    Run
        The whole run, from its first commit.

    Examples
    --------
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
    problem, algorithm = _inputs(
        folder, saved, problem, algorithm, allow_imports, change
    )
    # A simulated schedule is drawn from its cluster; a real one is recorded as it happens.
    simulated = about["engine"]["kind"] == "simulator"
    chosen = engine if engine is not None else engine_from_json(about["engine"])
    require(
        simulated == isinstance(chosen, Simulator),
        "a simulated run can be resumed only on the simulator, and a real run only on a real engine: pass "
        "such an engine, or none.",
    )
    require(
        not isinstance(chosen, Simulator)
        or to_json(chosen.cluster) == about["engine"].get("cluster"),
        "a simulated run can be resumed only on its own cluster, on which its schedule depends: leave engine "
        "out.",
    )
    # The manifest has this key only for a run whose number of commits is a bound that nobody chose.
    total = None if about.get("open_ended") else int(about["commits"])
    told = [] if callback is None else [callback]
    with (
        closing(Checkpoints(folder, checkpoint_every, saved)) as checkpoints,
        showing(told, chosen, progress, verbose, total, "resume") as tell,
    ):
        asked = request_again(
            about, problem, algorithm, theta0, callback=tell, checkpoints=checkpoints
        )
        return chosen.minimize(asked)


def _inputs(
    folder: str | Path,
    saved: Saved,
    problem: Problem | None,
    algorithm: Algorithm | None,
    allow_imports: bool,
    change: bool,
) -> tuple[Problem, Algorithm]:
    """Return the problem and the algorithm, given or rebuilt, after a comparison with the checkpoint."""
    # Who supplied the inputs decides who is to blame if they do not fit.
    given, all_its_own = problem, problem is None and algorithm is None
    about = saved.document["manifest"]
    problem, algorithm = rebuild_inputs(
        folder, about, problem, algorithm, allow_imports
    )
    if problem is None:
        raise BadInput(
            needs_problem("checkpoint", "resume(folder, problem=...)", about)
        )
    if algorithm is None:
        raise BadInput(
            needs_algorithm("checkpoint", "resume(folder, algorithm=...)", about)
        )
    theta0 = saved.arrays["theta0"]
    if int(problem.dim) != theta0.size:
        sentence = f"the checkpoint has dimension {theta0.size}, but the problem has dim = {problem.dim}"
        if given is None:
            raise DamagedFile(f"{folder} cannot be used: {sentence}.")
        raise BadInput(f"{sentence}: pass the problem that was being minimised.")
    try:
        check_fit(algorithm, problem)
    except BadInput as error:
        # If everything came from the checkpoint, the user cannot have made the mistake.
        if all_its_own:
            raise DamagedFile(f"{folder} cannot be used: {error}") from None
        raise
    differs = differences(
        saved, problem_entry(problem), algorithm_to_json(algorithm), theta0, given
    )
    if differs and not change and all_its_own:
        raise DamagedFile(
            f"the checkpoint contradicts itself, or another version wrote it ({'; '.join(differs)}): "
            f"change=True continues from commit {saved.commit} with what can be rebuilt."
        )
    if differs and not change:
        raise BadInput(
            f"the checkpoint belongs to another run ({'; '.join(differs)}): pass its own inputs, or "
            f"change=True to continue with something else from commit {saved.commit} on."
        )
    if differs:
        check_change(saved, problem, algorithm, algorithm_from_json(about["algorithm"]))
    return problem, algorithm
