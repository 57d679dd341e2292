"""The manifest: a description of a run in plain data: problem, algorithm, engine, seed and software.

`run_manifest` writes it, the `msgspec` structures check it, and `rebuild_inputs` and `request_again` turn it
back into a problem, an algorithm and a request.  The structures name only what is needed, so that files of
later versions with further entries can still be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from asyncqn.algorithms import algorithm_from_json, algorithm_to_json
from asyncqn.core.request import Request
from asyncqn.core.stopping import Stopping
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.models import PROBLEMS, rebuild, reference_of
from asyncqn.parameters import from_json
from asyncqn.runs.data_digest import data_digest
from asyncqn.runs.provenance import code_digest, versions
from asyncqn.storage.serialise import is_own, to_json
from asyncqn.types import Algorithm, Array, Problem, extra

EngineManifest: TypeAlias = Mapping[str, Any]
"""The engine's entry: its `kind`, its parameters, and the times that it measured."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class ProblemEntry(msgspec.Struct):
    """The entry of the problem; `reference` is None if it cannot be rebuilt from the manifest."""

    name: str
    dim: Count
    n_data: Count
    reference: dict[str, Any] | None


class AlgorithmEntry(msgspec.Struct):
    """The entry of the algorithm; `parameters` is None for a user's class with other than plain numbers."""

    kind: str
    parameters: dict[str, Any] | None


class EngineEntry(msgspec.Struct):
    """The entry of the engine, as far as a replay or a resumed run needs it."""

    kind: str
    workers: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    wire: str | None = None


class Manifest(msgspec.Struct):
    """The entries that a loaded manifest must have; further ones are ignored."""

    problem: ProblemEntry
    algorithm: AlgorithmEntry
    engine: EngineEntry
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    commits: Count
    evaluate: Annotated[int, msgspec.Meta(ge=1, le=2**62)] | None
    versions: dict[str, Any]
    stopping: dict[str, Any] = {}


def problem_entry(problem: Problem) -> dict[str, Any]:
    """Return the manifest's entry for a problem."""
    return {
        "name": type(problem).__name__,
        "reference": reference_of(problem),
        "dim": int(problem.dim),
        "n_data": int(problem.n_data),
    }


def run_manifest(
    request: Request, engine: EngineManifest, data: str | None = None
) -> dict[str, Any]:
    """Return the manifest of a request: enough to run it again.

    `data` is the digest of the problem's data, if the caller has computed it already.
    """
    data = data_digest(request.problem) if data is None else data
    return {
        # Entries at their defaults are left out, so that manifests of older versions stay comparable.
        "problem": problem_entry(request.problem),
        **({"data": data} if data else {}),
        "algorithm": algorithm_to_json(request.algorithm),
        "exact": extra(request.algorithm, "standing") is not None,
        "stopping": to_json(request.stopping),
        "engine": dict(engine),
        "seed": request.seed,
        "commits": int(request.commits),
        "evaluate": to_json(request.evaluate),
        # Only what deviates from the default is stored.
        **({} if request.keep is None else {"keep": int(request.keep)}),
        **({"every_version": True} if request.every_version else {}),
        **({"open_ended": True} if request.open_ended else {}),
        "versions": dict(versions()),
        "code": code_digest(),
        **_plug_in_code(request.problem),
    }


def _plug_in_code(problem: Problem) -> dict[str, str]:
    """Return the digest of the package that a registered problem comes from, unless that is asyncqn."""
    package = type(problem).__module__.partition(".")[0]
    if package == "asyncqn" or getattr(problem, "kind", None) not in PROBLEMS:
        return {}
    # A plug-in's code affects the numbers as asyncqn's own does.
    return {"problem_code": code_digest(package)}


def rebuild_inputs(
    folder: str | Path,
    manifest: Mapping[str, Any],
    problem: Problem | None,
    algorithm: Algorithm | None,
    allow_imports: bool,
) -> tuple[Problem | None, Algorithm | None]:
    """Return the given inputs, or those rebuilt from the manifest; None where it does not describe them."""
    if algorithm is None:
        try:
            algorithm = algorithm_from_json(
                manifest["algorithm"], allow_imports=allow_imports
            )
        except BadInput as error:
            raise DamagedFile(f"{folder} cannot be used: {error}") from None
    if problem is None:
        problem = _rebuilt(folder, manifest["problem"]["reference"], allow_imports)
    return problem, algorithm


def _rebuilt(folder: str | Path, reference: Any, allow_imports: bool) -> Problem | None:
    try:
        return rebuild(reference, allow_imports=allow_imports)
    # Parameters come from a file, so a constructor may fail in any of these ways.
    except (
        BadInput,
        TypeError,
        ValueError,
        KeyError,
        OverflowError,
        MemoryError,
    ) as error:
        kind = reference.get("kind") if isinstance(reference, Mapping) else None
        if isinstance(kind, str):
            # The file is not at fault where the problem needs a package or a data set that is not here.
            elsewhere = kind not in PROBLEMS or "source" in reference
            if is_own(kind) or (isinstance(error, BadInput) and elsewhere):
                raise
        words = " ".join(str(error).split())[:300]
        raise DamagedFile(
            f"{folder} cannot be used: its problem ({kind!r}) cannot be rebuilt: {words}"
        ) from None


def require_inputs(
    what: str,
    call: str,
    manifest: Mapping[str, Any],
    problem: Problem | None,
    algorithm: Algorithm | None,
) -> tuple[Problem, Algorithm]:
    """Return the problem and the algorithm of a run or checkpoint, or raise `BadInput` where one is missing.

    `what` is "run" or "checkpoint", and `call` the function that takes them, as in "replay(run".
    """
    if problem is not None and algorithm is not None:
        return problem, algorithm
    name = "problem" if problem is None else "algorithm"
    entry = manifest[name]
    kind = (entry["reference"] or {}).get("kind") if problem is None else entry["kind"]
    way = f"{call}, {name}=...)"
    if is_own(kind):
        raise BadInput(
            f"the {what}'s {name} is your own class {kind}: allow its import with --allow-imports "
            f"(allow_imports=True), or pass it as {way}."
        )
    if problem is None:
        raise BadInput(
            f"the {what} does not say how to rebuild its problem ({entry['name']}): in Python, pass it as {way}."
        )
    raise BadInput(
        f"the {what}'s algorithm ({kind}) is not one of asyncqn's: pass it as {way}."
    )


def needs_imports(problem: Problem, algorithm: Algorithm) -> bool:
    """Return whether a manifest names a class of the user's own, which another process must import."""
    kinds = (
        (reference_of(problem) or {}).get("kind"),
        algorithm_to_json(algorithm)["kind"],
    )
    return any(map(is_own, kinds))


def request_again(
    manifest: Mapping[str, Any],
    problem: Problem,
    algorithm: Algorithm,
    theta0: Array,
    **changes: Any,
) -> Request:
    """Return the request of a recorded run with `changes`."""
    asked = {
        name: manifest.get(name) for name in ("commits", "seed", "evaluate", "keep")
    }
    # Absent in older files, which behaved as False.
    for name in ("every_version", "open_ended"):
        asked[name] = bool(manifest.get(name, False))
    return Request(
        problem,
        algorithm,
        theta0,
        **{"stopping": stopping_of(manifest), **asked, **changes},
    )


def stopping_of(manifest: Mapping[str, Any]) -> Stopping:
    """Return the stopping rule of a recorded run."""
    entry = manifest.get("stopping", {})
    try:
        rule: Stopping = from_json(Stopping, entry, "the stopping rule")
    except BadInput as error:
        raise DamagedFile(f"the run cannot be used: {error}") from None
    return rule
