"""resume: go on with a run from its last checkpoint, to the total it was asked for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from asyncqn.algorithms import algorithm_from_json
from asyncqn.algorithms.fit import check_fit
from asyncqn.core.checkpoint import Checkpoints, load_checkpoint
from asyncqn.core.replay import needs_algorithm, needs_potential
from asyncqn.core.run import Run, stopping_of
from asyncqn.engines.named import engine_from_json
from asyncqn.errors import BadInput, require
from asyncqn.potentials import rebuild
from asyncqn.types import Algorithm, Callback, Engine, Potential


def resume(
    folder: str | Path,
    potential: Potential | None = None,
    algorithm: Algorithm | None = None,
    *,
    engine: Engine | None = None,
    callback: Callback | None = None,
    checkpoint_every: int | float = 30.0,
    allow_imports: bool = False,
) -> Run:
    """Go on from the newest whole checkpoint in `folder`, which goes on receiving checkpoints.

    The potential and the algorithm are rebuilt where the checkpoint knows how, else must be given.
    engine: by default the one that wrote it; the simulator's checkpoints need the simulator.
    allow_imports: whether a user's own classes, which the run names as "module:Class", are imported.
    """
    saved = load_checkpoint(folder)
    about = saved.document["manifest"]
    if potential is None:
        potential = rebuild(about["potential"]["reference"], allow_imports=allow_imports)
    if potential is None:
        raise BadInput(needs_potential("checkpoint", "resume(folder, potential=...)", about))
    if algorithm is None:
        algorithm = algorithm_from_json(about["algorithm"], allow_imports=allow_imports)
    if algorithm is None:
        raise BadInput(needs_algorithm("checkpoint", "resume(folder, algorithm=...)", about))
    theta0 = saved.arrays["theta0"]
    require(
        int(potential.dim) == theta0.size,
        f"the checkpoint is of dimension {theta0.size} but the potential has dim = {potential.dim}: "
        "pass the potential that was being minimised.",
    )
    check_fit(algorithm, potential)
    simulated = about["engine"]["kind"] == "simulator"
    chosen = engine if engine is not None else engine_from_json(about["engine"])
    require(
        simulated == (type(chosen).__name__ == "Simulator"),
        "a simulated run goes on only on the simulator, a real one only on a real engine.",
    )
    with closing(Checkpoints(folder, checkpoint_every, saved)) as checkpoints:
        return chosen.minimize(
            potential,
            algorithm,
            theta0=theta0,
            commits=about["commits"],
            seed=about["seed"],
            evaluate=about["evaluate"],
            callback=callback,
            stopping=stopping_of(about),
            checkpoints=checkpoints,
        )
